"""What the work used: FLOPs and bytes, memory, hardware counters, energy, metrics of Nsight Compute, occupancy."""

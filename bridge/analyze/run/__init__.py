"""What the run was about: why GPUs were idle, the critical path, communication, clocks, ranks, steps."""

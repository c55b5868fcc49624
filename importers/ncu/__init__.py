"""Reports of Nsight Compute (.ncu-rep) and its CSV: metrics and rules of kernels."""

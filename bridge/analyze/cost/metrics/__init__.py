"""Metrics of kernels measured by Nsight Compute, as columns of tables, and results of its rules."""

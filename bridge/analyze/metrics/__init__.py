"""Metrics that Nsight Compute measured of kernels, as columns of tables, and what its rules say."""

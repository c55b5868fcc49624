"""Facts about ops, kernels and GPUs: FLOP formulas, classes of kernels, data sheets."""

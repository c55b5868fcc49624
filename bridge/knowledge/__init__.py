"""What ops, kernels and GPUs are: classes of kernels, FLOP formulas, data sheets; light."""

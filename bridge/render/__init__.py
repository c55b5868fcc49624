"""One module per output: frames in, text out. A renderer computes nothing and never sees SQL."""

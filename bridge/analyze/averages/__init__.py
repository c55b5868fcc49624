"""What `bridge.load(path).key_averages()` gives: rows and a table as PyTorch's profiler has them."""

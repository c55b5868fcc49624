"""Traces of PyTorch's profiler (Kineto, Chrome's JSON format)."""

"""Traces of PyTorch's Cuspy in the format of Perfetto."""

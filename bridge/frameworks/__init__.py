"""Hooks for libraries and whole programs: PyTorch, JAX, CuPy, autorun."""

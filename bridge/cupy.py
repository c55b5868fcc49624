"""Annotate CuPy programs without touching their code: functions, ufuncs, kernels of one's own, waits."""

from bridge.frameworks.cupy import annotate

__all__ = ["annotate"]

"""Annotate CuPy programs without changing their code: functions, ufuncs, own kernels, waits."""

from bridge.frameworks.cupy import annotate

__all__ = ["annotate"]

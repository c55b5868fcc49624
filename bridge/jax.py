"""Annotate JAX programs without changing their code: jitted functions, eager ops, waits, copies."""

from bridge.frameworks.jax import annotate

__all__ = ["annotate"]

"""Benchmarks that are measured anew."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_results_of_other_tests() -> None:
    """Forget what was measured: `bench.op` keeps results."""
    from bridge import bench

    bench.reset_cache()

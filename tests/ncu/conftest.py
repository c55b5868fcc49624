"""A timeline, and counters of its kernels."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def counted_twice(folder: Path) -> Path:
    """Write t.sqlite, a timeline, and c.csv, the counters of two of its steps; work in their folder."""
    import counters

    counters.timeline(folder / "t.sqlite")
    counters.counters(folder / "c.csv", steps=2)
    return folder

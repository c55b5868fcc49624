"""Measure how long calls take: `bridge.bench.op(fn, *inputs)`, or several calls concurrently.

docs/bench.md defines all figures. The time of every run is kept as measured; nothing is subtracted
from it.
"""

from __future__ import annotations

from bridge.bench.benchmark import group, op
from bridge.bench.cache import cache_size, reset_cache
from bridge.bench.recording import save
from bridge.bench.result import Group, Result, table

__all__ = ["Group", "Result", "cache_size", "group", "op", "reset_cache", "save", "table"]

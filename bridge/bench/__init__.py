"""How long a call takes: `bridge.bench.op(fn, *inputs)`, several at once, and what is kept of it.

docs/bench.md defines every figure. The invariant: what the clock said is kept, run by run; nothing is subtracted from it.
"""

from __future__ import annotations

from bridge.bench.benchmark import group, op
from bridge.bench.cache import cache_size, reset_cache
from bridge.bench.recording import save
from bridge.bench.result import Group, Result, table

__all__ = ["Group", "Result", "cache_size", "group", "op", "reset_cache", "save", "table"]

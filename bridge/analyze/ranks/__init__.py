"""Which rank each process of a run is, by which clock it runs, and how ranks differ; docs/ranks.md defines every figure."""

from __future__ import annotations

from bridge.analyze.ranks.members import Ranks

__all__ = ["Ranks"]

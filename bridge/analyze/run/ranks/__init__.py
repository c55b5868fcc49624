"""Identify the rank of each process of a run, and compare ranks.

docs/ranks.md defines every column.
"""

from __future__ import annotations

from bridge.analyze.run.ranks.members import Ranks

__all__ = ["Ranks"]

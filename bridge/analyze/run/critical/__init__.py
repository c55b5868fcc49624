"""Find the critical path of a run: the chain of elements that each waited for the one before.

docs/critical.md defines every rule.
"""

from __future__ import annotations

from bridge.analyze.run.critical.table import by_critical

__all__ = ["by_critical"]

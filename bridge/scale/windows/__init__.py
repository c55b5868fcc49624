"""Reports larger than memory: aggregates are computed in windows of host time (docs/memory-limit.md).

The invariant: the result is, byte for byte, that of the whole report at once. Where it would not
be, `WindowsError` is raised.
"""

from __future__ import annotations

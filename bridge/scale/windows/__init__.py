"""A report larger than memory becomes aggregates by windows of host time: docs/memory-limit.md.

The invariant: what comes of it is, byte for byte, what comes of the whole report at once; where it would not be, a
`WindowsError` says so in a line.
"""

from __future__ import annotations

"""Analyse what ran at the same time: the use of each GPU, and communication that computation hides.

docs/communication.md defines every column.
"""

from __future__ import annotations

from bridge.analyze.run.concurrency.collectives import by_collective
from bridge.analyze.run.concurrency.overlap import by_device, exposure

__all__ = ["by_collective", "by_device", "exposure"]

"""What ran at the same time: how full each GPU was, and how much of the communication computation hid.

docs/communication.md defines every figure.
"""

from __future__ import annotations

from bridge.analyze.concurrency.collectives import by_collective
from bridge.analyze.concurrency.devices import by_device
from bridge.analyze.concurrency.exposure import exposed

__all__ = ["by_collective", "by_device", "exposed"]

"""Where calls run and what times them: the host's clock, or CUDA events of PyTorch's or of cuda-python's.

The invariant: what is asked of a device is `protocol.Device`, whichever it is.
"""

from __future__ import annotations

from bridge.bench.devices.chosen import device
from bridge.bench.devices.protocol import Call, Device, Label, Spans

__all__ = ["Call", "Device", "Label", "Spans", "device"]

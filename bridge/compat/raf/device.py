"""RAF's devices: `Device("cuda")`, `cuda(0)`, `cpu()`."""

from __future__ import annotations

import re
from dataclasses import dataclass

DEVICE = re.compile(r"(cpu|cuda|gpu)\D*(\d*)\D*")


@dataclass(frozen=True)
class Device:
    """A device, by its kind and number; its text is that of RAF: ``cuda(0)``."""

    device_type: str
    device_id: int = 0

    def __post_init__(self) -> None:
        """Split a text such as "cuda(1)"; raises ValueError for what is no device."""
        match = DEVICE.fullmatch(str(self.device_type).lower())
        if match is None:
            raise ValueError(f"{self.device_type!r} is no device such as cpu or cuda(0)")
        kind, number = match.groups()
        object.__setattr__(self, "device_type", "cuda" if kind == "gpu" else kind)
        object.__setattr__(self, "device_id", int(number or self.device_id))

    def __str__(self) -> str:
        return f"{self.device_type}({self.device_id})"


def cpu(device_id: int = 0) -> Device:
    """Return the CPU."""
    return Device("cpu", device_id)


def cuda(device_id: int = 0) -> Device:
    """Return a GPU."""
    return Device("cuda", device_id)

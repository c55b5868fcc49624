"""A GPU as a data sheet has it, and what it can do at most.

The invariant: a peak is dense and of one dtype; what is not known is left out, never guessed from another dtype's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

DTYPES = ("fp64", "fp64_tensor", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
TENSOR = {"fp64": "fp64_tensor"}  # the faster of two ways to compute in one dtype


@dataclass(frozen=True)
class Peaks:
    """TFLOP/s (10**12 per second) by dtype, GB/s (10**9), and where they are from; a bandwidth of 0 is not known."""

    tflops: Mapping[str, float] = field(default_factory=dict)
    gb_per_s: float = 0.0
    source: str = ""

    def of(self, dtype: str) -> float | None:
        """Return the most TFLOP/s in a dtype (of `DTYPES`), by Tensor Cores where they can; None if not known."""
        return self.tflops.get(TENSOR.get(dtype, dtype), self.tflops.get(dtype))


@dataclass(frozen=True)
class Gpu:
    """One entry of a data file; ``names`` may hold ``*``, and stand without "NVIDIA "."""

    names: tuple[str, ...]
    peaks: Peaks
    sms: int = 0
    clock_mhz: float = 0.0

    def is_called(self, name: str) -> bool:
        """Tell whether this is the GPU of that name."""
        own = name.removeprefix("NVIDIA ").strip()
        return any(fnmatchcase(own, pattern.removeprefix("NVIDIA ")) for pattern in self.names)

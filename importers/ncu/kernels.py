"""What a file of Nsight Compute says of one kernel, before it becomes frames."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isnan
from typing import NamedTuple

from importers.frames import KERNEL, MISSING

DEFAULT_DOMAIN = "<default domain>"
DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
LARGEST = 1 << 62  # what is beyond is damaged: sums stay within 64 bits
LONGEST = 1 << 50  # ns, 13 days of one kernel: the times of thousands add up within 64 bits
NO_EXTENT = (MISSING, MISSING, MISSING)


class Open(NamedTuple):
    """An NVTX range that was open when a kernel was launched; ``id`` only of start/end ranges."""

    domain: str
    name: str
    payload: int = MISSING
    id: str = ""


class Value(NamedTuple):
    """A metric in its base unit: a number, NaN for a text; of an integer that no float holds also the digits."""

    number: float
    unit: str
    text: str = ""


class Rule(NamedTuple):
    """What a rule of Nsight Compute says; ``speedup`` is its estimate in per cent, -1 for none.

    ``kind`` is OPT (what may help), WRN or INF, ``scope`` global (of the kernel's time) or local (of a unit).
    """

    section: str
    rule: str
    kind: str
    text: str
    scope: str = ""
    speedup: float = -1.0


@dataclass
class Kernel:
    """A kernel as profiled: ``pushed`` are the push/pop ranges outermost first, ``started`` start/end ranges."""

    name: str
    full_name: str
    mangled: str = ""
    kind: str = KERNEL
    process: int = 0
    program: str = ""
    thread: int = 1
    device: int = MISSING
    context: int = MISSING
    stream: int = MISSING
    grid: tuple[int, ...] = NO_EXTENT
    block: tuple[int, ...] = NO_EXTENT
    pushed: tuple[Open, ...] = ()
    started: tuple[Open, ...] = ()
    metrics: dict[str, Value] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)

    def whole(self, *names: str) -> int:
        """Return the first of these metrics that there is, as an integer; -1 for none."""
        for name in names:
            value = self.metrics.get(name)
            if value is not None and not isnan(value.number):
                return round(value.number) if abs(value.number) < LARGEST else MISSING
        return MISSING

    @property
    def duration(self) -> int:
        """The time on the GPU in ns, -1 where it was not collected, or cannot be."""
        found = self.whole(*DURATION)
        return found if 0 <= found < LONGEST else MISSING

"""`Metrics`: tables of the metrics of kernels and of the messages of rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import NamedTuple

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Floats, Ints
from bridge.importers.frames import KERNEL, Names

# -- Kernels


DEFAULT_DOMAIN = "<default domain>"
DURATION = ("gpu__time_duration.sum", "gpu__time_duration.avg", "Duration")
MAX_INTEGER = 1 << 62  # larger values are damaged; sums fit into 64 bits
MAX_DURATION_NS = 1 << 50  # 13 days; sums over thousands of kernels fit into 64 bits
NO_EXTENT = (MISSING, MISSING, MISSING)


class OpenRange(NamedTuple):
    """An NVTX range that was open at a kernel's launch; only start/end ranges have an ``id``."""

    domain: str
    name: str
    payload: int = MISSING
    id: str = ""


class Value(NamedTuple):
    """A metric in its base unit.

    ``number`` is NaN for a text. ``text`` holds a text, or the digits of an integer that no float
    holds.
    """

    number: float
    unit: str
    text: str = ""


class Rule(NamedTuple):
    """A message of a rule of Nsight Compute.

    ``kind`` is OPT (an optimisation), WRN or INF. ``speedup`` is its estimate in per cent, -1 for
    none; ``scope`` is global (of the kernel's time) or local (of a unit).
    """

    section: str
    rule: str
    kind: str
    text: str
    scope: str = ""
    speedup: float = -1.0


@dataclass
class Kernel:
    """A profiled kernel.

    ``pushed`` are the push/pop ranges, outermost first; ``started`` are the start/end ranges.
    """

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
    pushed: tuple[OpenRange, ...] = ()
    started: tuple[OpenRange, ...] = ()
    metrics: dict[str, Value] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)

    def whole(self, *names: str) -> int:
        """Return the first of these metrics that the kernel has, as an integer; -1 for none."""
        for name in names:
            value = self.metrics.get(name)
            if value is not None and not isnan(value.number):
                return round(value.number) if abs(value.number) < MAX_INTEGER else MISSING
        return MISSING

    @property
    def duration(self) -> int:
        """The time on the GPU in ns, -1 if it was not collected or is invalid."""
        result = self.whole(*DURATION)
        return result if 0 <= result < MAX_DURATION_NS else MISSING


# -- Metrics


class KernelMetrics(frames.Frame):
    """The metrics of kernels, in base units: ns, byte, hz, byte/s, %.

    ``kernel`` is its number. ``value`` is NaN for a text; ``text`` is '' for a number that a float
    holds.
    """

    kernel: Ints
    metric: Names
    unit: Names
    value: Floats
    text: Names


class RuleMessages(frames.Frame):
    """The messages of rules about kernels.

    ``kind`` is OPT, WRN or INF, ``scope`` global, local or ''; ``speedup`` is in per cent, -1 for
    none.
    """

    kernel: Ints
    section: Names
    rule: Names
    kind: Names
    text: Names
    scope: Names
    speedup: Floats


def _no_rows() -> Ints:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Metrics:
    """The metrics of kernels and the messages of rules.

    ``of`` is the number of the measured kernel of each activity, -1 for none; ``sure`` is a code
    for the reliability of the match, if kernels were matched to another report. Both are empty
    without metrics. ``source`` names the reports of the metrics, if they are not those of the
    capture.
    """

    table: KernelMetrics = field(default_factory=KernelMetrics)
    rules: RuleMessages = field(default_factory=RuleMessages)
    of: Ints = field(default_factory=_no_rows)
    sure: Ints = field(default_factory=_no_rows)
    source: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.table)

    @property
    def kernels(self) -> int:
        """The number of measured kernels, also those without metrics or an activity."""
        tables = (self.table, self.rules)
        last = max(int(table.kernel.max(initial=MISSING)) for table in tables)
        return max(last, int(self.of.max(initial=MISSING))) + 1


def metrics_of(kernels: Sequence[Kernel]) -> Metrics:
    """Return the metrics of kernels; a kernel's index is the row of its activity."""
    return Metrics(_metric_table(kernels), _rule_table(kernels), np.arange(len(kernels)))


def _metric_table(kernels: Sequence[Kernel]) -> KernelMetrics:
    rows = [
        (i, name, *value)
        for i, profiled in enumerate(kernels)
        for name, value in profiled.metrics.items()
    ]
    kernel, name, number, unit, text = zip(*rows, strict=True) if rows else ((),) * 5
    return KernelMetrics(
        kernel=np.array(kernel, np.int64),
        metric=Names.of(name),
        unit=Names.of(unit),
        value=np.array(number, np.float64),
        text=Names.of(text),
    )


def _rule_table(kernels: Sequence[Kernel]) -> RuleMessages:
    lines = [(i, rule) for i, kernel in enumerate(kernels) for rule in kernel.rules]
    texts = ("section", "rule", "kind", "text", "scope")
    return RuleMessages(
        {c: Names.of(getattr(rule, c) for _, rule in lines) for c in texts},
        kernel=np.array([i for i, _ in lines], np.int64),
        speedup=np.array([rule.speedup for _, rule in lines], np.float64),
    )


def concat(parts: Sequence[Metrics], activities: Sequence[int]) -> Metrics:
    """Return the metrics of several reports; ``activities`` counts their activities."""
    if not any(len(part.of) for part in parts):
        return Metrics()
    first = np.cumsum([0, *(part.kernels for part in parts)]).tolist()
    numbered = [
        (
            part.table.replace(kernel=part.table.kernel + offset),
            part.rules.replace(kernel=part.rules.kernel + offset),
        )
        for part, offset in zip(parts, first, strict=False)
    ]
    return Metrics(
        KernelMetrics.concat([table for table, _ in numbered]),
        RuleMessages.concat([rules for _, rules in numbered]),
        np.concatenate(
            [
                _shifted(part.of, offset, count)
                for part, offset, count in zip(parts, first, activities, strict=False)
            ]
        ),
    )


def _shifted(numbers: Ints, offset: int, rows: int) -> Ints:
    if not len(numbers):
        return np.full(rows, MISSING)
    return np.where(numbers == MISSING, MISSING, numbers + offset)

"""How GPUs were used: how busy each was, and the causes of the time in which it was idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bridge.analyze.core import no_timeline
from bridge.analyze.core.device_work import NoDeviceWork, hints
from bridge.analyze.core.folding import folded_ops
from bridge.analyze.run.causes.gaps import WORDS, find_causes
from bridge.analyze.run.concurrency.overlap import gpu_use
from bridge.join.attributed import AttributedCapture

MIN_IDLE = 0.05  # share of the span from which on idle time has a main cause
MIN_IN_PLACE = 0.5  # share of a cause's time from which on an op is its main place
BUSY = 0.9  # share of the span from which on a GPU is busy


@dataclass(frozen=True)
class GpuUse:
    """A GPU on which anything ran; times in ns.

    ``busy_ns`` is the union of its work, ``span_ns`` the time from its first work to its last.
    """

    device: str
    busy_ns: int
    span_ns: int

    @property
    def share(self) -> float:
        """The part of the span in which the GPU was busy, from 0 to 1."""
        return self.busy_ns / self.span_ns if self.span_ns else 0.0


@dataclass(frozen=True)
class IdleCause:
    """A cause of idle time over all GPUs, the op in which it was, '' for none, and its time in ns."""

    cause: str
    op: str
    idle_ns: int


@dataclass(frozen=True)
class Use:
    """How GPUs were used: each of them, and the causes of their idle time in each op.

    Where next to nothing ran on them, ``nothing`` says so and why, and no GPU is listed. ``hints`` are lines in which
    the program itself says what makes the GPU slow. ``main_ops`` are those of `places`, None if ``idle`` tells them.
    """

    gpus: tuple[GpuUse, ...] = ()
    idle: tuple[IdleCause, ...] = ()
    nothing: NoDeviceWork | None = None
    hints: tuple[str, ...] = ()
    main_ops: Mapping[str, str] | None = None

    @property
    def span_ns(self) -> int:
        """The sum of the spans of all GPUs in ns."""
        return sum(gpu.span_ns for gpu in self.gpus)

    @property
    def busy_ns(self) -> int:
        """The sum of the busy times of all GPUs in ns."""
        return sum(gpu.busy_ns for gpu in self.gpus)

    @property
    def share(self) -> float:
        """The part of the spans of all GPUs in which they were busy, from 0 to 1."""
        return self.busy_ns / self.span_ns if self.span_ns else 0.0

    @property
    def idle_ns(self) -> int:
        """The idle time of all GPUs between their first work and their last, in ns."""
        return self.span_ns - self.busy_ns

    @property
    def caused_ns(self) -> int:
        """The time of all causes in ns: `idle_ns`, with gaps before the first work of a part of the time."""
        return sum(part.idle_ns for part in self.idle)

    @property
    def causes(self) -> tuple[IdleCause, ...]:
        """Each cause of idle time, the largest first, with the op that has most of it."""
        total: Counter[str] = Counter()
        largest: dict[str, IdleCause] = {}
        for part in sorted(self.idle, key=lambda part: (-part.idle_ns, part.op)):
            total[part.cause] += part.idle_ns
            largest.setdefault(part.cause, part)
        return tuple(
            replace(largest[cause], idle_ns=time)
            for cause, time in sorted(total.items(), key=lambda item: (-item[1], item[0]))
        )

    @property
    def places(self) -> Mapping[str, str]:
        """The op that has at least half of a cause's time, by cause; ops that differ in a number are one."""
        if self.main_ops is not None:
            return self.main_ops
        ops = list(dict.fromkeys(part.op for part in self.idle))
        shown = dict(zip(ops, folded_ops(ops), strict=True))
        total: Counter[str] = Counter()
        time: Counter[tuple[str, str]] = Counter()
        for part in self.idle:
            total[part.cause] += part.idle_ns
            time[part.cause, shown[part.op]] += part.idle_ns
        result: dict[str, str] = {}
        for (cause, op), ns in sorted(time.items(), key=lambda item: (-item[1], item[0])):
            if ns >= MIN_IN_PLACE * total[cause]:
                result.setdefault(cause, op)
        return {cause: op for cause, op in result.items() if op}

    @property
    def main_cause(self) -> IdleCause | None:
        """The largest cause of idle time; None if the GPUs were hardly idle."""
        is_idle = self.caused_ns >= MIN_IDLE * self.span_ns
        return next(iter(self.causes), None) if is_idle else None

    @property
    def is_busy(self) -> bool:
        """Whether every GPU was busy nearly all of its span."""
        return all(gpu.share >= BUSY for gpu in self.gpus)

    @property
    def by_share(self) -> tuple[GpuUse, ...]:
        """The GPUs, the least busy first."""
        return tuple(sorted(self.gpus, key=lambda gpu: gpu.share))

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Use:
        """Return the use of the GPUs of a capture; without a timeline it is unknown."""
        if nothing := NoDeviceWork.of(attributed):
            return cls(nothing=nothing)
        gpus, said = used_gpus(attributed), hints(attributed.capture)
        return cls(gpus, _idle_causes(attributed), hints=said) if gpus else cls()

    @classmethod
    def merged(cls, uses: Sequence[Use], files: Sequence[str]) -> Use:
        """Return the use of the GPUs of several reports; the names of GPUs get those of the files."""
        gpus = (
            replace(gpu, device=f"{gpu.device} in {file}")
            for use, file in zip(uses, files, strict=True)
            for gpu in use.gpus
        )
        time: Counter[tuple[str, str]] = Counter()
        for part in (part for use in uses for part in use.idle):
            time[part.cause, part.op] += part.idle_ns
        return cls(
            tuple(gpus),
            tuple(IdleCause(*place, ns) for place, ns in time.items()),
            hints=tuple(dict.fromkeys(line for use in uses for line in use.hints)),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the use as values that JSON can hold; `from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Use:
        """Return the use that `as_dict` returned."""
        return cls(
            tuple(GpuUse(**gpu) for gpu in values["gpus"]),
            tuple(IdleCause(**cause) for cause in values["idle"]),
            NoDeviceWork.from_dict(values["nothing"]) if values.get("nothing") else None,
            tuple(values.get("hints", ())),
            values.get("main_ops"),
        )


def used_gpus(attributed: AttributedCapture) -> tuple[GpuUse, ...]:
    """Return the GPUs on which anything ran; without a timeline none is known."""
    if not no_timeline.has_timeline(attributed.capture) or not attributed.counted.any():
        return ()
    table = gpu_use(attributed)
    columns = (table[c].tolist() for c in ("device", "busy_ns", "span_ns"))
    return tuple(GpuUse(*row) for row in zip(*columns, strict=True))


def _idle_causes(attributed: AttributedCapture) -> tuple[IdleCause, ...]:
    """Return the time of each cause of idleness in each op, over gaps of any length, as `by_idle` counts them."""
    idle = find_causes(attributed)
    ops = [*attributed.ops, ""]
    time = np.zeros((len(WORDS), len(ops)), np.int64)
    np.add.at(time, (idle.cause, idle.op), idle.length)
    cause, op = np.nonzero(time)
    return tuple(
        IdleCause(WORDS[c], ops[o], ns)
        for c, o, ns in zip(cause.tolist(), op.tolist(), time[cause, op].tolist(), strict=True)
    )

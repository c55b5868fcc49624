"""How GPUs were used: how busy each was, and the causes of the time in which it was idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bridge.analyze.core.device_work import NoDeviceWork, hints
from bridge.analyze.core.folding import folded_ops
from bridge.analyze.run.account import GpuAccount, Run, runs
from bridge.importers.records import record
from bridge.join.attributed import AttributedCapture

MIN_IDLE = 0.05  # share of the run from which on idle time has a main cause
MIN_IN_PLACE = 0.5  # share of a cause's time from which on an op is its main place
BUSY = 0.9  # share of the run from which on a GPU is busy


@record
class IdleCause:
    """A cause of idle time over all GPUs, the op in which it was, '' for none, and its time in ns."""

    cause: str
    op: str
    idle_ns: int


@dataclass(frozen=True)
class Use:
    """How GPUs were used: the account of each run, and the causes of the idle time of its GPUs in each op.

    Where next to nothing ran on them, ``nothing`` says so and why, and no idle time is listed. ``hints`` are lines
    in which the program itself says what makes the GPU slow. ``main_ops`` are those of `places`, None if ``idle``
    tells them.
    """

    runs: tuple[Run, ...] = ()
    idle: tuple[IdleCause, ...] = ()
    nothing: NoDeviceWork | None = None
    hints: tuple[str, ...] = ()
    main_ops: Mapping[str, str] | None = None

    @property
    def gpus(self) -> tuple[GpuAccount, ...]:
        """The GPUs with counted work, of all runs."""
        return tuple(gpu for run in self.runs for gpu in run.gpus)

    @property
    def length_ns(self) -> int:
        """The sum of the lengths of the accounts of all GPUs in ns."""
        return sum(gpu.length_ns for gpu in self.gpus)

    @property
    def busy_ns(self) -> int:
        """The sum of the busy times of all GPUs in ns."""
        return sum(gpu.busy_ns for gpu in self.gpus)

    @property
    def span_ns(self) -> int:
        """The sum over all GPUs of the time from the first counted work to the last, in ns."""
        return sum(gpu.span_ns for gpu in self.gpus)

    @property
    def idle_ns(self) -> int:
        """The sum of the idle times of all GPUs in ns, which all causes add up to."""
        return sum(gpu.idle_ns for gpu in self.gpus)

    @property
    def share(self) -> float:
        """The part of the accounts of all GPUs in which they were busy, from 0 to 1."""
        return self.busy_ns / self.length_ns if self.length_ns else 0.0

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
        is_idle = self.idle_ns >= MIN_IDLE * self.length_ns
        return next(iter(self.causes), None) if is_idle else None

    @property
    def is_busy(self) -> bool:
        """Whether every GPU was busy nearly all of the run."""
        return all(gpu.share >= BUSY for gpu in self.gpus)

    @property
    def by_share(self) -> tuple[GpuAccount, ...]:
        """The GPUs, the least busy first."""
        return tuple(sorted(self.gpus, key=lambda gpu: gpu.share))

    @classmethod
    def of(cls, attributed: AttributedCapture, *, causes: bool = True) -> Use:
        """Return the use of the GPUs of a capture, with or without ``causes``; without a timeline it is unknown."""
        if nothing := no_device_work(attributed):
            return cls(runs(attributed), nothing=nothing)
        use = cls(runs(attributed), hints=hints(attributed.capture))
        return replace(use, idle=_idle_causes(attributed)) if use.gpus and causes else use

    @classmethod
    def merged(cls, uses: Sequence[Use], files: Sequence[str]) -> Use:
        """Return the use of the GPUs of several reports; the names of GPUs get those of the files."""
        named = (
            replace(run, gpus=tuple(replace(g, device=f"{g.device} in {file}") for g in run.gpus))
            for use, file in zip(uses, files, strict=True)
            for run in use.runs
        )
        time: Counter[tuple[str, str]] = Counter()
        for part in (part for use in uses for part in use.idle):
            time[part.cause, part.op] += part.idle_ns
        return cls(
            tuple(named),
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
            # An older version stored no runs.
            runs=tuple(Run.from_dict(run) for run in values.get("runs", ())),
            idle=tuple(IdleCause(**cause) for cause in values["idle"]),
            nothing=NoDeviceWork.from_dict(values["nothing"]) if values.get("nothing") else None,
            hints=tuple(values.get("hints", ())),
            main_ops=values.get("main_ops"),
        )


def no_device_work(attributed: AttributedCapture) -> NoDeviceWork | None:
    """Return what is known of the reason why next to nothing ran in a run; None for a capture with work."""
    found = NoDeviceWork.of(attributed)
    return found and replace(found, run_ns=sum(run.length_ns for run in runs(attributed)))


def _idle_causes(attributed: AttributedCapture) -> tuple[IdleCause, ...]:
    """Return the time of each cause of idleness in each op, which add up to the idle time of the account."""
    from bridge.analyze.run.causes.gaps import idle_gaps
    from bridge.analyze.run.idle.causes import (  # the busy share needs no causes
        WORDS,
        times_of_causes,
    )

    ops, time = [*attributed.ops, ""], times_of_causes(attributed, idle_gaps(attributed))
    cause, op = np.nonzero(time)
    return tuple(
        IdleCause(WORDS[c], ops[o], ns)
        for c, o, ns in zip(cause.tolist(), op.tolist(), time[cause, op].tolist(), strict=True)
    )

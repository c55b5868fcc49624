"""Summarise a report in a few facts: how busy the GPUs were, why they were idle, and what to do.

The facts are those of other tables: `--by device`, `--by idle`, `--by step`, `--by op`, advice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from bridge.analyze.advice import AdviceReport, advise
from bridge.analyze.causes.gaps import WORDS, causes_in_span
from bridge.analyze.concurrency.overlap import gpu_use
from bridge.analyze.groups import sums
from bridge.analyze.metrics import no_timeline
from bridge.analyze.steps import by_step, paces
from bridge.analyze.totals import Totals, graph_totals
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture

LARGEST_OPS = 3
MIN_IDLE = 0.05  # share of the span from which on idle time has a main cause
MAX_JUDGED = 200_000  # activities of a report whose advice a summary waits for
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
class Iteration:
    """The iterations of one process; times in ns as `bridge.analyze.steps.Pace` defines them."""

    pid: int
    steps: int
    iteration_ns: float
    median_ns: float
    between_ns: float
    loading_ns: float

    def as_dict(self) -> dict[str, float]:
        """Return the fields by name; times in whole ns."""
        return {name: round(value) for name, value in asdict(self).items()}


@dataclass(frozen=True)
class OpTime:
    """An op and the GPU time of its own work in ns."""

    op: str
    gpu_self_ns: int


@dataclass(frozen=True)
class FirstAdvice:
    """The advice with the largest saving: name and title of its rule, and what to do."""

    rule: str
    title: str
    remedy: str


@dataclass(frozen=True)
class Use:
    """How GPUs were used: each of them, and the causes of their idle time in each op."""

    gpus: tuple[GpuUse, ...] = ()
    idle: tuple[IdleCause, ...] = ()

    @property
    def span_ns(self) -> int:
        """The sum of the spans of all GPUs in ns."""
        return sum(gpu.span_ns for gpu in self.gpus)

    @property
    def idle_ns(self) -> int:
        """The idle time of all GPUs between their first work and their last, in ns."""
        return self.span_ns - sum(gpu.busy_ns for gpu in self.gpus)

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
    def main_cause(self) -> IdleCause | None:
        """The largest cause of idle time; None if the GPUs were hardly idle."""
        is_idle = self.idle_ns >= MIN_IDLE * self.span_ns
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
        if not no_timeline.has_timeline(attributed.capture) or not attributed.counted.any():
            return cls()
        table = gpu_use(attributed)
        columns = (table[c].tolist() for c in ("device", "busy_ns", "span_ns"))
        return cls(
            tuple(GpuUse(*row) for row in zip(*columns, strict=True)),
            _idle_causes(attributed),
        )

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
        return cls(tuple(gpus), tuple(IdleCause(*place, ns) for place, ns in time.items()))

    def as_dict(self) -> dict[str, Any]:
        """Return the use as values that JSON can hold; `from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Use:
        """Return the use that `as_dict` returned."""
        return cls(
            tuple(GpuUse(**gpu) for gpu in values["gpus"]),
            tuple(IdleCause(**cause) for cause in values["idle"]),
        )


@dataclass(frozen=True)
class Summary:
    """The facts that a user needs first; parts that a report cannot tell are empty.

    ``ops`` are the three with most GPU time of their own. ``advice`` is None if no rule applies, or
    if the rules were not tried (``is_judged``). ``attributed_ns`` is the part of ``gpu_ns`` that
    belongs to ops, None if it is not known. ``graphs`` is the accounting of the CUDA graphs that were
    recorded as a whole, None if it is not known.
    """

    use: Use
    iterations: tuple[Iteration, ...]
    ops: tuple[OpTime, ...]
    gpu_ns: int
    ranges: int
    advice: FirstAdvice | None
    is_judged: bool = True
    attributed_ns: int | None = None
    graphs: Totals | None = None

    @classmethod
    def of(cls, attributed: AttributedCapture, advised: AdviceReport | None = None) -> Summary:
        """Return the summary of a capture; ``advised`` is its advice if it was computed before.

        The advice on a large report takes seconds: it is left to `bridge advise`.
        """
        is_judged = advised is not None or len(attributed.capture.activities) <= MAX_JUDGED
        if is_judged:
            advised = advised or advise(attributed)
        accounted = attributed.accounted
        return cls(
            Use.of(attributed),
            _iterations(attributed),
            _largest_ops(attributed),
            int(attributed.duration[accounted].sum()),
            len(attributed.capture.ranges),
            _first_advice(advised) if advised else None,
            is_judged,
            int(attributed.duration[accounted & (attributed.activity_op != NONE)].sum()),
            graph_totals(attributed),
        )

    @property
    def by_iteration(self) -> tuple[Iteration, ...]:
        """The processes with iterations, the shortest iteration first."""
        known = (one for one in self.iterations if one.iteration_ns)
        return tuple(sorted(known, key=lambda one: one.iteration_ns))

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as values that JSON can hold; `from_dict` reads them back.

        Of the ops in which GPUs were idle, those with most of a cause are kept.
        """
        return asdict(replace(self, use=replace(self.use, idle=self.use.causes)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Summary:
        """Return the summary that `as_dict` returned."""
        advice = values["advice"]
        return cls(
            Use.from_dict(values["use"]),
            tuple(Iteration(**iteration) for iteration in values["iterations"]),
            tuple(OpTime(**op) for op in values["ops"]),
            values["gpu_ns"],
            values["ranges"],
            FirstAdvice(**advice) if advice else None,
            values["is_judged"],
            values.get("attributed_ns"),
            values.get("graphs"),
        )


def _idle_causes(attributed: AttributedCapture) -> tuple[IdleCause, ...]:
    """Return the time of each cause of idleness in each op, over gaps of any length."""
    idle = causes_in_span(attributed)
    ops = [*attributed.ops, ""]
    time = np.zeros((len(WORDS), len(ops)), np.int64)
    np.add.at(time, (idle.cause, idle.op), idle.length)
    cause, op = np.nonzero(time)
    return tuple(
        IdleCause(WORDS[c], ops[o], ns)
        for c, o, ns in zip(cause.tolist(), op.tolist(), time[cause, op].tolist(), strict=True)
    )


def _iterations(attributed: AttributedCapture) -> tuple[Iteration, ...]:
    if not len(attributed.iterations):
        return ()
    return tuple(
        Iteration(
            int(str(pace.home[0])),
            pace.steps,
            pace.iteration_ns,
            pace.median_ns,
            pace.between_ns,
            pace.loading_ns,
        )
        for pace in paces(by_step(attributed))
    )


def _largest_ops(attributed: AttributedCapture) -> tuple[OpTime, ...]:
    op, counted = attributed.activity_op, attributed.counted
    rows = np.flatnonzero(counted & (op != NONE))
    time = sums(op[rows], attributed.duration[rows], len(attributed.ops))
    largest = np.argsort(-time, kind="stable")[:LARGEST_OPS]
    return tuple(OpTime(attributed.ops[i], int(time[i])) for i in largest.tolist() if time[i])


def _first_advice(advised: AdviceReport) -> FirstAdvice | None:
    if not advised.advice:
        return None
    rule = advised.advice[0].rule
    return FirstAdvice(rule.name, rule.title, rule.remedy)

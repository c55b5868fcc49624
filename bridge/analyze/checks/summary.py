"""Summarise a report in a few facts: how busy the GPUs were, why they were idle, and what to do.

The facts are those of other tables: `--by device`, `--by idle`, `--by step`, `--by op`, advice.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from bridge.analyze.checks.advice import AdviceReport, advise, failed, no_work
from bridge.analyze.checks.failures import Failure, as_dicts, failures, from_dicts, hides_causes
from bridge.analyze.core.groups import sums
from bridge.analyze.core.totals import Totals, graph_totals
from bridge.analyze.run.gpu_use import Use
from bridge.analyze.run.steps import Pace, by_step, paces
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture

LARGEST_OPS = 3
MAX_JUDGED = 200_000  # activities of a report whose advice a summary waits for


@dataclass(frozen=True)
class Iteration:
    """The iterations of one process, with times in ns; see `bridge.analyze.run.steps.Pace`."""

    pid: int
    steps: int
    iteration_ns: float
    median_ns: float
    between_ns: float
    loading_ns: float
    found_by: str = ""

    def as_dict(self) -> dict[str, float | str]:
        """Return the fields by name; times in whole ns."""
        return {n: v if isinstance(v, str) else round(v) for n, v in asdict(self).items()}


@dataclass(frozen=True)
class OpTime:
    """An op and the GPU time of its own work in ns."""

    op: str
    gpu_self_ns: int


@dataclass(frozen=True)
class FirstAdvice:
    """The first advice: name, title and sentence of its rule, the figures of both texts, and what to do."""

    rule: str
    title: str
    remedy: str
    text: str = ""
    figures: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Summary:
    """The facts that a user needs first; parts that a report cannot tell are empty.

    ``ops`` are the three with most GPU time of their own. ``advice`` is None if no rule applies, or
    if the rules were not tried (``is_judged``). ``attributed_ns`` is the part of ``gpu_ns`` that
    belongs to ops, None if it is not known. ``graphs`` is the accounting of the CUDA graphs that were
    recorded as a whole, None if it is not known. ``failures`` are what is said before all of this.
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
    failures: tuple[Failure, ...] = ()

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
            use=_use(attributed),
            iterations=_iterations(attributed),
            ops=_largest_ops(attributed),
            gpu_ns=int(attributed.duration[accounted].sum()),
            ranges=len(attributed.capture.ranges),
            advice=_first_advice(advised) if advised else None,
            is_judged=is_judged,
            attributed_ns=int(
                attributed.duration[accounted & (attributed.activity_op != NONE)].sum()
            ),
            graphs=graph_totals(attributed),
            failures=failures(attributed),
        )

    @property
    def by_iteration(self) -> tuple[Iteration, ...]:
        """The processes with iterations, the shortest iteration first."""
        known = (one for one in self.iterations if one.iteration_ns)
        return tuple(sorted(known, key=lambda one: one.iteration_ns))

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as values that JSON can hold; `from_dict` reads them back.

        Of the ops in which GPUs were idle, those with most of a cause are kept, and the main places.
        """
        use = replace(self.use, idle=self.use.causes, main_ops=self.use.places)
        return {**asdict(replace(self, use=use)), "failures": as_dicts(self.failures)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Summary:
        """Return the summary that `as_dict` returned."""
        advice = values["advice"]
        return cls(
            use=Use.from_dict({"main_ops": {}, **values["use"]}),  # an older one kept no places
            iterations=tuple(Iteration(**iteration) for iteration in values["iterations"]),
            ops=tuple(OpTime(**op) for op in values["ops"]),
            gpu_ns=values["gpu_ns"],
            ranges=values["ranges"],
            advice=FirstAdvice(**advice) if advice else None,
            is_judged=values["is_judged"],
            attributed_ns=values.get("attributed_ns"),
            graphs=values.get("graphs"),
            failures=from_dicts(values.get("failures", ())),
        )


def _use(attributed: AttributedCapture) -> Use:
    """Return the use of the GPUs; without causes of idle time where failures hide them."""
    use = Use.of(attributed)
    return replace(use, idle=()) if hides_causes(failures(attributed)) else use


def _iterations(attributed: AttributedCapture) -> tuple[Iteration, ...]:
    if not len(attributed.iterations):
        return ()
    largest: dict[tuple[Hashable, ...], Pace] = {}
    for pace in paces(
        by_step(attributed)
    ):  # of several loops of a process, the one that takes longest
        home = tuple(part for part in pace.home if part != pace.loop)
        if home not in largest or _length(pace) > _length(largest[home]):
            largest[home] = pace
    return tuple(
        Iteration(
            pid=int(str(pace.home[0])),
            steps=pace.steps,
            iteration_ns=pace.iteration_ns,
            median_ns=pace.median_ns,
            between_ns=pace.between_ns,
            loading_ns=pace.loading_ns,
            found_by=pace.found_by,
        )
        for pace in largest.values()
    )


def _length(pace: Pace) -> float:
    return pace.steps * pace.mean_ns


def _largest_ops(attributed: AttributedCapture) -> tuple[OpTime, ...]:
    op, counted = attributed.activity_op, attributed.counted
    rows = np.flatnonzero(counted & (op != NONE))
    time = sums(op[rows], attributed.duration[rows], len(attributed.ops))
    largest = np.argsort(-time, kind="stable")[:LARGEST_OPS]
    return tuple(OpTime(attributed.ops[i], int(time[i])) for i in largest.tolist() if time[i])


def _first_advice(advised: AdviceReport) -> FirstAdvice | None:
    told = (*no_work.ALONE, failed.NAME)  # among failures, or by the use of GPUs
    first = next((one for one in advised.advice if one.rule.name not in told), None)
    if first is None:
        return None
    rule, figures = first.rule, dict(first.finding.figures)
    return FirstAdvice(rule.name, rule.title, first.remedy, rule.text, figures)

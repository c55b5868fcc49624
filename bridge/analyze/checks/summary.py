"""Summarise a report in a few facts: how busy the GPUs were, why they were idle, and what to do.

The facts are those of other tables: `--by device`, `--by idle`, `--by step`, `--by op`, advice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from bridge.analyze.checks.advice import (
    MIN_SHARE,
    RULES,
    AdviceReport,
    RuleCheck,
    advise,
    failed,
    no_work,
)
from bridge.analyze.checks.costs import Costs
from bridge.analyze.checks.failures import Failure, as_dicts, failures, from_dicts, hides_causes
from bridge.analyze.core import no_timeline
from bridge.analyze.core.device_work import rates
from bridge.analyze.core.groups import sums
from bridge.analyze.core.totals import Totals, graph_totals
from bridge.analyze.cost.flops import Costs as FlopCosts
from bridge.analyze.cost.flops import step_costs
from bridge.analyze.run.gpu_use import Use
from bridge.analyze.run.parts import Parts, is_warm_up, iteration_times
from bridge.analyze.run.ranks.table import several_ranks
from bridge.analyze.run.steps import by_step, paces
from bridge.analyze.tables.devices import by_device
from bridge.importers.capture import Facts
from bridge.importers.records import record
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture

LARGEST_OPS = 3
MOST_COMPUTE = 0.5  # of the busy time of a GPU: of less, how full its kernels are says little
MAX_JUDGED = 200_000  # activities of a report whose advice a summary waits for


@record
class Iteration:
    """A loop of iterations, with times in ns; see `bridge.analyze.run.steps.Pace`.

    ``count`` is the number of iterations, as is ``steps``; ``pid`` is the first of the processes.
    """

    pid: int
    steps: int
    iteration_ns: float
    median_ns: float
    between_ns: float
    loading_ns: float
    found_by: str = ""
    count: int = 0
    warm_up: int = 0
    loop: str = ""
    host_ns: float = 0.0

    def as_dict(self) -> dict[str, float | str]:
        """Return the fields by name; times in whole ns."""
        return {n: v if isinstance(v, str) else round(v) for n, v in asdict(self).items()}


@record
class OpTime:
    """An op and the GPU time of its own work in ns."""

    op: str
    gpu_self_ns: int


@record
class FirstAdvice:
    """The first advice: name, title and sentence of its rule, the figures of both texts, and what to do.

    ``next_title`` is the title of the advice that follows, "" for none.
    """

    rule: str
    title: str
    remedy: str
    text: str = ""
    figures: Mapping[str, object] = field(default_factory=dict)
    next_title: str = ""


@dataclass(frozen=True)
class Summary:
    """The facts that a user needs first; parts that a report cannot tell are empty.

    ``ops`` are the three with most GPU time of their own. ``advice`` is None if no rule applies, or
    if the rules were not tried (``is_judged``). ``attributed_ns`` is the part of ``gpu_ns`` that
    belongs to ops, None if it is not known. ``graphs`` is the accounting of the CUDA graphs that were
    recorded as a whole, None if it is not known. ``no_iterations`` says why there are no iterations
    where something else repeats. ``failures`` are what is said before all of this. ``ranks`` and ``rank_totals``
    are the rows and totals of the table of ranks, if there are several.
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
    no_iterations: str = ""
    source: tuple[str, ...] = ()
    profiler: str = ""
    parts: Mapping[str, int] = field(default_factory=dict)
    costs: Costs | None = None
    filled: Mapping[str, float] = field(default_factory=dict)
    rates: tuple[str, ...] = ()
    mfu: float = -1.0
    failures: tuple[Failure, ...] = ()
    ranks: tuple[Mapping[str, Any], ...] = ()
    rank_totals: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        attributed: AttributedCapture,
        advised: AdviceReport | None = None,
        rules: Sequence[RuleCheck] = RULES,
    ) -> Summary:
        """Return the summary of a capture; ``advised`` is its advice by ``rules`` if it was computed before.

        The advice on a large report takes seconds: it is left to `bridge advise`.
        """
        is_judged = advised is not None or len(attributed.capture.activities) <= MAX_JUDGED
        if is_judged:
            advised = advised or advise(attributed, rules)
        accounted, parts = attributed.accounted, Parts.of_run(attributed)
        ranks = several_ranks(attributed)
        has_costs = parts is not None and not hides_causes(failures(attributed))
        # Before the causes of idle time, whose graph takes as much memory as all else.
        iterations, filled = _iterations(attributed), _filled(attributed)
        mfu = _mfu(attributed) if is_judged else -1.0
        return cls(
            use=_use(attributed),
            iterations=iterations,
            ops=_largest_ops(attributed),
            gpu_ns=int(attributed.duration[accounted].sum()),
            ranges=len(attributed.capture.ranges),
            advice=_first_advice(advised) if advised else None,
            is_judged=is_judged,
            attributed_ns=int(
                attributed.duration[accounted & (attributed.activity_op != NONE)].sum()
            ),
            graphs=graph_totals(attributed),
            no_iterations=attributed.why_no_iterations() if attributed.loops.loops else "",
            source=attributed.capture.source,
            profiler=profilers(attributed.capture.facts),
            parts=parts.lengths if parts else {},
            costs=Costs.of(attributed, parts) if parts and has_costs else None,
            filled=filled,
            failures=failures(attributed),
            rates=rates(attributed.capture),
            mfu=mfu,
            ranks=tuple(ranks.rows.records()) if ranks else (),
            rank_totals=ranks.totals if ranks else {},
        )

    @property
    def by_iteration(self) -> tuple[Iteration, ...]:
        """The loops whose iterations follow one another, the one that takes longest last."""
        known = (one for one in self.iterations if one.iteration_ns)
        return tuple(sorted(known, key=lambda one: one.iteration_ns * (one.count or one.steps)))

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
            no_iterations=values.get("no_iterations", ""),
            source=tuple(values.get("source", ())),
            profiler=values.get("profiler", ""),
            parts=values.get("parts", {}),
            costs=Costs.from_dict(values["costs"]) if values.get("costs") else None,
            filled=values.get("filled", {}),
            rates=tuple(values.get("rates", ())),
            mfu=values.get("mfu", -1.0),
            failures=from_dicts(values.get("failures", ())),
            ranks=tuple(values.get("ranks", ())),
            rank_totals=values.get("rank_totals", {}),
        )


def profilers(reports: Iterable[Facts]) -> str:
    """Return the products that wrote the reports, each once; Nsight Systems states its version alone."""
    products = (facts.product for facts in reports if facts.product)
    named = (f"Nsight Systems {name}" if name[0].isdigit() else name for name in products)
    return ", ".join(dict.fromkeys(named))


def _filled(attributed: AttributedCapture) -> dict[str, float]:
    """Return the part of the multiprocessors of each GPU that has work while kernels compute, -1 if unknown."""
    if not attributed.counted.any():
        return {}
    gpus = by_device(attributed)
    columns = ("device", "sm_efficiency", "span_ns", "compute_ns", "busy_ns")
    rows = zip(*(gpus[c].tolist() for c in columns), strict=True)
    return {
        name: float(share * span / computed)
        if share >= 0 and computed > MOST_COMPUTE * busy
        else -1.0
        for name, share, span, computed, busy in rows
    }


def _mfu(attributed: AttributedCapture) -> float:
    """Return the model FLOPs utilisation of the iterations of the longest loop, -1 if FLOPs or the peak are unknown."""
    times = iteration_times(attributed)
    if not times or not no_timeline.has_timeline(attributed.capture):
        return -1.0
    longest = max(range(len(times)), key=lambda loop: int(times[loop].samples.sum()))
    steps = attributed.iterations
    rows = np.flatnonzero((steps.loop == longest) & ~is_warm_up(attributed))
    wall = np.full(len(steps), round(times[longest].ns), np.int64)
    share = step_costs(attributed, wall, FlopCosts())["mfu"][rows]
    return float(np.median(share)) if len(share) and (share >= 0).all() else -1.0


def _use(attributed: AttributedCapture) -> Use:
    """Return the use of the GPUs; without causes of idle time where failures hide them."""
    use = Use.of(attributed)
    return replace(use, idle=()) if hides_causes(failures(attributed)) else use


def _iterations(attributed: AttributedCapture) -> tuple[Iteration, ...]:
    """Return the loops of iterations by time; with a selection, of their selected steps."""
    if not len(attributed.iterations):
        return ()
    return tuple(
        Iteration(
            pid=pace.pids[0],
            steps=pace.count,
            iteration_ns=pace.iteration_ns,
            median_ns=pace.median_ns,
            between_ns=pace.between_ns,
            loading_ns=pace.loading_ns,
            found_by=pace.found_by,
            count=pace.count,
            warm_up=pace.warm_up,
            loop=pace.loop,
            host_ns=pace.iteration.host_ns,
        )
        for pace in paces(by_step(attributed))
    )


def _largest_ops(attributed: AttributedCapture) -> tuple[OpTime, ...]:
    op, counted = attributed.activity_op, attributed.counted
    rows = np.flatnonzero(counted & (op != NONE))
    time = sums(op[rows], attributed.duration[rows], len(attributed.ops))
    largest = np.argsort(-time, kind="stable")[:LARGEST_OPS]
    return tuple(OpTime(attributed.ops[i], int(time[i])) for i in largest.tolist() if time[i])


PAID_ONCE = "paid-once"


def _first_advice(advised: AdviceReport) -> FirstAdvice | None:
    told = (*no_work.ALONE, failed.NAME)  # among failures, or by the use of GPUs
    others = [one for one in advised.advice if one.rule.name not in told]
    # What is paid once is among the costs: other advice says more.
    others.sort(
        key=lambda one: one.rule.name == PAID_ONCE or (one.finding.once and not one.expected_ns)
    )
    if not others:
        return None
    first = others[0]
    rule, figures = first.rule, dict(first.finding.figures)
    least = MIN_SHARE * advised.wall_ns
    worth = [
        one
        for one in others[1:]
        if one.rule.name not in {rule.name, PAID_ONCE} and one.expected_ns >= least
    ]
    following = worth[0].rule.title if worth else ""
    return FirstAdvice(
        rule=rule.name,
        title=rule.title,
        remedy=first.remedy,
        text=rule.text,
        figures=figures,
        next_title=following,
    )

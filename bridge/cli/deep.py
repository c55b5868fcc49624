"""The second run of ``bridge run --deep``: what ncu measures and what that will take, and both reports joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options
from bridge.cli.hints import select_file, with_report

if TYPE_CHECKING:
    from bridge.analyze.checks.deep import Candidates, Choice, Target
    from bridge.capture.deep import Cost, Outcome
    from bridge.capture.plan import LaunchResult, Plan
    from bridge.capture.tool import LaunchFilter, Request
    from bridge.report import Report
    from bridge.source import ReportInput

KERNELS = 5
MIN_BUSY = 0.5  # of the time of iterations; below, faster kernels would hardly help
METRICS = ("time_ratio", "occupancy", "sm_throughput", "memory_throughput", "bottleneck")
COLUMNS = ("total_ns",)
MATCH = "match"
DETAILS = frozenset(["mangled", "metrics"])
TABLE = f"--metrics ncu_time,{','.join((*METRICS, MATCH))} --format json"
MINUTE, HOUR = 60, 3_600


@dataclass(frozen=True)
class Deep:
    """What a user wants of the second run: its budget, and in seconds; how many kernels, and of which ops alone.

    ``even_idle`` asks for it even if the GPU is idle most of the time.
    """

    budget: str
    budget_s: float
    kernels: int
    even_idle: bool
    ops: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        tool: str,
        ops: tuple[str, ...],
        *,
        deep: bool,
        budget: str | None,
        kernels: int | None,
        even_idle: bool,
    ) -> Deep | None:
        """Return it for options, None without --deep; raises MisuseError for those that need it, or another tool."""
        from bridge.capture.deep import DEFAULT_BUDGET, parse_budget
        from bridge.capture.tool import MisuseError

        given = {"--budget": budget, "--kernels": kernels, "--even-idle": even_idle}
        if not deep:
            if wrong := next((name for name, value in given.items() if value), ""):
                raise MisuseError(f"{wrong} goes with --deep")
            return None
        if tool != "nsys":
            raise MisuseError(f"--deep runs nsys and then ncu: leave --tool {tool} out")
        try:
            seconds = parse_budget(budget or DEFAULT_BUDGET)
        except ValueError as error:
            raise MisuseError(f"--budget: {error}") from error
        return cls(
            budget=budget or DEFAULT_BUDGET,
            budget_s=seconds,
            kernels=kernels or KERNELS,
            even_idle=even_idle,
            ops=tuple(op.partition("@")[0] for op in ops),
        )


def say(line: str) -> None:
    """Print a line about the run on stderr."""
    click.echo(line, err=True)


def _input(first: Path, *second: Path) -> ReportInput:
    """Return what names the report of the first run, with that of the second."""
    from bridge.source import ReportInput

    return ReportInput(reports=(first,), db=Path(), ncu=second)


@dataclass(frozen=True)
class SecondRun:
    """A run under ncu that may follow: ``plan`` makes its plan of a request, and ``report`` is what it leaves.

    ``shown`` is its command as far as it is known before the first run; without ncu it says so, as ``missing`` does.
    """

    deep: Deep
    plan: Callable[[Request, Path], Plan]
    request: Request
    report: Path
    shown: str = ""
    missing: str = ""

    @classmethod
    def of(
        cls, deep: Deep, request: Request, first: Path, plan: Callable[[Request, Path], Plan]
    ) -> SecondRun:
        """Return the run that may follow one with this report; raises CaptureError if it cannot work with any ncu."""
        from bridge.capture.deep import UNKNOWN
        from bridge.capture.ncu import SUFFIX
        from bridge.capture.tool import NOT_FOUND, CaptureError

        result = cls(deep, plan, request, first.with_suffix(SUFFIX))
        try:
            planned = result.planned(UNKNOWN, result.report)
        except CaptureError as error:
            if error.status != NOT_FOUND:
                raise
            say(f"note: no second run: {error}")
            return replace(result, shown=f"# {error}", missing=str(error))
        for note in planned.options.notes:
            say(f"note: {note}")
        return replace(result, shown=planned.shell_command())

    def after(self, ended: LaunchResult, run_s: float) -> Joined | None:
        """Measure what the report of the first run says; None, with a line that says why, without a second run."""
        from bridge.analyze.checks.advice.rule import NO_OP

        if ended.status or self.missing:
            why = self.missing or "the first did not succeed"
            say(f"no second run: {why}")
            return None
        first, *_ = ended.reports
        report = self._loaded(first)
        if report is None:
            return None
        select_file(first)
        chosen = self._chosen(report, run_s)
        if isinstance(chosen, str):
            say(f"no second run: {chosen}")
            return None
        outcome = self._measured(*chosen)
        if outcome.report is None:
            say(f"not measured: {outcome.reason}; the report of nsys is whole: {first}")
            return Joined(report, _input(first), status=outcome.status)
        but = f"; {outcome.reason}" if outcome.reason else ""
        say(f"{outcome.report}: measured in {span(outcome.took_s)}{but}")
        select_file(first, outcome.report)
        named = all(target.op != NO_OP for target in chosen[0].targets)
        by = "op-kernel" if named else "kernel"
        return Joined(report, _input(first, outcome.report), by, status=outcome.status)

    def _loaded(self, first: Path) -> Report | None:
        """Return the report of the first run; None if it cannot be read or holds nothing, which its import tells."""
        from bridge.analyze.core.catalog.lookup import ADVICE_DETAILS
        from bridge.importers.errors import ReportError
        from bridge.importers.listener import SILENT
        from bridge.knowledge.package import UserError

        try:
            return options.load(_input(first), DETAILS | ADVICE_DETAILS, SILENT)
        except (ReportError, UserError):
            return None

    def _chosen(self, report: Report, run_s: float) -> tuple[Choice, Cost] | str:
        """Return what is to be measured and what that takes, or why nothing is."""
        from bridge.analyze.checks import deep
        from bridge.capture.deep import Cost, passes_of

        attributed, ops = report.attributed, self.deep.ops
        busy = deep.busy_share(attributed)
        if not report.totals["activities"]:
            return "nothing ran on a GPU"
        if busy < MIN_BUSY and not (ops or self.deep.even_idle):
            return _idle(report, busy)
        found = deep.candidates(attributed, report.advise(), self.deep.kernels, ops)
        if not found.targets:
            return f"no kernel computes in {', '.join(ops)}" if ops else "no kernel computes"
        memory = max(0, deep.most_memory(attributed))
        cost = Cost(run_s, passes_of(self.request.section_set), memory)
        return self._within_budget(found, cost)

    def _within_budget(self, found: Candidates, cost: Cost) -> tuple[Choice, Cost] | str:
        """Return the largest choice that fits the budget, or why none does."""
        if cost.bare_s > self.deep.budget_s:
            return (
                f"a run of the program under ncu takes about {span(cost.bare_s)} even if it measures nothing,"
                f" more than --budget {self.deep.budget}: give more, or let the program do fewer iterations"
            )
        for choice in found.choices():
            if cost.total_s(len(choice.rows), choice.ns) <= self.deep.budget_s:
                return choice, cost
        least = cost.total_s(len(choice.rows), choice.ns)
        return f"one kernel takes about {span(least)}, more than --budget {self.deep.budget}: give more"

    def _measured(self, choice: Choice, cost: Cost) -> Outcome:
        """Say what is measured and what it takes, and run the program under ncu."""
        from bridge.capture.deep import measure, workplace
        from bridge.capture.ncu import kernel_id
        from bridge.capture.tool import LaunchFilter

        for line in _plan_lines(choice, cost, self.deep.budget):
            say(line)
        with workplace(self.report) as folder:
            log = folder / "log"
            name = kernel_id(choice.functions, choice.numbers)
            launches = LaunchFilter(name, choice.base, most=len(choice.rows), log=log)
            planned = self.planned(launches, folder / self.report.name)
            say(planned.shell_command())
            return measure(planned, self.report, log, self.deep.budget_s)

    def planned(self, launches: LaunchFilter, report: Path) -> Plan:
        """Return the plan of a run that measures some launches."""
        from bridge.capture.deep import without_recordings

        return without_recordings(self.plan(replace(self.request, launches=launches), report))


def _idle(report: Report, busy: float) -> str:
    """Return why kernels of a GPU that mostly waits are not measured, and what is looked at first."""
    from bridge.render import units

    advice = report.summary.advice
    first = f" First: {advice.title} (bridge advise REPORT)." if advice else ""
    when = "its iterations" if len(report.attributed.iterations) else "the time of its work"
    text = (
        f"the GPU is idle for {units.percent(1 - busy)} of {when}: faster kernels would not help.{first}"
        " --even-idle measures them all the same"
    )
    return with_report(text)


def _plan_lines(choice: Choice, cost: Cost, budget: str) -> Iterator[str]:
    """Yield what is measured and why, and what it takes."""
    launches, ns = len(choice.rows), choice.ns
    total = cost.total_s(launches, ns)
    yield (
        f"second run: ncu measures {_count(launches, 'launch')} of {_count(len(choice.functions), 'kernel')},"
        f" about {span(total)} (the run {span(cost.run_s)}, ncu {span(cost.bare_s - cost.run_s)},"
        f" {cost.passes} passes of each launch {span(cost.measuring_s(launches, ns))}; an estimate), budget {budget}"
    )
    yield from (f"  {_target_line(target)}" for target in choice.targets)


def _count(number: int, what: str) -> str:
    ending = "" if number == 1 else "es" if what.endswith("ch") else "s"
    return f"{number} {what}{ending}"


def _target_line(target: Target) -> str:
    from bridge.render import units
    from bridge.render.table import clean

    why = target.rule or "among those that take most time"
    return f"{clean(target.kernel)} in {clean(target.op)}: {units.time(target.ns)}, {why}"


def span(seconds: float) -> str:
    """Return a time as people say it: 45 s, 2.5 min, 1.2 h."""
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    unit, name = (MINUTE, "min") if seconds < HOUR else (HOUR, "h")
    return f"{seconds / unit:.1f} {name}"


# -- Both reports joined


@dataclass(frozen=True)
class Joined:
    """The report of the first run, as it was loaded, and that of ncu; ``by`` is the table that shows what was measured.

    ``status`` is 128 + n if a signal n ended the second run.
    """

    timeline: Report
    source: ReportInput
    by: str = ""
    status: int = 0

    def show(self) -> None:
        """Print what ncu says of the kernels that it measured."""
        from bridge.analyze.tables.request import TableRequest
        from bridge.importers.errors import ReportError
        from bridge.importers.listener import SILENT
        from bridge.render import table
        from bridge.source import with_metrics

        try:
            report = with_metrics(self.timeline, self.source, SILENT)
            rows = report.table(TableRequest(self.by, COLUMNS, metrics=(*METRICS, MATCH)))
        except (ReportError, ValueError) as error:
            say(f"the report of ncu is not joined: {error}")
            return
        rows = rows[rows[MATCH] != ""][[name for name in rows if name != MATCH]]
        if not len(rows):
            say("ncu measured no kernel of the report of nsys: do both runs do the same?")
            return
        click.echo(table.for_terminal(self.by, rows, options.look()), nl=False)
        say(with_report(f"for programs: bridge report REPORT --by {self.by} {TABLE}"))

"""``bridge report``: tables per op, kernel, memcpy, range …, or of several dimensions together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.analyze.tables.views import (
    DIMENSIONS,
    DIRECTED,
    GEOMETRY,
    TIME_UNITS,
    VIEWS,
    details_of,
)
from bridge.cli import ncu_option, options, outputs, time_options, worker_options
from bridge.cli.flop_options import costs

if TYPE_CHECKING:
    import pandas as pd

    from bridge.analyze.filters import Condition
    from bridge.join.choices import Choices
    from bridge.report import Joined
    from bridge.scale.combined import Together


FLAGS = {"inclusive": "op-kernel", "memory_kinds": "memcpy", "arguments": "range"}
DETAILS = {"memory_kinds": ("source_kind", "target_kind"), "arguments": ("json",)}
TELL_STEPS = ("step", "gap")  # views with a column of steps
TELL_RANKS = frozenset(["rank", "host", "skew"])  # tables that count on who is who
LIST = "list"  # instead of metrics: which there are
FORMATS = ("table", "json", "csv", "md")
VIEW = (  # what goes to Joined.by
    *("columns", "inclusive", "kernel_names", "memory_kinds", "arguments", "direction"),
    *("idle_over_ns", "costs", "metrics"),
)


@click.command()
@options.source
@click.option(
    "--by",
    default="op",
    show_default=True,
    metavar="TABLE",
    help=f"What a row is: {', '.join(VIEWS)}; or, one or several with commas, {', '.join(DIMENSIONS)}.",
)
@click.option(
    "--columns",
    default="",
    metavar="NAMES",
    help="Only these, with commas. Sets: default, all, gpu, cpu, causes, communication, flops, tensor-cores.",
)
@click.option(
    "--inclusive", is_flag=True, help="op-kernel: count a kernel for every op on its stack."
)
@click.option(
    "--direction",
    type=click.Choice(("forward", "backward", "both")),
    default="both",
    show_default=True,
    help="Count only what ran in this pass.",
)
@click.option(
    "--names",
    type=click.Choice(("op", "raw")),
    default="op",
    show_default=True,
    help="raw: whole texts over all domains, as domain:text, instead of ops.",
)
@click.option(
    "--kernel-names",
    type=click.Choice(("short", "demangled", "mangled")),
    default="short",
    show_default=True,
    help="How kernels are named.",
)
@click.option("--arguments", is_flag=True, help="range: columns of what each call says of itself.")
@click.option(
    "--metrics",
    default="",
    metavar="NAMES",
    callback=options.names,
    help="Columns of what Nsight Compute measured: short names as occupancy, or its own, with commas;"
    " list shows those there are.",
)
@ncu_option.ncu
@click.option("--memory-kinds", is_flag=True, help="memcpy: pageable, pinned … memory apart.")
@click.option(
    "--idle-over",
    "idle_over_ns",
    metavar="TIME",
    default="10us",
    show_default=True,
    callback=time_options.time,
    help="gap, idle: only gaps longer than this.",
)
@time_options.window
@click.option("--sort", metavar="[+]COLUMN", help="Sort by this column, + for smallest first.")
@click.option("--top", type=click.IntRange(min=1), help="Show only this many rows.")
@click.option(
    "--filter", "conditions", help="Only rows like 'op=aten::*, gpu>10us, step=3..5, kernel~gemm'."
)
@click.option(
    "--running", is_flag=True, help="Add the running sum of the column that is sorted by."
)
@click.option(
    "--unit",
    type=click.Choice(TIME_UNITS),
    help="Unit of all times in tables. [default: what fits]",
)
@costs
@options.rank_from
@options.choices
@options.sidecar
@worker_options.workers
@outputs.formats(FORMATS)
@outputs.option
def report(  # noqa: PLR0913, PLR0917 - what every command takes
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    output: Path | None,
    force: bool,
    **asked: Any,
) -> None:
    """Print a table of REPORTS, or of a run of the store.

    Times are on the GPU unless the heading says CPU. 'self' is of the innermost op only, 'total' of the
    op and everything under it, 'busy' the union of its intervals, 'span' first start to last end.
    """
    by = ",".join(part.strip() for part in asked.pop("by").split(","))
    with _in_a_line():
        conditions, steps = _conditions(by, asked.pop("conditions"), arguments=asked["arguments"])
        details = _details(by, [c.column for c in conditions], **asked)
    reports = worker_options.expanded(reports)
    outputs.check(output, reports, force=force)
    choices = replace(choices, raw=asked["names"] == "raw", rank_from=asked.pop("rank_from"))
    where = worker_options.Where.of(asked)
    how = {name: asked[name] for name in VIEW}
    how["also"] = [*(c.column for c in conditions), (asked["sort"] or "").removeprefix("+")]
    ncu, times_of = asked.pop("ncu"), {**asked, "steps": asked["steps"] or steps}
    with _in_a_line():
        found: Joined | Together | None = worker_options.together(
            where, by, reports, db, run, choices, sidecar, how, ncu=ncu, **times_of
        )
    if found is None:
        found = options.joined(reports, db, run, choices, details, sidecar)
        found = _of_time(ncu_option.with_ncu(found, ncu, choices), steps, **asked)
        if asked["metrics"] == [LIST]:
            _list_metrics(found, output, force=force, **asked)
            return
    with _in_a_line():
        table = _chosen(found.by(by, **how), by, conditions, **asked)
    _print(found, by, table, output, force=force, **asked)


def _of_time(joined: Joined, steps: tuple[int, int] | None, /, **asked: Any) -> Joined:
    """Return what is asked for of a report."""
    with _in_a_line():
        return time_options.within(joined, **asked).within(steps=steps)


@contextmanager
def _in_a_line() -> Iterator[None]:
    """Say what is wrong with a request as click does."""
    try:
        yield
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _details(
    by: str, also: Sequence[str], *, kernel_names: str, direction: str, **asked: Any
) -> set[str]:
    """Return the columns that the table needs and most do without; ValueError for what does not go together."""
    for flag, only in FLAGS.items():
        if asked[flag] and by != only:
            raise ValueError(f"--{flag.replace('_', '-')} goes with --by {only}")
    if direction != "both" and by in VIEWS and by not in DIRECTED:
        alone = [*DIRECTED, *(name for name in DIMENSIONS if name not in VIEWS)]
        raise ValueError(f"--direction goes with --by {', '.join(alone)}, or several dimensions")
    words = [*asked["columns"].split(","), (asked["sort"] or "").removeprefix("+"), *also]
    found = set(details_of(by, (word.strip() for word in words)))
    for flag, columns in DETAILS.items():
        found |= set(columns) if asked[flag] else set()
    found |= {"metrics"} if asked["metrics"] else set()
    found |= set(GEOMETRY) if asked["ncu"] else set()
    return found | ({"mangled"} if kernel_names == "mangled" else set())


def _conditions(
    by: str, text: str | None, *, arguments: bool
) -> tuple[list[Condition], tuple[int, int] | None]:
    """Return the conditions on rows, and the steps asked for of a table that has no column of them."""
    from bridge.analyze.filters import parsed

    found = parsed(text) if text is not None else []
    if arguments or by in TELL_STEPS or (by not in VIEWS and "step" in by.split(",")):
        return found, None
    of_steps = [c for c in found if c.column == "step"]
    if not of_steps:
        return found, None
    if (
        len(of_steps) > 1
        or of_steps[0].how != "="
        or not time_options.STEPS.fullmatch(of_steps[0].value)
    ):
        raise ValueError("steps are chosen as step=3 or step=3..5")
    return [c for c in found if c.column != "step"], time_options.first_and_last(of_steps[0].value)


def _chosen(
    table: pd.DataFrame,
    by: str,
    conditions: list[Condition],
    *,
    sort: str | None,
    top: int | None,
    running: bool,
    **_rest: Any,
) -> pd.DataFrame:
    """Return the rows that meet the conditions, sorted and cut as asked, maybe with a running sum."""
    from bridge.analyze.filters import column_named, matching
    from bridge.analyze.tables.table import ordered, sorted_by, with_running_sum

    table = matching(table, conditions)
    column = column_named(table, sort.removeprefix("+")) if sort else sorted_by(by, table)
    if sort:
        table = ordered(table, [column], ascending=sort.startswith("+"))
    if running:
        table = with_running_sum(table, column)
    return table.head(top) if top else table


def _list_metrics(joined: Joined, output: Path | None, *, force: bool, **asked: Any) -> None:
    from bridge.analyze.metrics.values import listed

    with _in_a_line():
        table = listed(joined.report)
    _print(joined, LIST, table, output, force=force, **{**asked, "columns": LIST})


def _print(
    joined: Joined | Together,
    by: str,
    table: pd.DataFrame,
    output: Path | None,
    *,
    force: bool,
    **asked: Any,
) -> None:
    from bridge.cli.report_output import Printed

    if TELL_RANKS.intersection(by.split(",")):  # what makes one doubt who is who
        options.warn(joined.rank_warnings)
    form = outputs.form_of(asked["form"], output, FORMATS)
    headings = "memcpy by memory" if asked["memory_kinds"] else ""
    shown = "" if asked["columns"] else headings or joined.headings(by)
    text = Printed(joined, by, shown, asked["unit"]).text(table, form, to_terminal=output is None)
    outputs.give(text, output, f"{len(table)} rows", force=force)

"""``bridge plot``: pictures of a report, without a browser or a display."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.analyze.core.catalog.views import GEOMETRY
from bridge.cli import options, outputs
from bridge.cli.flop_options import costs
from bridge.cli.help import Command, option, rare_option, row_option
from bridge.cli.options import doing
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bridge.analyze.cost.flops import Costs
    from bridge.report import Report
    from bridge.source import ReportInput

KINDS = ("breakdown", "timeline", "memory", "roofline", "histogram")
HEIGHTS = {"breakdown": 3.2, "timeline": 2.4, "memory": 2.4, "roofline": 3.2, "histogram": 3.6}
COUNTS = {"breakdown": 12, "timeline": 7, "roofline": 10, "histogram": 8}
READ = {"memory": {"json"}, "roofline": {"json", "metrics", *GEOMETRY}}
SUFFIXES = (".svg", ".png", ".pdf")
NOT_THERE = {
    "memory": "no samples of memory in the report; a session records them:"
    " bridge.profile(profile_memory=True)",
    "roofline": "no call whose work ran says both its FLOPs and its bytes; record them with"
    ' @nvtx_op(shapes=True, flops="auto") or bridge.profile(with_flops=True);'
    " where shapes are there, and no types, say --dtype; or give what ncu --set roofline (or full) measured: --ncu",
    "histogram": "no activity that took any time {op}",
    "work": "no work on a GPU in the report",
}


@dataclass(frozen=True)
class Drawing:
    """A picture: its kind, size in inches, number of rows, ops, and how FLOPs are counted."""

    kind: str
    width: float
    height: float
    top: int
    op: str
    costs: Costs | None

    def check(self, ncu: tuple[Path, ...]) -> None:
        """Raise UsageError for options that do not fit the kind of picture."""
        if ncu and self.kind != "roofline":
            raise click.UsageError("--ncu goes with --kind roofline")
        if self.op != "*" and self.kind != "histogram":
            raise click.UsageError("--op goes with --kind histogram")
        if self.costs is not None and self.kind != "roofline":
            raise click.UsageError(
                "--flops, --dtype, --peak-tflops, --peak-gbs and --gpus go with --kind roofline"
            )


@click.command(
    cls=Command,
    examples=(
        "bridge plot report.sqlite -o ops.svg",
        'bridge plot report.sqlite --kind histogram --op "aten::*" -o histogram.png',
    ),
)
@options.report_input
@option(
    "--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="What is drawn."
)
@row_option(
    "--top",
    type=click.IntRange(1, 50),
    help="How many ops (histogram: kernels) stand apart. [default: 7 to 12]",
)
@option("--op", default="*", help="histogram: only work of ops like this: 'aten::*'.")
@costs
@rare_option(
    "--width", type=click.FloatRange(1, 40), default=6.5, show_default=True, help="In inches."
)
@rare_option("--height", type=click.FloatRange(1, 40), help="In inches. [default: by kind]")
@options.ncu_option
@outputs.output()
def plot(
    source: ReportInput,
    kind: str,
    width: float,
    height: float | None,
    ncu: tuple[Path, ...],
    output: Output,
    top: int | None,
    op: str,
    costs: Costs | None,
) -> None:
    """Draw REPORTS (or a run of the store): .svg, .png or .pdf.

    The same report gives the same bytes. Needs matplotlib: pip install 'nsight-bridge[plot]'.
    """
    path = output.path
    if path is None:
        raise click.UsageError("name the output: -o ops.svg")
    if path.suffix not in SUFFIXES:
        raise click.UsageError(f"{path}: a picture is written as {', '.join(SUFFIXES)}")
    drawing = Drawing(
        kind=kind,
        width=width,
        height=height or HEIGHTS[kind],
        top=top or COUNTS.get(kind, 0),
        op=op,
        costs=costs,
    )
    drawing.check(ncu)
    output.check(source.reports)
    from bridge.analyze.core import no_timeline
    from bridge.render.plot import missing

    if needed := missing():
        raise click.ClickException(needed)

    report = options.load(replace(source, ncu=ncu), {"category"} | READ.get(kind, set()))
    no_timeline.refuse(report.capture, f"{kind} plot", fits=kind in no_timeline.PLOTS)
    with doing(f"drawing {path}"):
        _draw(report, drawing, path, force=output.force)
    click.echo(f"{path}: written", err=True)


def _draw(report: Report, drawing: Drawing, output: Path, *, force: bool) -> None:
    """Draw the picture; refuse a size that is too small."""
    from bridge.output import whole
    from bridge.render.plot.page import figure, save

    with figure(drawing.width, drawing.height) as (drawn, axes):
        DRAW[drawing.kind](report, axes, drawing)
        try:
            with whole(output, force=force) as draft, draft.open("wb") as file:
                save(drawn, file, output.suffix)
        except ValueError as error:  # too small
            raise click.ClickException(f"{output}: {error}") from error


def _breakdown(report: Report, axes: Axes, drawing: Drawing) -> None:
    from bridge.analyze.draw.plots import PARTS, breakdown
    from bridge.render.plot import charts

    _needed(report, "work", report.totals["gpu_ns"])
    charts.draw_bars(axes, breakdown(report.attributed, drawing.top), PARTS)


def _timeline(report: Report, axes: Axes, drawing: Drawing) -> None:
    from bridge.analyze.draw.plots import over_time
    from bridge.render.plot import charts

    _needed(report, "work", report.totals["gpu_ns"])
    charts.draw_lanes(axes, over_time(report.attributed, drawing.top))


def _memory(report: Report, axes: Axes, _drawing: Drawing) -> None:
    from bridge.analyze.draw.overview.axis import Axis
    from bridge.analyze.draw.overview.memory import memory
    from bridge.render.plot import charts

    charts.draw_memory(
        axes, _needed(report, "memory", memory(report.attributed, Axis.of(report.attributed)))
    )


def _roofline(report: Report, axes: Axes, drawing: Drawing) -> None:
    from bridge.analyze.cost.flops import Costs
    from bridge.analyze.draw.overview.axis import Names
    from bridge.analyze.draw.overview.roofline import roofline as reached
    from bridge.render.plot import charts

    names = Names()
    result = _needed(
        report, "roofline", reached(report.attributed, names, drawing.costs or Costs())
    )
    charts.draw_roofline(axes, result, names.listed, drawing.top)


def _histogram(report: Report, axes: Axes, drawing: Drawing) -> None:
    from bridge.analyze.draw.plots import durations
    from bridge.render.plot import charts

    result = durations(report.attributed, drawing.top, drawing.op)
    _needed(
        report,
        "histogram",
        len(result.names),
        op="in the report" if drawing.op == "*" else f"in {drawing.op}",
    )
    charts.draw_histogram(axes, result)


def _needed(report: Report, what: str, result: Any, **details: str) -> Any:
    """Return the data, or fail with the capture that would have it."""
    if not result:
        source = ", ".join(report.capture.source)
        raise click.ClickException(f"{source}: {NOT_THERE[what].format(**details)}")
    return result


DRAWN: tuple[Callable[..., None], ...] = (_breakdown, _timeline, _memory, _roofline, _histogram)
DRAW = dict(zip(KINDS, DRAWN, strict=True))

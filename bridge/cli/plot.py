"""``bridge plot``: pictures for papers, without a browser or a display."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.analyze.tables.views import GEOMETRY
from bridge.cli import ncu_option, options, outputs
from bridge.cli.flop_options import costs
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bridge.analyze.flops import Costs
    from bridge.join.choices import Choices
    from bridge.report import Joined

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


@click.command()
@options.source
@click.option(
    "--kind", type=click.Choice(KINDS), default=KINDS[0], show_default=True, help="What is drawn."
)
@click.option(
    "--top",
    type=click.IntRange(1, 50),
    help="How many ops (histogram: kernels) stand apart. [default: 7 to 12]",
)
@click.option("--op", default="*", help="histogram: only work of ops like this: 'aten::*'.")
@costs
@click.option(
    "--width", type=click.FloatRange(1, 40), default=6.5, show_default=True, help="In inches."
)
@click.option("--height", type=click.FloatRange(1, 40), help="In inches. [default: by kind]")
@ncu_option.ncu
@options.choices
@options.sidecar
@outputs.option
def plot(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    kind: str,
    width: float,
    height: float | None,
    ncu: tuple[Path, ...],
    output: Path | None,
    force: bool,
    **how: Any,
) -> None:
    """Draw REPORTS (or a run of the store): .svg, .png or .pdf.

    The same report gives the same bytes. Needs matplotlib: pip install 'nsight-bridge[plot]'.
    """
    if output is None:
        raise click.UsageError("name the output: -o ops.svg")
    if output.suffix not in SUFFIXES:
        raise click.UsageError(f"{output}: a picture is written as {', '.join(SUFFIXES)}")
    _check(kind, ncu, **how)
    outputs.check(output, reports, force=force)
    if find_spec("matplotlib") is None:
        raise click.ClickException("matplotlib is needed: pip install 'nsight-bridge[plot]'")
    from bridge.analyze.metrics import no_timeline

    joined = options.joined(
        reports, db, run, choices, {"category"} | READ.get(kind, set()), sidecar
    )
    joined = ncu_option.with_ncu(joined, ncu, choices)
    no_timeline.refuse(joined.report, f"{kind} plot", fits=kind in no_timeline.PLOTS)
    how["top"] = how["top"] or COUNTS.get(kind, 0)
    with doing(f"drawing {output}"):
        _draw(joined, kind, (width, height or HEIGHTS[kind]), output, force=force, **how)
    click.echo(f"{output}: written", err=True)


def _draw(
    joined: Joined, kind: str, size: tuple[float, float], output: Path, *, force: bool, **how: Any
) -> None:
    """Draw a picture of so many inches; refuse a size that cannot hold it."""
    from bridge.output import whole
    from bridge.render.plot.page import figure, save

    with figure(*size) as (drawn, axes):
        DRAW[kind](joined, axes, **how)
        try:
            with whole(output, force=force) as draft, draft.open("wb") as file:
                save(drawn, file, output.suffix)
        except ValueError as error:  # too small
            raise click.ClickException(f"{output}: {error}") from error


def _check(kind: str, ncu: tuple[Path, ...], *, op: str, costs: Costs, **_: Any) -> None:
    from bridge.analyze.flops import Costs

    if ncu and kind != "roofline":
        raise click.UsageError("--ncu goes with --kind roofline")
    if op != "*" and kind != "histogram":
        raise click.UsageError("--op goes with --kind histogram")
    if costs != Costs() and kind != "roofline":
        raise click.UsageError(
            "--flops, --dtype, --peak-tflops, --peak-gbs and --gpus go with --kind roofline"
        )


def _breakdown(joined: Joined, axes: Axes, *, top: int, **_: Any) -> None:
    from bridge.analyze.plots import PARTS, breakdown
    from bridge.render.plot import charts

    _needed(joined, "work", joined.totals["gpu_ns"])
    charts.draw_bars(axes, breakdown(joined.attributed, top), PARTS)


def _timeline(joined: Joined, axes: Axes, *, top: int, **_: Any) -> None:
    from bridge.analyze.plots import over_time
    from bridge.render.plot import charts

    _needed(joined, "work", joined.totals["gpu_ns"])
    charts.draw_lanes(axes, over_time(joined.attributed, top))


def _memory(joined: Joined, axes: Axes, **_: Any) -> None:
    from bridge.analyze.overview.axis import Axis
    from bridge.analyze.overview.memory import memory
    from bridge.render.plot import charts

    charts.draw_memory(
        axes, _needed(joined, "memory", memory(joined.attributed, Axis.of(joined.attributed)))
    )


def _roofline(joined: Joined, axes: Axes, *, top: int, costs: Costs, **_: Any) -> None:
    from bridge.analyze.overview.axis import Names
    from bridge.analyze.overview.roofline import roofline as reached
    from bridge.render.plot import charts

    names = Names()
    found = _needed(joined, "roofline", reached(joined.attributed, names, costs))
    charts.draw_roofline(axes, found, names.listed, top)


def _histogram(joined: Joined, axes: Axes, *, top: int, op: str, **_: Any) -> None:
    from bridge.analyze.plots import durations
    from bridge.render.plot import charts

    found = durations(joined.attributed, top, op)
    _needed(joined, "histogram", len(found.names), op="in the report" if op == "*" else f"in {op}")
    charts.draw_histogram(axes, found)


def _needed(joined: Joined, what: str, found: Any, **said: str) -> Any:
    """Return what was found, or refuse with what would have to be there."""
    if not found:
        source = ", ".join(joined.report.source)
        raise click.ClickException(f"{source}: {NOT_THERE[what].format(**said)}")
    return found


DRAWN: tuple[Callable[..., None], ...] = (_breakdown, _timeline, _memory, _roofline, _histogram)
DRAW = dict(zip(KINDS, DRAWN, strict=True))

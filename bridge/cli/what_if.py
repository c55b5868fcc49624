"""``bridge what-if``: how long the run would have been with faster ops, without calls, with a faster GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from bridge.analyze.core.catalog.lookup import ADVICE_DETAILS
from bridge.cli import options, outputs, selection_options
from bridge.cli.help import Command, option
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.source import ReportInput, TimeRange


@click.command(
    cls=Command,
    examples=(
        "bridge what-if report.sqlite --op forward --faster 30%",
        "bridge what-if report.sqlite --hide nccl --gpu-faster 1.5",
        "bridge what-if report.sqlite --without 'cudaMemcpy*' --iterations 1000",
    ),
)
@options.report_input
@options.steps_option
@option(
    "--op",
    "op",
    multiple=True,
    metavar="NAME",
    help="An op that takes less time, with all under it (* and ?). May be repeated.",
)
@option(
    "--faster",
    "faster",
    multiple=True,
    metavar="30%|2x",
    help="How much less time the op takes; once for all ops, or once for each.",
)
@option(
    "--without",
    "without",
    multiple=True,
    metavar="CALL",
    help="Calls of CUDA or of the operating system that go (* and ?). May be repeated.",
)
@option(
    "--hide",
    "hide",
    multiple=True,
    metavar="NAME",
    help="Work that costs nothing while its GPU computes: nccl for all communication, or kernels and copies"
    " (* and ?). May be repeated.",
)
@option(
    "--gpu-faster",
    "gpu_faster",
    default="",
    metavar="1.5|30%",
    help="All kernels are so much faster, but for communication.",
)
@option(
    "--iterations",
    "iterations",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tell the times of a run of so many iterations.",
)
@selection_options.time_range
@outputs.output(("text", "json"))
def what_if(
    source: ReportInput,
    step_name: str | None,
    op: tuple[str, ...],
    faster: tuple[str, ...],
    without: tuple[str, ...],
    hide: tuple[str, ...],
    gpu_faster: str,
    iterations: int | None,
    output: Output,
    time_range: TimeRange,
) -> None:
    """Tell how long the run of REPORTS (or a run of the store) would have been with other costs.

    All changes are made at once. What waited for less then begins earlier, and what else it waits for then counts:
    docs/what-if.md says what that leaves out.
    """
    from bridge.analyze.run.what_if import Question
    from bridge.analyze.run.what_if import what_if as answer_of
    from bridge.render import what_if as render

    with options.usage_errors():
        question = Question.of(
            op,
            faster,
            without=without,
            hide=hide,
            gpu_faster=gpu_faster,
            iterations=iterations or 0,
        )
    output.check(source.reports)
    source = replace(source.attributed_by(steps=step_name), time_range=time_range)
    report = options.load(source, ADVICE_DETAILS)
    with options.usage_errors():
        answer = answer_of(report.attributed, question)
    if output.format == "json":
        text = render.as_json(answer, report.source)
    else:
        text = render.for_terminal(answer, options.look(to_terminal=output.to_terminal))
    output.write(text, "the run that would have been")

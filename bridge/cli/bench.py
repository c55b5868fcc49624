"""``bridge bench``: how long a function in a file takes, at each point of a sweep."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import options, outputs
from bridge.cli.help import Command, option
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.bench.result import Result

FORMATS = ("table", "json", "csv", "md", "recording")
SUFFIXES = {"jsonl": "recording"}
input_option = partial(option, section="Inputs")
timing_option = partial(option, section="Timing")
saving_option = partial(option, section="Store")


@click.command(
    cls=Command,
    examples=(
        "bridge bench ops.py::matmul --shape MxK,KxN --sweep M=1,8,64 --set K=128 --set N=256",
        "bridge bench ops.py::solve --sweep n=16,32,64",
        "bridge bench ops.py::old ops.py::new --inputs make",
    ),
)
@click.argument("functions", nargs=-1, required=True, metavar="FILE.py::FUNCTION…")
@input_option(
    "--shape",
    metavar="SHAPES",
    help="Inputs of these shapes: 64x128,128x256, or with names: MxK,KxN.",
)
@input_option(
    "--sweep",
    multiple=True,
    metavar="NAME=1,8,64",
    help="Once with each number (1:5 without the 5). May be repeated.",
)
@input_option(
    "--set", "fixed", multiple=True, metavar="NAME=N", help="The number of a name. May be repeated."
)
@input_option(
    "--inputs",
    "factory",
    metavar="FUNCTION",
    help="A function of the file that makes the inputs; it gets the numbers by name.",
)
@input_option(
    "--dtype", default="float32", show_default=True, help="Of all inputs, or of each with commas."
)
@input_option(
    "--with",
    "library",
    type=click.Choice(("torch", "numpy", "cupy")),
    help="Who makes the inputs. [default: what FILE.py imports, else numpy]",
)
@input_option(
    "--device", metavar="DEVICE", help="cpu, cuda, cuda:1. [default: where the tensors are]"
)
@timing_option(
    "--runs", type=click.IntRange(min=1), default=10, show_default=True, help="Runs that are timed."
)
@timing_option(
    "--warmup",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Calls before, not timed.",
)
@timing_option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Series of so many runs.",
    rare=True,
)
@timing_option(
    "--number",
    type=click.IntRange(min=1),
    help="Calls in a run. [default: as many as the clock needs]",
    rare=True,
)
@timing_option("--backward", is_flag=True, help="Time the backward pass alone (PyTorch).")
@timing_option("--graph", is_flag=True, help="Replay the calls as a CUDA graph.")
@timing_option(
    "--group", "at_once", is_flag=True, help="All functions at once, each on its stream.", rare=True
)
@timing_option("--cold", is_flag=True, help="Write over the caches before each run.", rare=True)
@saving_option(
    "--save", is_flag=True, help="Keep the runs in the store, for bridge diff and bridge report."
)
@saving_option("--name", help="Call the stored run by this name; it is kept then.")
@partial(options.store_option, section="Store")
@outputs.output(FORMATS, SUFFIXES)
def bench(
    functions: tuple[str, ...],
    output: Output,
    save: bool,
    name: str | None,
    db: Path,
    **settings: Any,
) -> None:
    """Time functions: on the GPU that their tensors are on by CUDA events, else on the CPU.

    solve(n=16) makes its own inputs; otherwise they come from --shape, or from the function that
    --inputs names.
    """
    form = output.format
    if form == "recording" and output.to_terminal:
        raise click.UsageError("--format recording goes to a file: -o FILE.jsonl")
    output.check([Path(text.rpartition("::")[0]) for text in functions])
    if name is not None:
        from bridge import store

        store.check_name(name)
    values = _timed(functions, **settings)
    _say_where(values)
    _write(values, form, output)
    if save or name is not None:
        _keep(values, db, name)


def _timed(functions: tuple[str, ...], **settings: Any) -> list[Result]:
    """Run the benchmarks."""
    from bridge.bench.sweep import SweepRequest

    request = SweepRequest(
        targets=functions,
        shape=settings["shape"],
        dtypes=settings["dtype"].split(","),
        sweeps=settings["sweep"],
        fixed=settings["fixed"],
        factory=settings["factory"],
        library=settings["library"],
        device=settings["device"],
        at_once=settings["at_once"],
    )
    names = ("warmup", "runs", "repeat", "number", "cold", "graph", "backward")
    with redirect_stdout(sys.stderr):  # output of the functions does not belong to the results
        return list(request.results({name: settings[name] for name in names}, tell=_tell))


def _tell(what: str) -> None:
    """Print what is timed next, on a terminal only; a spinner would be timed with it."""
    if sys.stderr.isatty():
        click.echo(f"timing {what}", err=True)


def _say_where(values: list[Result]) -> None:
    """Print on stderr which device and clock timed the functions."""
    for device, clock in dict.fromkeys((result.device, result.clock) for result in values):
        text = (
            "no tensor was on a GPU: timed on the CPU" if device == "cpu" else f"timed on {device}"
        )
        click.echo(f"{text}, by {clock}", err=True)


def _write(values: list[Result], form: str, output: Output) -> None:
    text = _text(values, form, to_terminal=output.to_terminal)
    output.write(text, f"{len(values)} rows")


def _text(values: list[Result], form: str, *, to_terminal: bool) -> str:
    """Return the results as a table, a document, or a recording."""
    from bridge.bench import recording, result
    from bridge.render import document, table

    if form == "recording":
        return recording.recording(values)
    if form == "table":
        return result.table(values, options.look(to_terminal=to_terminal))
    if form == "csv":
        return document.as_csv(result.as_table(result.rows(values)))
    if form == "md":
        return table.as_markdown(result.VIEW, result.as_table(result.compact_rows(values)))
    return document.with_rows({"format": result.FORMAT}, result.as_table(result.with_runs(values)))


def _keep(values: list[Result], db: Path, name: str | None) -> None:
    """Write the runs to a recording, and store that."""
    from tempfile import TemporaryDirectory

    from bridge import importers, store
    from bridge.bench import recording
    from bridge.join.options import AttributionOptions
    from bridge.report import join

    # As a file: the identity of a run is that of a file's content.
    with TemporaryDirectory(prefix="bridge-bench-") as folder:
        path = Path(folder, recording.file_name(values))
        recording.save(values, path)
        number = store.save(
            join(importers.load(path), AttributionOptions()), db, store.identity([path])
        )
    if name is not None and (had := store.name_run(db, number, name)):
        click.echo(f"{name} was run {had.id}; it is run {number} from now on", err=True)
    click.echo(f"run {number} of {db}; next: bridge diff BEFORE {name or number}", err=True)

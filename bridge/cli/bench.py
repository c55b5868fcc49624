"""``bridge bench``: how long a function of a file takes, at each point of a sweep."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import options, outputs

if TYPE_CHECKING:
    from bridge.bench.result import Result

FORMATS = ("table", "json", "csv", "md", "recording")
SUFFIXES = {"jsonl": "recording"}


@click.command()
@click.argument("functions", nargs=-1, required=True, metavar="FILE.py::FUNCTION…")
@click.option(
    "--shape",
    metavar="SHAPES",
    help="Inputs of these shapes: 64x128,128x256, or with names: MxK,KxN.",
)
@click.option(
    "--dtype", default="float32", show_default=True, help="Of all inputs, or of each with commas."
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="NAME=1,8,64",
    help="Once with each number (1:5 without the 5). May be repeated.",
)
@click.option(
    "--set", "fixed", multiple=True, metavar="NAME=N", help="The number of a name. May be repeated."
)
@click.option(
    "--inputs",
    "factory",
    metavar="FUNCTION",
    help="A function of the file that makes the inputs; it gets the numbers by name.",
)
@click.option(
    "--with",
    "library",
    type=click.Choice(("torch", "numpy", "cupy")),
    help="Who makes the inputs. [default: what FILE.py imports, else numpy]",
)
@click.option(
    "--device", metavar="DEVICE", help="cpu, cuda, cuda:1. [default: where the tensors are]"
)
@click.option(
    "--warmup",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Calls before, not timed.",
)
@click.option(
    "--runs", type=click.IntRange(min=1), default=10, show_default=True, help="Runs that are timed."
)
@click.option(
    "--repeat",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Series of so many runs.",
)
@click.option(
    "--number",
    type=click.IntRange(min=1),
    help="Calls in a run. [default: as many as the clock needs]",
)
@click.option("--cold", is_flag=True, help="Write over the caches before each run.")
@click.option("--graph", is_flag=True, help="Replay the calls as a CUDA graph.")
@click.option("--backward", is_flag=True, help="Time the backward pass alone (PyTorch).")
@click.option("--group", "at_once", is_flag=True, help="All functions at once, each on its stream.")
@click.option(
    "--save", is_flag=True, help="Keep the runs in the store, for bridge diff and bridge report."
)
@click.option("--name", help="Call the stored run by this name; it is kept then.")
@options.store
@outputs.formats(FORMATS)
@outputs.option
def bench(  # noqa: PLR0913, PLR0917 - a parameter per option
    functions: tuple[str, ...],
    form: str | None,
    output: Path | None,
    force: bool,
    save: bool,
    name: str | None,
    db: Path,
    **asked: Any,
) -> None:
    """Time functions: on the GPU that their tensors are on by CUDA events, else on the CPU.

    \b
    bridge bench ops.py::matmul --shape MxK,KxN --sweep M=1,8,64 --set K=128 --set N=256
    bridge bench ops.py::solve --sweep n=16,32,64      solve(n=16) makes its own inputs
    bridge bench ops.py::old ops.py::new --inputs make  each with what make() returns
    """  # noqa: D301 - the backspace keeps click from filling the lines
    form = outputs.form_of(form, output, FORMATS, SUFFIXES)
    if form == "recording" and output is None:
        raise click.UsageError("--format recording goes to a file: -o FILE.jsonl")
    outputs.check(output, [Path(one.rpartition("::")[0]) for one in functions], force=force)
    if name is not None:
        from bridge import store

        store.check_name(name)
    found = _timed(functions, **asked)
    _say_where(found)
    _write(found, form, output, force=force)
    if save or name is not None:
        _keep(found, db, name)


def _timed(functions: tuple[str, ...], **asked: Any) -> list[Result]:
    """Run the benchmarks; what is wrong with them is said in a line."""
    from bridge.bench.errors import BenchError
    from bridge.bench.sweep import Asked

    wanted = Asked(
        functions,
        asked["shape"],
        asked["dtype"].split(","),
        asked["sweep"],
        asked["fixed"],
        asked["factory"],
        asked["library"],
        asked["device"],
        asked["at_once"],
    )
    names = ("warmup", "runs", "repeat", "number", "cold", "graph", "backward")
    try:
        with redirect_stdout(sys.stderr):  # what functions print is none of the results
            return list(wanted.results({name: asked[name] for name in names}, tell=_tell))
    except BenchError as error:
        raise click.ClickException(str(error)) from error


def _tell(what: str) -> None:
    """Say on a terminal what is timed next; a clock that runs on there would be timed with it."""
    if sys.stderr.isatty():
        click.echo(f"timing {what}", err=True)


def _say_where(found: list[Result]) -> None:
    """Say on standard error what timed them; that it was no GPU, above all."""
    for device, clock in dict.fromkeys((one.device, one.clock) for one in found):
        text = (
            "no tensor was on a GPU: timed on the CPU" if device == "cpu" else f"timed on {device}"
        )
        click.echo(f"{text}, by {clock}", err=True)


def _write(found: list[Result], form: str, output: Path | None, *, force: bool) -> None:
    text = _text(found, form, to_terminal=output is None)
    outputs.give(text, output, f"{len(found)} rows", force=force)


def _text(found: list[Result], form: str, *, to_terminal: bool) -> str:
    """Return the results as a table, a document, or a recording."""
    from bridge.bench import recording, result
    from bridge.render import document, table

    if form == "recording":
        return recording.recording(found)
    if form == "table":
        return result.table(found, options.look(to_terminal=to_terminal))
    if form == "csv":
        return document.as_csv(result.rows(found))
    if form == "md":
        return table.as_markdown(result.VIEW, result.telling(found))
    return document.with_rows({"format": result.FORMAT}, result.with_runs(found))


def _keep(found: list[Result], db: Path, name: str | None) -> None:
    """Write the runs to a recording, and that into the store."""
    from tempfile import TemporaryDirectory

    import importers
    from bridge import store
    from bridge.bench import recording
    from bridge.join.choices import Choices
    from bridge.report import join

    # As a file, for a run is known by the contents of one.
    with TemporaryDirectory(prefix="bridge-bench-") as folder:
        path = Path(folder, recording.file_name(found))
        recording.save(found, path)
        number = store.save(join(importers.load(path), Choices()), db, store.identity([path]))
    if name is not None and (had := store.named(db, number, name)):
        click.echo(f"{name} was run {had.id}; it is run {number} from now on", err=True)
    click.echo(f"run {number} of {db}; next: bridge diff BEFORE {name or number}", err=True)

"""What the shell completes: tables, columns, runs, rules and reports, without loading pandas."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

REPORTS = (
    *(".sqlite", ".nsys-rep", ".qdrep", ".arrows", ".ncu-rep", ".jsonl", ".json", ".json.gz"),
    *(".pftrace", ".pickle"),
)
FOLDERS = ("_arwdir", "_pqtdir")  # of columnar exports, as in `bridge.importers.column_files`

# The rules of `bridge advise`: loading them loads pandas.
RULES = (
    "failed-calls no-device-work not-recorded late-rank data-loading single-process-loader "
    "recompilation allocation memory-ran-out python-lock host-bound paid-once "
    "pageable-memcpys synchronous-memcpys synchronous-memsets small-memcpys page-faults "
    "synchronization checkpoint numbers-read-back launch-bound short-kernels default-stream "
    "profiler-overhead annotations low-gpu-use pipeline-bubble shared-gpu late-work uneven-gpus "
    "data-parallel slow-backend exposed-communication stragglers small-grids no-tensor-cores "
    "tensor-cores-left single-precision casts kernel-hotspot memcpy-bound made-on-host "
    "gradients-set-to-zero single-tensor-optimizer bias-before-norm misaligned-products "
    "indexing-in-a-loop memory-nearly-full nsight-compute opaque-graphs outside-ops"
).split()


@add_completion_class
class Fish(FishComplete):
    """fish, whose script as click has it cuts values at their first comma, as in op,shape."""

    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split --max 1 ","'
    )


def tables(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a table, or the last of several dimensions."""
    from bridge.analyze.core.catalog import VIEWS
    from bridge.analyze.core.catalog.dimensions import DIMENSIONS
    from bridge.plugins import add_tables

    given, comma, start = incomplete.rpartition(",")
    known = {name: dimension.meaning for name, dimension in DIMENSIONS.items()}
    if not comma:
        add_tables()
        known |= {name: view.question for name, view in VIEWS.items()}
    taken = given.split(",")
    return _items(
        {name: meaning for name, meaning in known.items() if name not in taken},
        start,
        given + comma,
    )


def columns(
    context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the last of several columns, or a set of columns, from the table's description."""
    given, comma, start = incomplete.rpartition(",")
    known, sets = _described(context)
    return _items({**known, **dict.fromkeys(sets, "a set of columns")}, start, given + comma)


def sort(context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the column to sort by, after a ``+`` too."""
    start = incomplete.removeprefix("+")
    return _items(_described(context)[0], start, "+" if incomplete.startswith("+") else "")


def _described(context: click.Context) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the columns of the table that was asked for, with their meanings, and its sets of columns."""
    from bridge.analyze.core.catalog.lookup import columns_of
    from bridge.analyze.tables.request import ALL, DEFAULT
    from bridge.plugins import add_tables

    by = context.params.get("by") or "op"
    add_tables(by)
    try:
        table = columns_of(by)
    except ValueError:  # no such table
        return {}, ()
    return {c.name: c.meaning for c in table.columns}, (DEFAULT, ALL, *table.sets)


def runs(context: click.Context, _option: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the number or the name of a run of the store."""
    from bridge.store.names import run_names

    known = run_names(Path(context.params.get("db") or os.environ.get("BRIDGE_DB") or "bridge.db"))
    return _items(known, incomplete)


def rules(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the name of a rule of advice."""
    return _items(RULES, incomplete)


def reports(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete the path of a report, by its suffix; where only folders fit, the shell completes them."""
    folder, name = os.path.split(incomplete)
    files, folders = [], []
    for entry in _entries(folder or "."):
        if not entry.name.startswith(name) or (entry.name.startswith(".") and not name):
            continue
        path = os.path.join(folder, entry.name)  # noqa: PTH118 - as it was begun: ./ and // stay
        if _is_report(entry):
            files.append(path)
        elif entry.is_dir():
            folders.append(f"{path}/")
    if not files:  # a shell adds no space after a folder that it completes itself
        return [CompletionItem(incomplete, type="dir")] if folders else []
    return [CompletionItem(path) for path in sorted([*files, *folders])]


def report_names(folder: Path) -> list[str]:
    """Return the names of the files and folders in a folder that are reports by their suffixes."""
    return sorted(entry.name for entry in _entries(str(folder)) if _is_report(entry))


def _is_report(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith(FOLDERS if entry.is_dir() else REPORTS)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(Path(folder).expanduser()) as entries:
            yield from entries
    except OSError:
        return


def _items(names: Iterable[str], start: str, before: str = "") -> list[CompletionItem]:
    """Return the names with this start, with their meanings where they have some."""
    meanings = names if isinstance(names, Mapping) else {}
    return [
        CompletionItem(before + name, help=meanings.get(name) or None)
        for name in names
        if name.startswith(start)
    ]

"""MXNet's `dumps` for any report: ``python -m bridge.compat.mxnet.dumps REPORT --format json``."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from bridge.compat.mxnet.aggregate import (
    MEMORY_USE,
    MS,
    OPERATORS,
    SORT_KEYS,
    TIME,
    WRITERS,
    Blocks,
    Row,
)
from bridge.importers.errors import ReportError
from bridge.knowledge.suggestions import unknown_name
from bridge.report import Report, load

API, DEVICE = "CUDA API", "Device"


def dumps(
    report: Report,
    *,
    format: str = "table",  # noqa: A002 - MXNet's name
    sort_by: str = "total",
    ascending: bool = False,
) -> str:
    """Return the aggregates of a report, as MXNet prints those of a session.

    Blocks: ``operator`` (calls of ops, host time), ``CUDA API`` (host time), ``Device`` (kernels,
    memcpys and memsets); times in ms. Raises ValueError for an unknown format or key.
    """
    if format not in WRITERS:
        raise ValueError(f"dumps: {unknown_name('format', format, WRITERS)}")
    return WRITERS[format]({TIME: _blocks(report), MEMORY_USE: {}}, sort_by, ascending)


def _blocks(report: Report) -> Blocks:
    ops = report.by("op", columns="calls,cpu_mean,cpu_min,cpu_max").rename(
        columns={"op": "name", "calls": "count"}
    )
    ops.columns = ops.columns.str.replace("cpu_", "")
    device = [report.by(view).rename(columns={key: "name"}) for view, key in NAMED.items()]
    api = report.by("api").rename(columns={"api": "name"})
    result = {OPERATORS: ops[ops["count"] > 0], API: api, DEVICE: pd.concat(device)}
    return {block: _rows(table) for block, table in result.items() if len(table)}


NAMED = {"kernel": "kernel", "memcpy": "operation"}


def _rows(table: pd.DataFrame) -> list[Row]:
    """Return rows from the columns name, count, mean_ns, min_ns, max_ns."""
    total = table["mean_ns"] * table["count"] / MS
    times = (table[f"{which}_ns"] / MS for which in ("min", "max", "mean"))
    columns = (
        table["name"].tolist(),
        table["count"].tolist(),
        total.tolist(),
        *(t.tolist() for t in times),
    )
    return [Row(*row) for row in zip(*columns, strict=True)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("report", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(tuple(WRITERS)), default="table", show_default=True
)
@click.option("--sort-by", type=click.Choice(SORT_KEYS), default="total", show_default=True)
@click.option("--ascending", is_flag=True)
def main(report: Path, form: str, sort_by: str, ascending: bool) -> None:
    """Print the aggregates of REPORT as MXNet's profiler does."""
    try:
        click.echo(dumps(load(report), format=form, sort_by=sort_by, ascending=ascending), nl=False)
    except ReportError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()

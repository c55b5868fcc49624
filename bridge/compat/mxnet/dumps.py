"""MXNet's `dumps` of any report: ``python -m bridge.compat.mxnet.dumps REPORT --format json``."""

from __future__ import annotations

from pathlib import Path

import click
import pandas as pd

from bridge.compat.mxnet.aggregate import (
    MS,
    OPERATORS,
    SORTED_BY,
    TIME,
    USE,
    WRITERS,
    Blocks,
    Row,
)
from bridge.report import Joined, load
from importers.errors import ReportError

API, DEVICE = "CUDA API", "Device"


def dumps(
    joined: Joined,
    *,
    format: str = "table",  # noqa: A002 - theirs
    sort_by: str = "total",
    ascending: bool = False,
) -> str:
    """Return the aggregates of a report as MXNet prints those of a session.

    Blocks: ``operator`` (calls of ops, on the host), ``CUDA API`` (calls, on the host), ``Device`` (kernels,
    memcpys and memsets); times in ms. Raises ValueError for another format or order.
    """
    if format not in WRITERS:
        raise ValueError(f"dumps: no format {format!r}: one of {', '.join(WRITERS)}")
    return WRITERS[format]({TIME: _blocks(joined), USE: {}}, sort_by, ascending)


def _blocks(joined: Joined) -> Blocks:
    ops = joined.by("op", columns="calls,cpu_mean,cpu_min,cpu_max").rename(
        columns={"op": "name", "calls": "count"}
    )
    ops.columns = ops.columns.str.replace("cpu_", "")
    device = [joined.by(view).rename(columns={key: "name"}) for view, key in NAMED.items()]
    api = joined.by("api").rename(columns={"api": "name"})
    found = {OPERATORS: ops[ops["count"] > 0], API: api, DEVICE: pd.concat(device)}
    return {block: _rows(table) for block, table in found.items() if len(table)}


NAMED = {"kernel": "kernel", "memcpy": "operation"}


def _rows(table: pd.DataFrame) -> list[Row]:
    """Return the rows of a table with name, count, mean_ns, min_ns, max_ns."""
    total = table["mean_ns"] * table["count"] / MS
    times = (table[f"{which}_ns"] / MS for which in ("min", "max", "mean"))
    columns = (table["name"].tolist(), table["count"].tolist(), total.tolist(), *(t.tolist() for t in times))  # fmt: skip
    return [Row(*row) for row in zip(*columns, strict=True)]


@click.command()
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(tuple(WRITERS)), default="table", show_default=True)  # fmt: skip
@click.option("--sort-by", type=click.Choice(SORTED_BY), default="total", show_default=True)
@click.option("--ascending", is_flag=True)
def main(report: Path, form: str, sort_by: str, ascending: bool) -> None:
    """Print the aggregates of REPORT as MXNet's profiler does."""
    try:
        click.echo(dumps(load(report), format=form, sort_by=sort_by, ascending=ascending), nl=False)
    except ReportError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()

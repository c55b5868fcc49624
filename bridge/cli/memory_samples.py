"""What ``bridge memory`` prints of a report without allocations: samples that the program took of its memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import outputs

if TYPE_CHECKING:
    import pandas as pd

    from bridge.analyze.memory.samples import Samples

TABLES = ("op", "trace", "summary")


def show(
    samples: Samples, by: str, top: int | None, form: str, output: Path | None, *, force: bool
) -> None:
    """Print or write a table of samples; ClickException for what only allocations tell."""
    from bridge.analyze.memory import samples as sampled

    tables = {"op": sampled.by_op, "trace": sampled.by_sample, "summary": sampled.peaks}
    if by not in tables:
        raise click.ClickException(
            f"--by {by}: the report has samples of memory and no allocations; --by {', '.join(TABLES)}"
        )
    table = tables[by](samples)
    text = _text(samples, by, table.head(top) if top else table, form, to_terminal=output is None)
    outputs.give(text, output, f"{len(table)} rows", force=force)


def _text(samples: Samples, by: str, table: pd.DataFrame, form: str, *, to_terminal: bool) -> str:
    from bridge.analyze.memory.samples import peaks
    from bridge.cli.terminal import for_people
    from bridge.render import document, summaries
    from bridge.render import table as tables

    if form == "json":
        source = list(samples.joined.report.source)
        return document.with_rows(
            {"format": "bridge.memory/1", "by": f"sampled {by}", "source": source}, table
        )
    if form == "csv":
        return document.as_csv(table)
    above, name = summaries.sampled_lines(peaks(samples)), f"memory sampled {by}"
    if form == "md":
        return f"{above}\n{tables.as_markdown(name, table)}"
    return f"{above}\n{for_people(name, table, '--top', to_terminal=to_terminal)}"

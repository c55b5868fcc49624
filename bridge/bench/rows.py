"""Results as a table: a row each, in the units that every table of ours has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from bridge.bench.result import Result
    from bridge.render.table import Look

FORMAT = "bridge.bench/1"
VIEW = "bench"
WIDTH = 160  # of a table that no terminal limits
# What rows seldom differ in: then it is said once, under the table.
ALIKE = {
    "runs": "{} runs",
    "number": "of {} calls each",
    "cold": "with cold caches",
    "graph": "replayed as a CUDA graph",
    "device": "on {}",
    "clock": "by {}",
}
NOTHING = ("", "-1", "-1.0", "False")  # of a column
UNKNOWN = -1.0


def rows(results: Iterable[Result]) -> pd.DataFrame:
    """Return a row per result; times in ns, -1 for what is not known."""
    import pandas as pd  # noqa: PLC0415 - a benchmark in a program needs none of it

    return pd.DataFrame([_row(one) for one in results])


def _row(one: Result) -> dict[str, Any]:
    return {
        "name": one.name,
        **dict(one.point),
        "shapes": one.inputs,
        "streams": " ".join(map(str, one.streams)),
        "median_ns": one.median,
        "spread_share": one.spread,
        "min_ns": one.min,
        "tflop_per_s": one.flop_per_s / 1e12 if one.flops >= 0 else UNKNOWN,
        "gb_per_s": one.bytes_per_s / 1e9 if one.bytes >= 0 else UNKNOWN,
        "workspace_bytes": one.workspace,
        "mean_ns": one.mean,
        "p10_ns": one.p10,
        "p90_ns": one.p90,
        "max_ns": one.max,
        "iqr_ns": one.iqr,
        "flop": one.flops,
        "moved_bytes": one.bytes,
        "loop_ns": one.loop_ns,
        "runs": len(one.elapsed),
        "number": one.number,
        "cold": one.options.cold,
        "graph": one.options.graph,
        "device": one.device,
        "clock": one.clock,
    }


def with_runs(results: Sequence[Result]) -> pd.DataFrame:
    """Return the rows with every latency, a list of whole ns each."""
    return rows(results).assign(latencies_ns=[one.latencies.tolist() for one in results])


def telling(results: Sequence[Result]) -> pd.DataFrame:
    """Return the rows without columns in which nobody knows anything, or nothing is out of the ordinary."""
    found = rows(results)
    return found.drop(columns=[c for c in found if found[c].astype(str).isin(NOTHING).all()])


def table(results: Sequence[Result], look: Look | None = None) -> str:
    """Return results as a table of text, a row each; what all have in common is said once, under it."""
    from bridge.render.table import Look, for_terminal  # noqa: PLC0415 - pandas and rich

    found = telling(results)
    alike = [column for column in ALIKE if column in found and len(found[column].unique()) == 1]
    shown = for_terminal(VIEW, found.drop(columns=alike), look or Look(WIDTH))
    said = " ".join(ALIKE[column].format(found[column].iloc[0]) for column in alike)
    return f"{shown}\n{said}\n" if said else shown

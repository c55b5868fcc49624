"""Lines of a log, the program's own output among them, as columns.

A line of oneDNN: its mark (``onednn_verbose``, ``dnnl_verbose``, ``mkldnn_verbose``), then perhaps a version, a
timestamp, ``primitive`` or ``graph``; then the operation and its fields. It may begin anywhere in a line of the
log, for programs print without ending their lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
import pandas as pd

from importers import frames
from importers.onednn.layouts import TIME, layout

PRIMITIVE, GRAPH = "primitive", "graph"
# What has a time, or tells of the library. Checks (exec:check), dispatching and the beginnings of calls have none.
LINE = re.compile(
    r"(?:onednn|dnnl|mkldnn)_verbose,(?:v\d+,)?(?:[\d.]+,)?"
    rf"(?:({PRIMITIVE}|{GRAPH}),)?"
    r"(exec|(?:create|create_nested|compile)(?::\w*(?:hit|miss|blob))?|info),([^\r\n]*)"
)
INFO = "info"
FOUND = ("component", "operation", "fields")
TEMPLATE = r"^(?:prim_)?template:(.*)$"
NAMES = (
    *("component", "operation", "engine", "primitive", "implementation", "prop_kind"),
    *("memory_descriptors", "attributes", "auxiliary", "problem_desc"),
)
LONGEST_MS = 1e8  # a day: so that sums stay within 64 bits

Alike = tuple[str, str, int]  # component, template in effect, commas among the fields


class Piece(NamedTuple):
    """Of a part of a log: its events (`NAMES`, and duration_ns), and lines that seem to be such and are not."""

    events: pd.DataFrame
    unread: list[str]
    info: Sequence[str]


def pieces(blocks: Iterator[bytes]) -> Iterator[Piece]:
    """Read a log block by block, each of which ends where a line does."""
    told: dict[str, str] = {}
    for block in blocks:
        found = LINE.findall(block.decode(errors="replace"))
        if found:
            yield _piece(pd.DataFrame(found, columns=list(FOUND), dtype=object), told)


def _piece(lines: pd.DataFrame, told: dict[str, str]) -> Piece:
    lines["component"] = lines["component"].where(lines["component"] != "", PRIMITIVE)
    is_info = lines["operation"] == INFO
    templates = _templates(lines, is_info, told)
    template = templates[PRIMITIVE].where(lines["component"] != GRAPH, templates[GRAPH])
    timed = lines[~is_info]
    alike = timed.groupby(
        [timed["component"], template[~is_info], timed["fields"].str.count(",")], sort=False
    )
    read = [_events(cast("Alike", key), rows) for key, rows in alike]
    unread = [line for _, others in read for line in others]
    said = lines["fields"][is_info]
    info = list(dict.fromkeys(said[~said.str.match(TEMPLATE)]))
    return Piece(frames.concat([_empty(), *(events for events, _ in read)]), unread, info)


def _templates(
    lines: pd.DataFrame, is_info: pd.Series, told: dict[str, str]
) -> dict[str, pd.Series]:
    """Return for each component the template in effect at each line; ``told`` keeps the last for the next block."""
    seen = lines["fields"][is_info].str.extract(TEMPLATE)[0].reindex(lines.index)
    found = {}
    for component in (PRIMITIVE, GRAPH):
        own = seen.where(lines["component"] == component)
        found[component] = own.ffill().fillna(told.get(component, ""))
        told[component] = str(found[component].iloc[-1])
    return found


def _events(alike: Alike, rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the events of lines that are alike, and those of the lines that hold none."""
    component, template, commas = alike
    fields = layout(template, commas + 1)
    if fields is None:
        return _empty(), rows["fields"].tolist()
    words = ",".join(rows["fields"]).split(",")  # as many of each line
    split = {name: words[at :: len(fields)] for at, name in enumerate(fields)}
    time = pd.to_numeric(pd.Series(split[TIME], index=rows.index), errors="coerce")
    good = (time >= 0) & (time < LONGEST_MS)
    named = {**split, "component": [component] * len(rows), "operation": rows["operation"].tolist()}
    return _table(named, time)[good.to_numpy()], rows["fields"][~good].tolist()


def _table(named: dict[str, list[str]], time: pd.Series) -> pd.DataFrame:
    nothing = [""] * len(time)
    columns = {name: frames.named(named.get(name, nothing)) for name in NAMES}
    ns = (time.fillna(0).clip(0, LONGEST_MS) * 1e6).round().to_numpy(np.int64)
    return pd.DataFrame({**columns, "duration_ns": ns})


def _empty() -> pd.DataFrame:
    return _table({}, pd.Series(dtype=float))

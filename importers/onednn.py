"""Read logs of oneDNN (``ONEDNN_VERBOSE=1``) into a frame of events; see docs/onednn.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import pandas as pd

from bridge.importers.arrays import Ints
from bridge.importers.errors import NotAReport, NothingRecorded
from bridge.importers.frames import Frame, Names
from bridge.importers.records import record

# -- The fields of a line: by the template in the log, or those of versions without templates


Layout = tuple[str, ...]

TIME = "exec_time"  # in ms
WITH_ATTRIBUTES: Layout = (  # since 1.2
    *("engine", "primitive", "implementation", "prop_kind", "memory_descriptors"),
    *("attributes", "auxiliary", "problem_desc", TIME),
)
WITH_ENGINE: Layout = tuple(f for f in WITH_ATTRIBUTES if f != "attributes")  # 1.0 and 1.1
FIRST: Layout = tuple(f for f in WITH_ENGINE if f != "engine")  # before 1.0
DEFAULT_LAYOUTS = {len(layout): layout for layout in (WITH_ATTRIBUTES, WITH_ENGINE, FIRST)}

TEMPLATE_ONLY = {"operation", "timestamp"}  # in templates only
GRAPH_NAMES = {
    "partition_kind": "primitive",
    "logical_tensors": "memory_descriptors",
}  # of graph lines


def layout(template: str, fields: int) -> Layout | None:
    """Return the layout of lines with this number of fields, None for an unknown number.

    ``template`` is the last that the log printed, '' for none. A template with another number of
    fields is ignored: a log may hold the output of several versions.
    """
    names = tuple(
        GRAPH_NAMES.get(field, field) for field in template.split(",") if field not in TEMPLATE_ONLY
    )
    if len(names) == fields and names[-1] == TIME and "primitive" in names:
        return names
    return DEFAULT_LAYOUTS.get(fields)


# -- Lines of a log as columns; other lines are of the program


PRIMITIVE, GRAPH = "primitive", "graph"
# Lines with a time, or about the library. Checks, dispatching and begins of calls have no time.
LINE = re.compile(
    r"(?:onednn|dnnl|mkldnn)_verbose,(?:v\d+,)?(?:[\d.]+,)?"
    rf"(?:({PRIMITIVE}|{GRAPH}),)?"
    r"(exec|(?:create|create_nested|compile)(?::\w*(?:hit|miss|blob))?|info),([^\r\n]*)"
)
INFO = "info"
MATCH_COLUMNS = ("component", "operation", "fields")
TEMPLATE = r"^(?:prim_)?template:(.*)$"
MAX_MS = 1e8  # a day; sums fit into 64 bits

LineKind = tuple[str, str, int]  # component, template in effect, number of commas


class Events(Frame):
    """Executions and creations of primitives.

    ``component`` is "primitive", or "graph" of a partition, whose primitives have rows as well;
    ``operation`` is "exec", "create:cache_miss" …; the others are the fields of oneDNN's template,
    '' where the version has no such field.
    """

    component: Names
    operation: Names
    engine: Names
    primitive: Names
    implementation: Names
    prop_kind: Names
    memory_descriptors: Names
    attributes: Names
    auxiliary: Names
    problem_desc: Names
    duration_ns: Ints


FIELDS = tuple(Events.types)[:-1]


class Piece(NamedTuple):
    """The events of a part of a log, invalid lines, and information."""

    events: Events
    unread: list[str]
    info: Sequence[str]


def pieces(blocks: Iterator[bytes]) -> Iterator[Piece]:
    """Yield the pieces of a log from its blocks, each of which ends with a line."""
    templates: dict[str, str] = {}
    for block in blocks:
        matches = LINE.findall(block.decode(errors="replace"))
        if matches:
            yield _piece(
                pd.DataFrame(matches, columns=list(MATCH_COLUMNS), dtype=object), templates
            )


def _piece(lines: pd.DataFrame, last: dict[str, str]) -> Piece:
    lines["component"] = lines["component"].where(lines["component"] != "", PRIMITIVE)
    is_info = lines["operation"] == INFO
    templates = _templates(lines, is_info, last)
    template = templates[PRIMITIVE].where(lines["component"] != GRAPH, templates[GRAPH])
    timed = lines[~is_info]
    groups = timed.groupby(
        [timed["component"], template[~is_info], timed["fields"].str.count(",")], sort=False
    )
    parts = [_events(cast("LineKind", key), rows) for key, rows in groups]
    unread = [line for _, invalid in parts for line in invalid]
    fields = lines["fields"][is_info]
    info = list(dict.fromkeys(fields[~fields.str.match(TEMPLATE)]))
    return Piece(Events.concat([Events(), *(events for events, _ in parts)]), unread, info)


def _templates(
    lines: pd.DataFrame, is_info: pd.Series, last: dict[str, str]
) -> dict[str, pd.Series]:
    """Return the template in effect at each line, by component.

    ``last`` holds the last template of each component, for the next block.
    """
    printed = lines["fields"][is_info].str.extract(TEMPLATE)[0].reindex(lines.index)
    result = {}
    for component in (PRIMITIVE, GRAPH):
        is_own = printed.notna() & (lines["component"] == component)
        line = np.maximum.accumulate(np.where(is_own, np.arange(1, len(lines) + 1), 0))
        texts = np.array([last.get(component, ""), *printed], dtype=object)
        result[component] = pd.Series(texts[line], lines.index)
        last[component] = str(result[component].iloc[-1])
    return result


def _events(kind: LineKind, rows: pd.DataFrame) -> tuple[Events, list[str]]:
    """Return the events of lines of one kind, and the lines that hold no event."""
    component, template, commas = kind
    fields = layout(template, commas + 1)
    if fields is None:
        return Events(), rows["fields"].tolist()
    cells = ",".join(rows["fields"]).split(",")  # the same number per line
    columns = {name: cells[at :: len(fields)] for at, name in enumerate(fields)}
    time = pd.to_numeric(pd.Series(columns[TIME], index=rows.index), errors="coerce")
    is_valid = (time >= 0) & (time < MAX_MS)
    named = {
        **columns,
        "component": [component] * len(rows),
        "operation": rows["operation"].tolist(),
    }
    return _table(named, time).take(is_valid.to_numpy()), rows["fields"][~is_valid].tolist()


def _table(named: dict[str, list[str]], time: pd.Series) -> Events:
    nothing = [""] * len(time)
    columns = {name: Names.of(named.get(name, nothing)) for name in FIELDS}
    ns = (time.fillna(0).clip(0, MAX_MS) * 1e6).round().to_numpy(np.int64)
    return Events(columns, duration_ns=ns)


# -- Logs


BLOCK = 1 << 25  # bytes read at a time; a log may be larger than memory
NO_LINES = (
    "no line of oneDNN: run the program with ONEDNN_VERBOSE=1 (of old versions DNNL_VERBOSE=1)"
)


@record
class Log:
    """A log of oneDNN.

    ``events`` are in no particular order. ``unread`` are lines that should be events but are invalid;
    ``info`` are lines about the library and the machine.
    """

    source: tuple[str, ...]
    events: Events
    unread: tuple[str, ...]
    info: tuple[str, ...]


def load(*paths: Path) -> Log:
    """Read one or several logs; raises ReportError for a log without lines of oneDNN."""
    logs = [_load(path) for path in paths]
    return Log(
        tuple(path.name for path in paths),
        Events.concat([log.events for log in logs]),
        tuple(line for log in logs for line in log.unread),
        tuple(dict.fromkeys(line for log in logs for line in log.info)),
    )


def _load(path: Path) -> Log:
    try:
        with path.open("rb") as file:
            parts = list(pieces(_blocks(file)))
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror or error}") from error
    if not parts:
        raise NothingRecorded(f"{path.name}: {NO_LINES}")
    log = _joined(path.name, parts)
    if not len(log.events):
        raise NothingRecorded(f"{path.name}: {_reason_for_no_events(log)}")
    return log


def _joined(name: str, parts: list[Piece]) -> Log:
    return Log(
        (name,),
        Events.concat([piece.events for piece in parts]),
        tuple(line for piece in parts for line in piece.unread),
        tuple(dict.fromkeys(line for piece in parts for line in piece.info)),
    )


def _reason_for_no_events(log: Log) -> str:
    if log.unread:
        return f"no line of oneDNN could be read, such as {log.unread[0][:100]!r}; is it whole?"
    return "oneDNN ran nothing; did the program end before its work?"


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file in blocks that end with a line; a line longer than a block is split."""
    rest = b""
    while block := file.read(BLOCK):
        complete, newline, tail = block.rpartition(b"\n")
        if newline:
            yield rest + complete
            rest = tail
        else:
            yield rest
            rest = block
    yield rest


# -- What oneDNN logs of itself (``ONEDNN_VERBOSE=1``), as a frame; see docs/onednn.md


__all__ = ["Log", "load"]

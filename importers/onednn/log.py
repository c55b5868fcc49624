"""Logs of oneDNN as one frame of what was run and made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
import pandas as pd

from importers import frames
from importers.errors import NotAReport, NothingRecorded

# -- Which fields a line has: as the log's template says, or as the versions had them that print none


Layout = tuple[str, ...]

TIME = "exec_time"  # in ms
WITH_ATTRIBUTES: Layout = (  # since 1.2
    *("engine", "primitive", "implementation", "prop_kind", "memory_descriptors"),
    *("attributes", "auxiliary", "problem_desc", TIME),
)
WITH_ENGINE: Layout = tuple(f for f in WITH_ATTRIBUTES if f != "attributes")  # 1.0 and 1.1
FIRST: Layout = tuple(f for f in WITH_ENGINE if f != "engine")  # before 1.0
UNSAID = {len(layout): layout for layout in (WITH_ATTRIBUTES, WITH_ENGINE, FIRST)}

BEFORE = {"operation", "timestamp"}  # in a template, but no field of a layout
SAME = {"partition_kind": "primitive", "logical_tensors": "memory_descriptors"}  # in graph's


def layout(template: str, fields: int) -> Layout | None:
    """Return the layout of lines with so many fields, of which ``template`` tells ('' for none printed).

    A template of another number of fields is not theirs: a log may hold what several versions wrote. None where
    no version has so many.
    """
    told = tuple(SAME.get(f, f) for f in template.split(",") if f not in BEFORE)
    if len(told) == fields and told[-1] == TIME and "primitive" in told:
        return told
    return UNSAID.get(fields)


# -- Lines of a log, the program's own output among them, as columns


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


# -- Logs of oneDNN as one frame of what was run and made


BLOCK = 1 << 25  # bytes read at a time: a log may be larger than the memory
NOTHING = (
    "no line of oneDNN: run the program with ONEDNN_VERBOSE=1 (of old versions DNNL_VERBOSE=1)"
)


@dataclass(frozen=True)
class Log:
    """What oneDNN logged.

    ``events``: a row per execution or creation, in no particular order. ``component`` ("primitive", or "graph" of a
    partition, whose primitives have rows as well), ``operation`` ("exec", "create:cache_miss" …), the fields under
    the names of oneDNN's template ('' where the version has no such field), ``duration_ns`` (int64). ``unread`` are
    lines that should be events and are none; ``info`` what it says of the library and the machine.
    """

    source: tuple[str, ...]
    events: pd.DataFrame
    unread: tuple[str, ...]
    info: tuple[str, ...]


def load(*paths: Path) -> Log:
    """Read logs, put together. Raises ReportError, a line for the user, where one has no line of oneDNN."""
    logs = [_load(path) for path in paths]
    return Log(
        tuple(path.name for path in paths),
        frames.concat([log.events for log in logs]),
        tuple(line for log in logs for line in log.unread),
        tuple(dict.fromkeys(line for log in logs for line in log.info)),
    )


def _load(path: Path) -> Log:
    try:
        with path.open("rb") as file:
            found = list(pieces(_blocks(file)))
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror or error}") from error
    if not found:
        raise NothingRecorded(f"{path.name}: {NOTHING}")
    log = _together(path.name, found)
    if not len(log.events):
        raise NothingRecorded(f"{path.name}: {_none(log)}")
    return log


def _together(name: str, found: list[Piece]) -> Log:
    return Log(
        (name,),
        frames.concat([piece.events for piece in found]),
        tuple(line for piece in found for line in piece.unread),
        tuple(dict.fromkeys(line for piece in found for line in piece.info)),
    )


def _none(log: Log) -> str:
    if log.unread:
        return f"no line of oneDNN could be read, such as {log.unread[0][:100]!r}; is it whole?"
    return "oneDNN ran nothing; did the program end before its work?"


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file in blocks that end with a line; a line longer than a block is cut."""
    rest = b""
    while block := file.read(BLOCK):
        whole, newline, end = block.rpartition(b"\n")
        if newline:
            yield rest + whole
            rest = end
        else:
            yield rest
            rest = block
    yield rest

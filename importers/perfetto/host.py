"""The host of a trace as frames: ops, annotations and Python functions as ranges, CUDA API calls as launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints, lookup
from bridge.importers.frames import Names, distinct_keys
from bridge.importers.kineto.events import ANNOTATION, OP, PYTHON, clean_names
from bridge.importers.kineto.read import (
    CATEGORIES,
    COLLECTIVE_KEYS,
    DEFAULT_DOMAIN,
    DIMS,
    INPUT_DETAILS,
    MODULE,
    PYTHON_DOMAIN,
    Places,
    details_of,
    split_overloads,
)
from bridge.importers.perfetto.packets import Slices, Tracks
from bridge.importers.range_texts import OP_ID, SEQ, SIZES, name_lengths
from bridge.importers.records import record
from bridge.importers.texts import Texts

SEQUENCE, EXTERNAL = "Sequence number", "External id"
DETAILS = (*(name for _, name in INPUT_DETAILS), *COLLECTIVE_KEYS)
DIGITS = 20  # of an int64, with its sign


@record
class Threads:
    """The threads of the host by the rows of their tracks: those that slices are on."""

    tracks: Tracks
    places: Places
    thread: Ints
    process: Ints

    @classmethod
    def of(cls, tracks: Tracks, used: Ints) -> Threads:
        where = list(zip(tracks.pid[used].tolist(), tracks.tid[used].tolist(), strict=True))
        located = _Located(where)
        places, size = Places([located]), len(tracks.uuid)
        thread, process = (np.full(size, MISSING) for _ in range(2))
        thread[used], process[used] = places.thread(located), places.process(located)
        return cls(tracks, places, thread, process)

    def common(self, slices: Slices) -> dict[str, Any]:
        """Return the columns that say when and where slices were."""
        return {
            "start": slices.start,
            "end": slices.end,
            "thread": self.thread[slices.track],
            "process": self.process[slices.track],
        }

    def frames(self) -> tuple[frames.Threads, frames.Processes]:
        """Return the frames `threads` and `processes`."""
        tracks = self.tracks
        threads = [
            _named("thread_name", pid, tid, name)
            for pid, tid, name in zip(
                tracks.pid.tolist(), tracks.tid.tolist(), tracks.name, strict=True
            )
        ]
        processes = [_named("process_name", pid, 0, name) for pid, name in tracks.processes.items()]
        return self.places.threads(threads), self.places.processes(processes)


@record
class _Located:
    where: Sequence[tuple[Any, Any]]


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    """Return a name as traces in JSON have it."""
    return {"name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def launches(calls: Slices, threads: Threads) -> frames.Launches:
    """Return the frame `launches`."""
    correlation = calls.said.ints("correlation", len(calls))
    return frames.Launches(threads.common(calls), correlation=correlation, name=calls.name)


def ranges(slices: Slices, threads: Threads, *, with_json: bool) -> tuple[frames.Ranges, Texts]:
    """Return the frame `ranges`, in the order of the trace (outer before inner), and its texts."""
    category = slices.category.per_text(_category, CATEGORIES.index(OP)).astype(np.int64)
    is_op = category == CATEGORIES.index(OP)
    name, overload = _names(slices.name, is_op)
    text, texts = _texts(slices, name, is_op)
    code, names = texts.factorize(name_lengths(texts))
    is_python = (category == CATEGORIES.index(PYTHON)) & ~name.matching(lambda n: n.startswith(MODULE))  # fmt: skip
    domain = np.where(is_python, PYTHON_DOMAIN, DEFAULT_DOMAIN)
    columns = threads.common(slices) | {
        "name": Names(code[text], names),
        "kind": Names(np.zeros(len(slices), np.int64), frames.RANGE_KINDS),
        "category": Names(category, CATEGORIES),
        "json": _details(slices, overload) if with_json else Names.none(len(slices)),
        "text": text,
        "domain": domain,
        "domain_name": Names(domain, ("", PYTHON)),
    }
    return frames.Ranges(columns), texts


def _category(name: str) -> int:
    return CATEGORIES.index(name if name in (ANNOTATION, PYTHON) else OP)


def _names(name: Names, is_op: Any) -> tuple[Names, Names]:
    """Return the names without overloads, and the overloads."""
    code, first = distinct_keys(name.codes, is_op.astype(np.int64))
    split, overloads = split_overloads(name[first].tolist(), is_op[first].tolist())
    return clean_names(split)[code], clean_names(overloads)[code]


# -- Texts: `aten::mm, seq = 7, op_id = 5, sizes = [[2, 3], [3, 4]]`


def _texts(slices: Slices, name: Names, is_op: Any) -> tuple[Ints, Texts]:
    """Return the number of the text of each range, and the distinct texts."""
    size = len(slices)
    sequence, number = (slices.said.ints(key, size) for key in (SEQUENCE, EXTERNAL))
    dims, written = _sizes(slices)
    sequence, number, dims = (
        np.where(is_op & wanted, column, MISSING)
        for column, wanted in ((sequence, sequence >= 0), (number, number > 0), (dims, dims >= 0))
    )
    text, first = distinct_keys(name.codes, sequence, number, dims)
    parts = [(Texts.of(name.texts), name.codes[first])]
    for key, column in ((SEQ, sequence), (OP_ID, number)):
        parts += [_constant(key, column[first]), (_decimal(column[first]), np.arange(len(first)))]
    parts += [_constant(SIZES, dims[first]), (Texts.of(written), dims[first])]
    return text, _joined(parts)


def _sizes(slices: Slices) -> tuple[Ints, list[str]]:
    """Return the sizes of inputs as a code, -1 for none, and the distinct texts."""
    dims, values = slices.said.values(DIMS[0], len(slices))
    told = np.array([*(type(value) is list and bool(value) for value in values), False])
    return np.where(told[dims], dims, MISSING), [str(value) for value in values]


def _constant(text: bytes, values: Ints) -> tuple[Texts, Ints]:
    """Return a text where there is a value."""
    return Texts.of([text]), np.where(values == MISSING, MISSING, 0)


def _decimal(values: Ints) -> Texts:
    """Return numbers as digits, '' for -1."""
    digits = values.astype(f"S{DIGITS}")
    length = np.where(values == MISSING, 0, np.char.str_len(digits))
    start = DIGITS * np.arange(len(values))
    return Texts(digits.view(np.uint8), np.array([0])).slices(start, start + length)


def _joined(parts: Sequence[tuple[Texts, Ints]]) -> Texts:
    """Return one text a row, from the rows of parts, none where a row is -1."""
    pool = Texts.concat([texts for texts, _ in parts])
    places, first = [], 0
    for texts, row in parts:
        places.append(np.where(row == MISSING, MISSING, first + row))
        first += len(texts)
    flat = np.stack(places, 1).reshape(-1)
    start, end = lookup(pool.offsets[:-1], flat, 0), lookup(pool.offsets[1:], flat, 0)
    pieces = pool.slices(start, end)
    return Texts(pieces.data, pieces.offsets[:: len(parts)])


# -- Details as JSON


def _details(slices: Slices, overload: Names) -> Names:
    """Return overload, inputs and the arguments of a collective as JSON, '' for none."""
    size = len(slices)
    columns, values = zip(*(slices.said.values(key, size) for key in DETAILS), strict=True)
    code, first = distinct_keys(overload.codes, *columns)
    texts = [
        details_of(
            overload[row],
            {
                key: known[column[row]]
                for key, column, known in zip(DETAILS, columns, values, strict=True)
                if column[row] != MISSING
            },
        )
        for row in first.tolist()
    ]
    return clean_names(texts)[code]

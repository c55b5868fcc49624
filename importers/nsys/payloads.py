"""NCCL's calls: what their NVTX ranges say of a message, in payloads with schemas.

A payload is a blob. Its header is four 64-bit numbers: domain, schema, size of the payload, and where
the payload begins (some exports give the size of the whole blob instead). The schema lists fields by
offset and type. Fields are read by their names, so a schema that NCCL extends is still read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.frames import key_codes
from bridge.importers.nsys import schema
from bridge.importers.nsys.annotations import Annotations
from bridge.importers.records import record
from bridge.importers.sqlite_columns import Columns, ints_of, texts_of
from bridge.importers.texts import Texts

# -- Blobs


HEADER_BYTES = 32
WORD = 8
HEX = np.full(256, 255, np.uint8)
HEX[np.frombuffer(b"0123456789ABCDEFabcdef", np.uint8)] = [*range(16), *range(10, 16)]


class Blobs(NamedTuple):
    """The payloads of some rows: the block of bytes, and for each row where its payload is.

    ``domain`` and ``schema`` say how to read it. Rows with a header that is not understood have a
    ``size`` of -1.
    """

    data: NDArray[np.uint8]
    row: Ints
    domain: Ints
    schema: Ints
    start: Ints
    size: Ints

    @classmethod
    def of(cls, column: Texts) -> Blobs:
        """Read the headers of a column of blobs, which are bytes or hexadecimal digits."""
        rows = np.flatnonzero(column.sizes > 0)
        texts = column.take(rows)
        digits = HEX[texts.data] < len(HEX) - 1
        count = np.diff(np.append(0, np.cumsum(digits))[texts.offsets])
        is_hex = (count == texts.sizes) & (texts.sizes % 2 == 0)
        written, plain = np.flatnonzero(is_hex), np.flatnonzero(~is_hex)
        both = Texts.concat([_unhexed(texts.take(written)), texts.take(plain)])
        return cls._read(both, rows[np.concatenate((written, plain))])

    @classmethod
    def _read(cls, blobs: Texts, row: Ints) -> Blobs:
        is_long = blobs.sizes >= HEADER_BYTES
        start = np.where(is_long, blobs.offsets[:-1], len(blobs.data))  # zeros follow the block
        words = (blobs.words[start + WORD * number] for number in range(4))
        # A number over 2**63 becomes negative, which no field of a header is.
        domain, schema_id, size, place = (word.astype(np.int64) for word in words)
        room = blobs.sizes
        # Otherwise the last number is the size of all.
        is_place = (place >= HEADER_BYTES) & (place <= room) & (size <= room - place)
        is_whole = (place == room) & (size == room - HEADER_BYTES)
        is_known = is_long & (size >= 0) & (is_place | is_whole)
        begin = blobs.offsets[:-1] + np.where(is_place, place, HEADER_BYTES)
        return cls(
            data=blobs.data,
            row=row,
            domain=domain,
            schema=schema_id,
            start=begin,
            size=np.where(is_known, size, MISSING),
        )


def _unhexed(texts: Texts) -> Texts:
    """Return the bytes that an even number of hexadecimal digits in each text stand for."""
    digits = HEX[texts.data[texts.offsets[0] : texts.offsets[-1]]]
    pairs = (digits[0::2] << np.uint8(4)) | digits[1::2]
    return Texts(pairs.astype(np.uint8), (texts.offsets - texts.offsets[0]) // 2)


# -- Schemas


FORMATS = {  # NVTX_PAYLOAD_ENTRY_TYPE_*: integers, on a 64-bit machine
    1: "<i1", 2: "<u1", 3: "<i2", 4: "<u2", 5: "<i4", 6: "<u4", 7: "<i8", 8: "<u8", 9: "<i8", 10: "<u8",
    11: "<i1", 12: "<u1", 13: "<i2", 14: "<u2", 15: "<i4", 16: "<u4", 17: "<i8", 18: "<u8", 22: "<u8",
}  # fmt: skip
ENUM = "<i4"  # type of an entry whose type is an enumeration
FIRST_SCHEMA = 1 << 24  # smallest number of a registered schema or enumeration
INDIRECT = 0b111_1110  # flags of pointers and arrays
FIELDS = {  # names of entries in NCCL's schemas, and our columns
    "message size [bytes]": "bytes",
    "nccl communicator id": "communicator",
    "no. of ranks": "ranks",
    "rank": "rank",
    "peer rank": "peer",
    "root": "root",
    "reduction operation": "reduction",
}
NUMBERS = tuple(name for name in FIELDS.values() if name != "reduction")
# ncclRedOp_t of nccl.h, where an export has no names; larger numbers are operators of the program.
OPERATORS = {0: "sum", 1: "prod", 2: "max", 3: "min", 4: "avg"}


class Entry(NamedTuple):
    """A field of a schema: our column, its NumPy format, its offset, and its type."""

    column: str
    format: str
    offset: int
    type: int


@record
class Schemas:
    """The fields of NCCL's messages by domain and schema, and names of enumerated values.

    ``sizes`` are the bytes of every schema; one without a field of ours has no ``entries``.
    """

    sizes: Mapping[tuple[int, int], int]
    entries: Mapping[tuple[int, int], Sequence[Entry]]
    enums: Mapping[tuple[int, int], Mapping[int, str]]

    @classmethod
    def of(cls, schemas: Columns, entries: Columns, enums: Columns) -> Schemas:
        """Read the tables of schemas; of several with one number the first counts."""
        keys = zip(
            *(ints_of(schemas, c).tolist() for c in ("domain", "schema", "bytes")), strict=True
        )
        sizes: dict[tuple[int, int], int] = {}
        for domain, number, size in keys:
            sizes.setdefault((domain, number), size)
        return cls(sizes, _entries(entries, sizes), _enums(enums))


def _entries(
    columns: Columns, sizes: Mapping[tuple[int, int], int]
) -> dict[tuple[int, int], list[Entry]]:
    """Return the fields that we read of each schema, at most one of a name."""
    numbers = ("domain", "schema", "flags", "type", "offset")
    rows = zip(*(ints_of(columns, c).tolist() for c in numbers), strict=True)
    names = texts_of(columns, "name").decode()
    result: dict[tuple[int, int], list[Entry]] = {}
    known: set[tuple[int, int, str]] = set()
    for (domain, number, flags, kind, offset), name in zip(rows, names, strict=True):
        column = FIELDS.get(name.strip().lower())
        form = FORMATS.get(kind, ENUM if kind >= FIRST_SCHEMA else "")
        if column is None or not form or flags & INDIRECT or (domain, number, column) in known:
            continue
        known.add((domain, number, column))
        entry = Entry(column, form, max(0, offset), kind)
        size = sizes.get((domain, number), MISSING)
        if entry.offset + np.dtype(form).itemsize <= size:
            result.setdefault((domain, number), []).append(entry)
    return result


def _enums(columns: Columns) -> dict[tuple[int, int], dict[int, str]]:
    keys = zip(*(ints_of(columns, c).tolist() for c in ("domain", "schema", "value")), strict=True)
    result: dict[tuple[int, int], dict[int, str]] = {}
    for (domain, number, value), name in zip(keys, texts_of(columns, "name").decode(), strict=True):
        result.setdefault((domain, number), {}).setdefault(value, name.lower())
    return result


# -- Fields


@dataclass
class Messages:
    """What payloads say, a value per row of the table of NVTX events."""

    numbers: dict[str, Ints]
    reduction: NDArray[np.object_]
    is_read: NDArray[np.bool_]

    @classmethod
    def none(cls, rows: int) -> Messages:
        """Return messages of which nothing is known."""
        numbers = {name: np.full(rows, MISSING, np.int64) for name in NUMBERS}
        return cls(numbers, np.full(rows, "", object), np.zeros(rows, bool))

    def read(self, blobs: Blobs, schemas: Schemas) -> int:
        """Read payloads; return how many are damaged or of unknown schemas."""
        unread = int((blobs.size < 0).sum())
        known = np.flatnonzero(blobs.size >= 0)
        (code,) = key_codes((blobs.domain[known], blobs.schema[known]))
        order = np.argsort(code, kind="stable")
        edges = np.flatnonzero(np.diff(code[order], prepend=MISSING))
        for places in np.split(order, edges[1:]) if len(order) else ():  # of one schema each
            rows = known[places]
            key = int(blobs.domain[rows[0]]), int(blobs.schema[rows[0]])
            size = schemas.sizes.get(key, MISSING)
            is_whole = (blobs.size[rows] >= size) & (size >= 0)
            unread += int((~is_whole).sum())
            if entries := schemas.entries.get(key):
                self._take(blobs, rows[is_whole], entries, size)
                self._name(blobs.row[rows[is_whole]], entries, schemas, key[0])
        return unread

    def _take(self, blobs: Blobs, places: Ints, entries: Sequence[Entry], size: int) -> None:
        """Read the fields of payloads of one schema."""
        bytes_ = blobs.data[blobs.start[places][:, None] + np.arange(size)]
        layout = np.dtype(
            {
                "names": [entry.column for entry in entries],
                "formats": [entry.format for entry in entries],
                "offsets": [entry.offset for entry in entries],
                "itemsize": size,
            }
        )
        values = np.frombuffer(bytes_.tobytes(), layout)
        rows = blobs.row[places]
        self.is_read[rows] = True
        for entry in entries:
            column = values[entry.column].astype(np.int64)  # ids over 2**63 wrap, as in SQLite
            self.numbers.setdefault(entry.column, np.full(len(self.is_read), MISSING, np.int64))[
                rows
            ] = column

    def _name(self, rows: Ints, entries: Sequence[Entry], schemas: Schemas, domain: int) -> None:
        """Name the reductions of rows, each distinct value once."""
        kind = next((entry.type for entry in entries if entry.column == "reduction"), None)
        if kind is None:
            return
        names = {**OPERATORS, **schemas.enums.get((domain, kind), {})}
        values, code = np.unique(self.numbers["reduction"][rows], return_inverse=True)
        texts = [names.get(value, f"operator {value}") for value in values.tolist()]
        self.reduction[rows] = np.array(texts, object)[code] if len(rows) else texts

    def read_json(self, texts: frames.Names, rows: Ints) -> None:
        """Read the fields of payloads that an export has as JSON, each distinct text once."""
        codes = texts.codes
        rows = rows[codes[rows] >= 0]
        for code in np.unique(codes[rows]).tolist():  # one iteration per distinct text
            fields = _json_fields(texts.texts[code])
            if not fields:
                continue
            found = rows[codes[rows] == code]
            self.is_read[found] = True
            for name, value in fields.items():
                if name == "reduction":
                    self.reduction[found] = str(value).lower().removeprefix("nccl")
                elif (number := _integer(value)) is not None:
                    self.numbers[name][found] = number


def _json_fields(text: str) -> dict[str, Any]:
    """Return the fields of a payload in JSON by our names; none for other JSON."""
    if not any(name in text.lower() for name in ("message size", "no. of ranks")):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return {FIELDS[name]: v for key, v in _pairs(value) if (name := key.strip().lower()) in FIELDS}


def _pairs(value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the entries of nested objects."""
    most = 4
    for item in value if isinstance(value, list) and depth < most else ():
        yield from _pairs(item, depth + 1)
    for key, item in value.items() if isinstance(value, dict) and depth < most else ():
        yield str(key), item
        yield from _pairs(item, depth + 1)


def _integer(value: Any) -> int | None:
    """Return a whole number, as a number or a text; those over 2**63 wrap."""
    try:
        number = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        return None
    if type(number) is not int or not -(2**63) <= number < 2**64:
        return None
    return number - 2**64 if number >= 2**63 else number


# -- The frame


NCCL_NAME = re.compile(r"nccl[A-Z]")  # ncclAllReduce; PyTorch's ranges are called nccl:all_reduce


def nccl_calls(
    annotations: Annotations, read: Mapping[str, Columns]
) -> tuple[frames.NcclCalls, int]:
    """Return the frame `nccl_calls`, and the number of payloads that could not be read.

    The frame has the ranges of NCCL's functions with what their payloads say; it is empty if no
    payload says anything.
    """
    blobs = texts_of(read["annotations"], "blob")
    names = annotations.name
    is_range = np.isin(annotations.ints["type"], schema.PUSH_POP)
    rows = np.flatnonzero(names.matching(NCCL_NAME.match) & is_range)
    if not len(rows) and not len(blobs.data):
        return frames.NcclCalls(), 0
    messages, unread = Messages.none(len(blobs)), 0
    if len(blobs.data):
        tables = (read[f"payload_{part}"] for part in ("schemas", "entries", "enums"))
        unread = messages.read(Blobs.of(blobs), Schemas.of(*tables))
    messages.read_json(annotations.json, rows[~messages.is_read[rows]])
    if not messages.is_read[rows].any():
        return frames.NcclCalls(), unread
    ints = annotations.ints
    columns = {name: ints[name][rows] for name in ("start", "end", "thread", "process")}
    columns["end"] = np.where(
        columns["end"] == schema.NO_TIME, np.iinfo(np.int64).max, columns["end"]
    )
    numbers = {name: messages.numbers[name][rows] for name in NUMBERS}
    reduction = frames.Names.of(messages.reduction[rows].tolist())
    return (
        frames.NcclCalls(columns | numbers, name=names[rows], reduction=reduction),
        unread,
    )

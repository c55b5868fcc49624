"""Read and write the tables of a columnar export: streams of Apache Arrow, or files of Apache Parquet.

Every table gives its columns in batches. Of a stream of plain columns, as nsys writes it, only the
bytes of the wanted columns are read; nanoarrow would read all of them, and a damaged stream may end
the process there. pyarrow, which need not be installed, reads Parquet, and streams that are
compressed or have columns of other types.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import nanoarrow
import numpy as np
from nanoarrow.ipc import StreamWriter
from numpy.typing import NDArray

from bridge.importers.arrays import Ints
from bridge.importers.arrow_messages import (
    TABLE_NAME,
    TRUNCATED,
    DamagedStream,
    Field,
    RecordBatch,
    Stream,
    is_arrow,
    record_batch,
    schema,
    streams_of,
)
from bridge.importers.errors import NotAReport
from bridge.importers.records import record
from bridge.importers.sqlite_columns import batches

LOG = logging.getLogger("bridge.importers")

ARROW, PARQUET = ".arrow", ".parquet"
SUFFIXES = (ARROW, PARQUET)
# Ends of the names that nsys gives the folders.
FOLDERS = ARROW_FOLDER, PARQUET_FOLDER = ("_arwdir", "_pqtdir")
HEAD_BYTES = 8
PARQUET_HEAD = b"PAR1"
MAX_REASON = 300  # characters
MAX_ROWS_PER_BYTE = 200  # no table of events has as many: each has its own time

Batch = Mapping[str, Any]  # columns by name: `Column`, or views of nanoarrow
Present = Mapping[str, bool]  # columns: whether each is never NULL


class TableFile(Protocol):
    """A table: how messages call its file, its columns, and the number of its rows."""

    @property
    def label(self) -> str:
        """The name of the file for messages."""

    @property
    def columns(self) -> Present:
        """The columns, and for each whether it is never NULL."""

    @property
    def rows(self) -> int:
        """The number of rows."""

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield some columns of all rows; raises NotAReport if the file is damaged."""


def is_columnar(path: Path) -> bool:
    """Return whether a path is a folder that has tables, or a file of Arrow's or Parquet's."""
    if path.is_dir():
        return bool(files_of(path))
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    return is_arrow(head) or head.startswith(PARQUET_HEAD)


def files_of(path: Path) -> list[Path]:
    """Return the files of an export, which is a folder or a file; those of a folder by name."""
    if not path.is_dir():
        return [path]
    files = (file for file in path.iterdir() if file.suffix in SUFFIXES)
    return sorted(file for file in files if not file.name.startswith(".") and file.is_file())


def size_of(path: Path) -> int:
    """Return the bytes of an export, which is a folder or a file."""
    return sum(file.stat().st_size for file in files_of(path))


def open_tables(path: Path) -> dict[str, TableFile]:
    """Return the tables of an export by name; raises NotAReport if one of them is damaged."""
    files = files_of(path)
    if not path.is_dir():
        tables = {} if path.suffix == PARQUET else _arrow_tables(path, path.name)
        if len(tables) > 1:
            return tables
        raise NotAReport(f"{path.name}: one table of an export; name the folder that it is in")
    if len({file.suffix for file in files}) > 1:
        raise NotAReport(
            f"{path.name}: tables as Arrow and as Parquet in one folder; keep those of one export"
        )
    tables = {}
    for file in files:
        label = f"{path.name}/{file.name}"
        if file.suffix == PARQUET:
            tables[file.stem] = ParquetTable.open(file, label)
        else:
            [tables[file.stem], *others] = _arrow_tables(file, label).values()
            if others:
                raise damaged(label, "it holds several tables")
    return tables


# -- Arrow


DTYPES = {"half_float": "float16", "float": "float32", "double": "float64"}
TEXTS = ("uint8", "int32", "uint8")  # the validity of rows, offsets, bytes
LARGE_TEXTS = ("uint8", "int64", "uint8")
BUFFERS = {  # the types of the buffers of a column
    "null": (),
    "bool": ("uint8", "uint8"),
    "string": TEXTS,
    "binary": TEXTS,
    "large_string": LARGE_TEXTS,
    "large_binary": LARGE_TEXTS,
}


def _buffer_types(field: Field) -> tuple[str, ...]:
    """Return the types of the buffers of a plain column."""
    return BUFFERS.get(field.type, ("uint8", DTYPES.get(field.type, field.type)))


@dataclass(frozen=True)
class Column:
    """A column of a batch; it is called as in a view of nanoarrow, of which it has what is used."""

    storage_type: str
    length: int
    null_count: int
    buffers: tuple[NDArray[Any], ...]
    offset: int = 0
    dictionary: None = None

    def buffer(self, number: int) -> NDArray[Any]:
        return self.buffers[number]


@record
class ArrowTable:
    """A table in a stream of Arrow."""

    path: Path
    label: str
    stream: Stream
    fields: tuple[Field, ...]

    @property
    def columns(self) -> Present:
        return {field.name: not field.nullable for field in self.fields}

    @property
    def rows(self) -> int:
        return self.stream.rows

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        odd = [field.type for field in self.fields if not field.is_plain]
        try:
            with self.path.open("rb", buffering=0) as file:
                batches = [record_batch(file, place) for place in self.stream.batches]
                if odd or any(batch.is_compressed for batch in batches):
                    yield from self._with_pyarrow(names, odd[0] if odd else "compressed")
                else:
                    yield from (self._batch(file, batch, names) for batch in batches)
        except DamagedStream as error:
            raise damaged(self.label, str(error)) from error

    def _batch(self, file: BinaryIO, batch: RecordBatch, names: Sequence[str]) -> Batch:
        """Read some columns of a batch."""
        types = [_buffer_types(field) for field in self.fields]
        counts = [len(of) for of in types]
        if len(batch.nodes) != len(counts) or len(batch.buffers) != sum(counts):
            raise DamagedStream("a batch that has other columns than its table")
        if (batch.nodes[:, 0] != batch.rows).any():
            raise DamagedStream("columns of different lengths")
        first = np.cumsum([0, *counts]).tolist()
        places = {field.name: place for place, field in enumerate(self.fields)}
        result = {}
        for name in names:
            place = places[name]
            numbered = enumerate(types[place], first[place])
            buffers = tuple(_read(file, batch.buffers[n], type_) for n, type_ in numbered)
            nulls = int(batch.nodes[place, 1])
            result[name] = Column(self.fields[place].type, batch.rows, nulls, buffers)
        return result

    def _with_pyarrow(self, names: Sequence[str], what: str) -> Iterator[Batch]:
        """Yield the columns of a stream that has something that is not read here."""
        LOG.debug("%s: %s columns: read by pyarrow", self.label, what)
        try:
            import pyarrow as pa
        except ImportError as error:
            raise NotAReport(
                f"{self.label}: {what} columns, which pyarrow reads; pip install pyarrow"
            ) from error
        with self.path.open("rb") as file:
            file.seek(self.stream.position)
            try:
                table = pa.ipc.open_stream(file).read_all().select([*names])
                table.validate(full=True)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise damaged(self.label, str(error)) from error
        yield from _views(table, names)


def _read(file: BinaryIO, place: Ints, type_: str) -> NDArray[Any]:
    """Return the bytes of a buffer as numbers; ``place`` is its position and its length."""
    position, length = place.tolist()
    data = np.empty(length, np.uint8)
    view, done = memoryview(data.data), 0
    file.seek(position)
    while done < length:
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise DamagedStream(TRUNCATED)
        done += count
    dtype = np.dtype(type_)
    return data[: length - length % dtype.itemsize].view(dtype)


def _arrow_tables(path: Path, label: str) -> dict[str, TableFile]:
    """Return the tables of a file of streams by name; one without a name is called after the file."""
    tables: dict[str, TableFile] = {}
    try:
        streams = streams_of(path)
        with path.open("rb", buffering=0) as file:
            for stream in streams:
                check_rows(path, label, stream.rows)
                table = schema(file, stream.schema)
                name = table.table or path.stem
                if name in tables:
                    raise damaged(label, f"it holds the table {name} twice")
                tables[name] = ArrowTable(path, label, stream, table.fields)
    except DamagedStream as error:
        raise damaged(label, str(error)) from error
    if not tables:
        raise damaged(label, "it is empty")
    return tables


def write_texts(path: Path, table: str, columns: Mapping[str, Sequence[str]]) -> None:
    """Append a table of texts to a file of streams."""
    children = [nanoarrow.c_array(values, nanoarrow.string()) for values in columns.values()]
    struct = nanoarrow.c_schema(nanoarrow.struct(dict.fromkeys(columns, nanoarrow.string())))
    named = struct.modify(metadata={TABLE_NAME.decode(): table})
    rows = len(next(iter(columns.values())))
    batch = nanoarrow.c_array_from_buffers(named, rows, [None], children=children)
    with path.open("ab") as file, StreamWriter.from_writable(file) as writer:
        writer.write_stream(batch)


# -- Parquet


@record
class ParquetTable:
    """A table in a file of Parquet."""

    path: Path
    label: str
    columns: Present
    rows: int

    @classmethod
    def open(cls, path: Path, label: str) -> ParquetTable:
        """Open a file; raises NotAReport if pyarrow is not installed, or the file is damaged."""
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise NotAReport(
                f"{label}: reading Parquet needs pyarrow; pip install 'nsight-bridge[parquet]',"
                " or export with nsys export --type arrowdir"
            ) from error
        try:
            with parquet.ParquetFile(path) as file:
                columns = {column.name: not column.nullable for column in file.schema_arrow}
                rows = file.metadata.num_rows
        except (pa.ArrowException, OSError, ValueError) as error:
            raise damaged(label, str(error)) from error
        check_rows(path, label, rows)
        return cls(path, label, columns, rows)

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield some columns of all rows; raises NotAReport if the file is damaged."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self.path) as file:
                table = file.read([*names], use_threads=False).combine_chunks()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise damaged(self.label, str(error)) from error
        yield from _views(table, names)


def _views(table: Any, names: Sequence[str]) -> Iterator[Batch]:
    """Yield the columns of a table of pyarrow as views of nanoarrow."""
    place = {name: place for place, name in enumerate(table.column_names)}
    for batch in batches(table):
        yield {name: batch.child(place[name]) for name in names}


def check_rows(path: Path, label: str, rows: int) -> None:
    """Raise NotAReport if a table has more rows than a file of its size may expand to."""
    if rows > MAX_ROWS_PER_BYTE * path.stat().st_size:
        raise damaged(label, f"{rows} rows in {path.stat().st_size} bytes")


def damaged(label: str, reason: str) -> NotAReport:
    """Return the error for a file that cannot be read."""
    text = "".join(c if c.isprintable() else " " for c in reason[:MAX_REASON])
    return NotAReport(f"{label}: damaged ({' '.join(text.split())}); export or copy it again")

"""Open the tables of a columnar export: streams of Apache Arrow, or files of Apache Parquet.

Every table gives its columns in batches, as views of nanoarrow. nanoarrow reads Arrow; pyarrow, which
need not be installed, reads Parquet, and Arrow where nanoarrow cannot (compressed, in older versions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import nanoarrow
from nanoarrow.ipc import InputStream

from importers.arrow_messages import DamagedStream, Stream, is_arrow, streams_of
from importers.errors import NotAReport
from importers.sqlite_columns import batches

ARROW, PARQUET = ".arrow", ".parquet"
SUFFIXES = (ARROW, PARQUET)
FOLDERS = ("_arwdir", "_pqtdir")  # ends of the names that nsys gives the folders
HEAD_BYTES = 8
PARQUET_HEAD = b"PAR1"
TABLE_NAME = "table_name"  # in the metadata of a stream's schema
NOT_NULLABLE = 0  # flags of a column of the C data interface
NULLABLE = 2
MAX_REASON = 300  # characters

Batch = Mapping[str, Any]  # views of columns, by name
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
            tables[file.stem] = next(iter(_arrow_tables(file, label).values()))
    return tables


# -- Arrow


@dataclass(frozen=True)
class ArrowTable:
    """A table in a stream of Arrow."""

    path: Path
    label: str
    stream: Stream
    columns: Present

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.stream.rows

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield some columns of all rows; raises NotAReport if the file is damaged."""
        position = {name: place for place, name in enumerate(self.columns)}
        with self.path.open("rb") as file:
            file.seek(self.stream.position)
            try:
                for batch in batches(InputStream.from_readable(file)):
                    yield {name: batch.child(position[name]) for name in names}
            except RuntimeError as error:
                reason = str(error)
            else:
                return
        yield from self._with_pyarrow(names, reason)

    def _with_pyarrow(self, names: Sequence[str], reason: str) -> Iterator[Batch]:
        """Yield the columns of a stream that nanoarrow cannot read."""
        try:
            import pyarrow as pa
        except ImportError:
            raise damaged(self.label, f"{reason}; if it is compressed, install pyarrow") from None
        with self.path.open("rb") as file:
            file.seek(self.stream.position)
            try:
                table = pa.ipc.open_stream(file).read_all().select([*names])
            except (pa.ArrowException, OSError):
                raise damaged(self.label, reason) from None
        yield from _views(table, names)


def _arrow_tables(path: Path, label: str) -> dict[str, TableFile]:
    """Return the tables of a file of streams by name; one without a name is called after the file."""
    tables: dict[str, TableFile] = {}
    try:
        streams = streams_of(path)
        with path.open("rb", buffering=0) as file:
            for stream in streams:
                name, columns = _schema(file, stream.position)
                tables[name or path.stem] = ArrowTable(path, label, stream, columns)
    except (DamagedStream, RuntimeError, ValueError) as error:
        raise damaged(label, str(error)) from error
    if not tables:
        raise damaged(label, "it is empty")
    return tables


def _schema(file: BinaryIO, position: int) -> tuple[str, Present]:
    """Return the name of the table in a stream, "" if it is not said, and its columns."""
    file.seek(position)
    with nanoarrow.c_array_stream(InputStream.from_readable(file)) as stream:
        schema = stream.get_schema()
    metadata = dict(schema.metadata or {})
    name = metadata.get(TABLE_NAME) or metadata.get(TABLE_NAME.encode()) or b""
    columns = {column.name: not column.flags & NULLABLE for column in schema.children}
    return name.decode(errors="replace"), columns


# -- Parquet


@dataclass(frozen=True)
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
        except ImportError:
            raise NotAReport(
                f"{label}: reading Parquet needs pyarrow; pip install 'nsight-bridge[parquet]',"
                " or export with nsys export --type arrowdir"
            ) from None
        try:
            with parquet.ParquetFile(path) as file:
                columns = {column.name: not column.nullable for column in file.schema_arrow}
                return cls(path, label, columns, file.metadata.num_rows)
        except (pa.ArrowException, OSError) as error:
            raise damaged(label, str(error)) from error

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Yield some columns of all rows; raises NotAReport if the file is damaged."""
        import pyarrow as pa
        from pyarrow import parquet

        try:
            with parquet.ParquetFile(self.path) as file:
                table = file.read([*names], use_threads=False).combine_chunks()
        except (pa.ArrowException, OSError) as error:
            raise damaged(self.label, str(error)) from error
        yield from _views(table, names)


def _views(table: Any, names: Sequence[str]) -> Iterator[Batch]:
    """Yield the columns of a table of pyarrow as views of nanoarrow."""
    place = {name: place for place, name in enumerate(table.column_names)}
    for batch in batches(table):
        yield {name: batch.child(place[name]) for name in names}


def damaged(label: str, reason: str) -> NotAReport:
    """Return the error for a file that cannot be read."""
    text = "".join(c if c.isprintable() else " " for c in reason[:MAX_REASON])
    return NotAReport(f"{label}: damaged ({' '.join(text.split())}); export or copy it again")

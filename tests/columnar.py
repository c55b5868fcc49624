"""Exports of Nsight Systems as Arrow and Parquet, made of an SQLite export in the layouts that nsys writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

IDS = frozenset(
    "globalPid globalTid globalVid endGlobalTid domainId category rangeId priority utcEpochNs duration".split()
)
NARROW = {"eventType": pa.uint32(), "color": pa.uint32(), "textId": pa.uint32(), "deviceId": pa.int32(), "streamId": pa.uint32()}  # fmt: skip
DESCRIBED = {"field_desc": "what it is"}


def type_of(column: str, declared: str, text: pa.DataType) -> pa.DataType:
    """Return the type that nsys gives a column: 2022.4 writes texts as binary, 2023.4 as strings."""
    if declared == "TEXT":
        return text
    if declared == "BLOB":
        return pa.binary()
    if declared == "REAL":
        return pa.float32() if column == "floatValue" else pa.float64()
    return pa.uint64() if column in IDS else NARROW.get(column, pa.int64())


def column_of(values: Sequence[object], kind: pa.DataType) -> pa.Array:
    """Return a column of SQLite's values; what does not fit the type is NULL, as nsys has no mixed columns."""
    if pa.types.is_integer(kind):
        ints = pa.array([v if isinstance(v, int) else None for v in values], pa.int64())
        return ints.cast(kind, safe=False)
    if pa.types.is_floating(kind):
        return pa.array([float(v) if isinstance(v, (int, float)) else None for v in values], kind)
    data = pa.array(
        [v if isinstance(v, bytes) else str(v).encode() if v is not None else None for v in values],
        pa.binary(),
    )
    return data.cast(kind)


def tables_of(export: Path, text: pa.DataType | None = None) -> dict[str, pa.Table]:
    """Return the tables of an SQLite export, with the types that nsys gives their columns."""
    result = {}
    with closing(sqlite3.connect(f"file:{export}?mode=ro&immutable=1", uri=True)) as db:
        db.text_factory = bytes
        names = [
            name.decode()
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for name in names:
            described = db.execute(f'PRAGMA table_info("{name}")').fetchall()
            fields = [
                pa.field(c[1].decode(), type_of(c[1].decode(), c[2].decode(), text or pa.string()), not c[3], DESCRIBED)
                for c in described
            ]  # fmt: skip
            listed = ", ".join(f'"{field.name}"' for field in fields)
            rows = db.execute(f'SELECT {listed} FROM "{name}"').fetchall()
            values = [*zip(*rows, strict=True)] or [()] * len(fields)
            columns = [column_of(of, field.type) for of, field in zip(values, fields, strict=True)]
            schema = pa.schema(fields, {"table_name": name, "table_desc": "what it holds"})
            result[name] = pa.Table.from_arrays(columns, schema=schema)
    return result


def as_arrowdir(tables: Mapping[str, pa.Table], folder: Path, **options: object) -> Path:
    """Write one file with one stream per table."""
    folder.mkdir()
    for name, table in tables.items():
        with pa.OSFile(str(folder / f"{name}.arrow"), "wb") as file:
            write_stream(file, table, **options)
    return folder


def as_arrows(tables: Mapping[str, pa.Table], file: Path, **options: object) -> Path:
    """Write the streams of all tables into one file, one after another."""
    with pa.OSFile(str(file), "wb") as target:
        for table in tables.values():
            write_stream(target, table, **options)
    return file


def as_parquetdir(tables: Mapping[str, pa.Table], folder: Path, **options: object) -> Path:
    """Write one file of Parquet per table, in groups of 2048 rows; its first version has no uint32."""
    folder.mkdir()
    for name, table in tables.items():
        parquet.write_table(
            table, folder / f"{name}.parquet", version="1.0", row_group_size=2048, **options
        )
    return folder


def write_stream(
    target: pa.NativeFile, table: pa.Table, *, rows: int | None = None, **options: object
) -> None:
    with pa.ipc.new_stream(
        target, table.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as writer:
        writer.write_table(table, max_chunksize=rows)


FORMS: dict[str, Callable[[Mapping[str, pa.Table], Path], Path]] = {
    "_arwdir": as_arrowdir, ".arrows": as_arrows, "_pqtdir": as_parquetdir,
}  # fmt: skip

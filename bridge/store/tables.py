"""Tables and views of the store, and how an older store becomes one of this version."""

from __future__ import annotations

import fcntl
import json
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlite_utils import Database

from bridge.output import OutputError
from importers.errors import ReportError
from importers.frames import FRAMES, NAMES

VERSION = 10
PATIENCE_S = 30  # for the locks of others

# The tables for the frames: the frame's own columns, but for those kept elsewhere, and what the join found.
# ``launch``, ``range`` and ``parent`` are ids of the tables launches and ranges, so that SQL can join.
ELSEWHERE = {"activities": {"full_name", "mangled"}, "ranges": set[str]()}
FOUND = {"activities": ("launch", "range", "op", "reason"), "ranges": ("parent", "op")}
NAMED = (NAMES | {"op", "reason"}) - {"full_name", "mangled"}  # stored as ids of the table names
UNSAID = {
    "json": ""
}  # names that are NULL in the store, and a text in the frames, where there is none
SYMBOL = ("full_name", "mangled")  # other names of what names.id stands for, where it is a kernel
SUMMARIES = {
    "op": "op_summary",
    "op-kernel": "op_kernel_summary",
    "kernel": "kernel_summary",
    "memcpy": "memcpy_summary",
}
RENAMED_KINDS = {"copy": "memcpy", "fill": "memset"}  # of activities, up to version 9
# What Nsight Compute measured: metrics and rules by the number of a measured kernel, and which that is of an activity.
MEASURED: Mapping[str, Mapping[str, type]] = {
    "metrics": {"kernel": int, "metric": int, "unit": int, "value": float, "text": int},
    "metric_rules": {
        **dict.fromkeys(("kernel", "section", "rule", "kind", "text", "scope"), int),
        "speedup": float,
    },
    "measured": {"activity": int, "kernel": int, "match": int},
}
# What was made of a report without keeping its rows: its tables, each in a row, by the report's number.
AGGREGATES = {"run": int, "report": int, "table": str, "data": bytes}
VIEWS = {
    "kernels": """
SELECT a.run, a.id, k.text AS kernel, o.text AS op, r.text AS reason,
 (WITH RECURSIVE up(range, path) AS (SELECT a.range, NULL UNION ALL
   SELECT g.parent, n.text || coalesce('/' || up.path, '') FROM up JOIN ranges g ON g.id = up.range
   JOIN names n ON n.id = g.op) SELECT path FROM up WHERE range IS NULL) AS path,
 a.start, a.end, a.end - a.start AS duration_ns, a.process, a.device, a.stream, a.correlation,
 a.grid_x, a.grid_y, a.grid_z, a.block_x, a.block_y, a.block_z
FROM activities a JOIN names k ON k.id = a.name
JOIN names i ON i.id = a.kind AND i.text = 'kernel'
LEFT JOIN names o ON o.id = a.op LEFT JOIN names r ON r.id = a.reason""",
    "calls": """
SELECT r.run, r.id, n.text AS name, o.text AS op, r.start, r.end, r.end - r.start AS duration_ns,
 r.thread, r.process, coalesce(r.text, n.text) AS text
FROM ranges r JOIN names n ON n.id = r.name JOIN names o ON o.id = r.op""",
}
VIEWS_OF_METRICS = {
    "kernel_metrics": """
SELECT d.run, d.activity, k.text AS kernel, o.text AS op, a.end - a.start AS duration_ns,
 n.text AS metric, m.value, t.text, u.text AS unit, h.text AS match
FROM measured d JOIN activities a ON a.id = d.activity JOIN names k ON k.id = a.name
JOIN metrics m ON m.run = d.run AND m.kernel = d.kernel JOIN names n ON n.id = m.metric
LEFT JOIN names o ON o.id = a.op LEFT JOIN names u ON u.id = m.unit
LEFT JOIN names t ON t.id = m.text LEFT JOIN names h ON h.id = d.match""",
    "kernel_rules": """
SELECT d.run, d.activity, k.text AS kernel, o.text AS op, a.end - a.start AS duration_ns,
 n.text AS rule, i.text AS kind, t.text, s.text AS scope, m.speedup, h.text AS match
FROM measured d JOIN activities a ON a.id = d.activity JOIN names k ON k.id = a.name
JOIN metric_rules m ON m.run = d.run AND m.kernel = d.kernel JOIN names n ON n.id = m.rule
LEFT JOIN names o ON o.id = a.op LEFT JOIN names i ON i.id = m.kind
LEFT JOIN names t ON t.id = m.text LEFT JOIN names s ON s.id = m.scope
LEFT JOIN names h ON h.id = d.match""",
}


FOREIGN = "not a store of nsight-bridge; choose another --db"


class StoreError(ReportError):
    """The store cannot be used; the message says why and what to do."""


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open the store with sqlite-utils, its schema brought up to date; commits at a good end."""
    _there(path)
    try:
        # Absolute, for SQLite may take a name that begins with "file:" for an address.
        connection = sqlite3.connect(path.absolute(), timeout=PATIENCE_S)
        try:
            database = Database(connection)
            _up_to_date(path, database)
            yield database
            connection.commit()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        if "not a database" in str(error):
            raise StoreError(f"{path}: {FOREIGN}") from error
        kind = getattr(error, "sqlite_errorname", "")  # Python's own errors have none
        closed = kind.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY"))
        advice = "; is it a file, and may you write to it?" if closed else ""
        raise OutputError(f"{path}: {error}{advice}") from error


@contextmanager
def alone(path: Path, *, create: bool = False) -> Iterator[None]:
    """Keep other writers out: what one has not finished looks to the next like a dead import's; ``create`` makes the file.

    Not one of SQLite's locks, which end with each connection: it lasts as long as the block.
    """
    if not create:
        _there(path)
    try:
        file = path.open("ab")
    except OSError as error:
        raise OutputError(f"{path}: {error.strerror}; choose another --db") from error
    with file:
        with suppress(OSError):  # a file system without locks, as clusters have them
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _there(path: Path) -> None:
    if not path.exists():
        raise StoreError(
            f"{path}: no store here; 'bridge import REPORT' makes one, or name a report"
        )


def stored(kind: str) -> tuple[str, ...]:
    """Return the columns that the table for a frame has besides ``id`` and ``run``."""
    own = (c for c in FRAMES[kind] if c not in ELSEWHERE.get(kind, ()))
    return (*own, *FOUND.get(kind, ()))


def _up_to_date(path: Path, database: Database) -> None:
    if _version(path, database) == VERSION:
        return
    database.conn.execute(
        "BEGIN IMMEDIATE"
    )  # others see all of the schema or none, and one makes it
    for step in range(_version(path, database), VERSION):
        MIGRATIONS[step](database)
        database.execute(f"PRAGMA user_version = {step + 1}")
    database.conn.commit()


def _version(path: Path, database: Database) -> int:
    with database.atomic():  # both of the same moment: another process may be making the store
        version = int(database.execute("PRAGMA user_version").fetchone()[0])
        names = database.table_names()
    if version > VERSION:
        raise StoreError(
            f"{path}: made by a newer nsight-bridge (schema {version}, this is {VERSION})"
        )
    if names and not (version and {"runs", "extents"} <= set(names)):
        raise StoreError(f"{path}: {FOREIGN}")
    return version


def _first(database: Database) -> None:
    """Make the schema."""
    runs = _columns(
        "id activities gpu_ns attributed_ns ops", "created identity source version rules"
    )
    database.table("runs").create(runs, pk="id")
    reports = _columns("run report span_start span_end", "source product schema warnings")
    database.table("reports").create(reports, pk=("run", "report"))
    database.table("extents").create(_columns("run first last", "table"), pk=("run", "table"))
    database.table("names").create(_columns("id run", " ".join(("text", *SYMBOL))), pk="id")
    for kind in FRAMES:
        columns = {c: _type(kind, c) for c in stored(kind)}
        # A key of its own keeps the rows of a run together through VACUUM: see extents.
        database.table(kind).create({"id": int, "run": int, **columns}, pk="id")
    for table, columns in _summary_columns().items():
        database.table(table).create({"run": int, **columns})
    for name, sql in VIEWS.items():
        database.create_view(name, sql.strip())


def _second(database: Database) -> None:
    """Add what frames have by now: waits, kinds of memory, JSON payloads; later what is known of GPUs, and memory."""
    for kind in FRAMES:
        table, there = database.table(kind), set[str]()
        if table.exists():
            there = {column.name for column in table.columns}
        else:
            table.create({"id": int, "run": int}, pk="id")
            there = {"id", "run"}
        for column in stored(kind):
            if column not in there:
                table.add_column(column, _type(kind, column))


def _third(database: Database) -> None:
    """Add what came with recordings: when a report's times are 0, and what the program said of itself."""
    there = {column.name for column in database.table("reports").columns}
    for name, kind in (("epoch_ns", int), ("metadata", str)):
        if name not in there:
            database.table("reports").add_column(name, kind)


def _fifth(database: Database) -> None:
    """Add what runs are called."""
    if "name" not in {column.name for column in database.table("runs").columns}:
        database.table("runs").add_column("name", str)


def _seventh(database: Database) -> None:
    """Add what Nsight Compute measured, and of which of its reports."""
    if "ncu" not in {column.name for column in database.table("runs").columns}:
        database.table("runs").add_column("ncu", str)
    for table, columns in MEASURED.items():
        database.table(table).create(
            {"id": int, "run": int, **columns}, pk="id", if_not_exists=True
        )
    for name, sql in VIEWS_OF_METRICS.items():
        database.create_view(name, sql.strip(), ignore=True)


def _eighth(database: Database) -> None:
    """Add what the profiler says of itself, what else it recorded, and what captures are worth."""
    _second(database)
    for table, column, kind in (("runs", "quality", int), ("reports", "beside", str)):
        if column not in {c.name for c in database.table(table).columns}:
            database.table(table).add_column(column, kind)


def _ninth(database: Database) -> None:
    """Add runs of aggregates, of many reports; and what an import says, to be said again."""
    added = (("runs", "tables"), ("reports", "aggregates"), ("runs", "totals"), ("runs", "worth"))
    for table, column in added:
        if column not in {c.name for c in database.table(table).columns}:
            database.table(table).add_column(column, str)
    database.table("aggregates").create(
        AGGREGATES, pk=("run", "report", "table"), if_not_exists=True
    )


def _tenth(database: Database) -> None:
    """Call memcpys and memsets by these words, which were memcpys and memsets: columns, tables and kinds."""
    names = database.table_names()
    if "copy_summary" in names:
        database.execute("ALTER TABLE copy_summary RENAME TO memcpy_summary")
    for old, new in (("copies", "memcpys"), ("fills", "memsets")):
        if old in {column.name for column in database.table("op_summary").columns}:
            database.execute(f"ALTER TABLE op_summary RENAME COLUMN {old} TO {new}")
    for old, new in RENAMED_KINDS.items():
        # A name that a run uses for something else too stays: `loading` knows both words.
        database.execute(
            "UPDATE names SET text = ? WHERE text = ? AND id IN (SELECT kind FROM activities)"
            " AND id NOT IN (SELECT name FROM ranges) AND id NOT IN (SELECT op FROM ranges WHERE op IS NOT NULL)"
            " AND id NOT IN (SELECT name FROM activities) AND id NOT IN (SELECT name FROM launches)",
            [new, old],
        )
    for run, report, table, data in list(database.execute("SELECT * FROM aggregates")):
        database.execute(
            'UPDATE aggregates SET "table" = ?, data = ? WHERE run = ? AND report = ? AND "table" = ?',
            [_renamed_table(table), _renamed_data(data), run, report, table],
        )
    for run, tables in list(
        database.execute("SELECT id, tables FROM runs WHERE tables IS NOT NULL")
    ):
        listed = json.dumps([_renamed_table(one) for one in json.loads(tables)])
        database.execute("UPDATE runs SET tables = ? WHERE id = ?", [listed, run])


def _renamed_table(name: str) -> str:
    """Return the name of a table of aggregates, as `op,copy` or `copy memory_kinds`, in the words of now."""
    by, *options = name.split(" ")
    parts = sorted(RENAMED_KINDS.get(one, one) for one in by.split(","))
    return " ".join([",".join(parts), *options])


def _renamed_data(data: bytes) -> bytes:
    """Return a table of aggregates, as `bridge.scale.merging` packs it, with the columns and kinds of now."""
    plain = zlib.decompress(data)
    size = 8 + int.from_bytes(plain[:8], "little")
    head = json.loads(plain[8:size])
    words = {"sum copies": "sum memcpys", "sum fills": "sum memsets"}
    head["columns"] = [[words.get(name, name), *rest] for name, *rest in head["columns"]]
    if "kind" in head["texts"]:
        head["texts"]["kind"] = [RENAMED_KINDS.get(one, one) for one in head["texts"]["kind"]]
    text = json.dumps(head).encode()
    return zlib.compress(len(text).to_bytes(8, "little") + text + plain[size:], 6)


MIGRATIONS: list[Callable[[Database], None]] = [
    *(_first, _second, _third, _second, _fifth, _second, _seventh, _eighth, _ninth, _tenth),
]


def _columns(integers: str, texts: str) -> dict[str, type]:
    return {**dict.fromkeys(integers.split(), int), **dict.fromkeys(texts.split(), str)}


def _type(kind: str, column: str) -> type:
    return str if (kind, column) == ("ranges", "text") else int


def _summary_columns() -> dict[str, dict[str, type]]:
    times = {"count": int, "total_ns": int, "mean_ns": float, "min_ns": int, "max_ns": int}
    counts = dict.fromkeys(("calls", "kernels", "memcpys", "memsets", "graphs"), int)
    sums = dict.fromkeys(
        ("gpu_self_ns", "gpu_total_ns", "gpu_busy_ns", "cpu_self_ns", "cpu_total_ns"), int
    )
    per_call = {"gpu_mean_ns": float, "gpu_p50_ns": float, "gpu_p95_ns": float, "gpu_max_ns": int}
    return {
        "op_summary": {"op": str, **counts, **sums, **per_call, "share": float},
        "op_kernel_summary": {"op": str, "kernel": str, **times},
        "kernel_summary": {"kernel": str, **times, "median_ns": float, "share": float},
        "memcpy_summary": {"operation": str, **times, "bytes": int, "gb_per_s": float},
    }

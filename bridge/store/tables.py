"""Tables and views of the store, and the migrations from older versions."""

from __future__ import annotations

import fcntl
import json
import logging
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from sqlite_utils import Database

from bridge.importers.errors import ReportError
from bridge.importers.frames import FRAMES
from bridge.join.attributed import DIRECTIONS
from bridge.knowledge.kernels import readable_names
from bridge.output import OutputError

VERSION = 18
PATIENCE_S = 30  # for locks of other processes

# The tables for the frames have the columns of the frame and those of the attribution.
# ``launch``, ``range`` and ``parent`` are ids of the tables launches and ranges, so that SQL can join.
ELSEWHERE = {"activities": {"full_name", "mangled"}, "ranges": set[str]()}
FOUND = {"activities": ("launch", "range", "op", "reason"), "ranges": ("parent", "op")}
NAMES = {c for frame in FRAMES.values() for c, kind in frame.types.items() if kind == "Names"}
NAMED = (NAMES | {"op", "reason"}) - {"full_name", "mangled"}  # stored as ids of the table names
UNSAID = {
    "json": ""
}  # names that are NULL in the store, and a text in the frames, where there is none
SYMBOL = ("full_name", "mangled")  # further recorded names of a kernel with this id of names
READABLE = "readable"  # the name of a kernel in tables, where it differs from the short one
TEXTS = ("text", *SYMBOL, READABLE)  # the columns of the table of names
SUMMARIES = {
    "op": "op_summary",
    "op-kernel": "op_kernel_summary",
    "kernel": "kernel_summary",
    "memcpy": "memcpy_summary",
}
RENAMED_KINDS = {"copy": "memcpy", "fill": "memset"}  # of activities, up to version 9
# Metrics and rules of Nsight Compute by the number of a measured kernel, and the activity it was matched to.
MEASURED: Mapping[str, Mapping[str, type]] = {
    "metrics": {"kernel": int, "metric": int, "unit": int, "value": float, "text": int},
    "metric_rules": {
        **dict.fromkeys(("kernel", "section", "rule", "kind", "text", "scope"), int),
        "speedup": float,
    },
    "measured": {"activity": int, "kernel": int, "match": int},
}
# Tables of reports whose rows are not stored: one table per row, by the number of the report.
AGGREGATES = {"run": int, "report": int, "table": str, "data": bytes}
VIEWS = {
    "kernels": """
SELECT a.run, a.id, coalesce(k.readable, k.text) AS kernel, k.text AS short_name,
 coalesce(k.full_name, k.text) AS full_name, o.text AS op, r.text AS reason,
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
    "kernel_metrics": """
SELECT d.run, d.activity, coalesce(k.readable, k.text) AS kernel, o.text AS op, a.end - a.start AS duration_ns,
 n.text AS metric, m.value, t.text, u.text AS unit, h.text AS match
FROM measured d JOIN activities a ON a.id = d.activity JOIN names k ON k.id = a.name
JOIN metrics m ON m.run = d.run AND m.kernel = d.kernel JOIN names n ON n.id = m.metric
LEFT JOIN names o ON o.id = a.op LEFT JOIN names u ON u.id = m.unit
LEFT JOIN names t ON t.id = m.text LEFT JOIN names h ON h.id = d.match""",
    "kernel_rules": """
SELECT d.run, d.activity, coalesce(k.readable, k.text) AS kernel, o.text AS op, a.end - a.start AS duration_ns,
 n.text AS rule, i.text AS kind, t.text, s.text AS scope, m.speedup, h.text AS match
FROM measured d JOIN activities a ON a.id = d.activity JOIN names k ON k.id = a.name
JOIN metric_rules m ON m.run = d.run AND m.kernel = d.kernel JOIN names n ON n.id = m.rule
LEFT JOIN names o ON o.id = a.op LEFT JOIN names i ON i.id = m.kind
LEFT JOIN names t ON t.id = m.text LEFT JOIN names s ON s.id = m.scope
LEFT JOIN names h ON h.id = d.match""",
}


LOG = logging.getLogger("bridge.store")

UPGRADED = "%s: upgraded from schema %d to %d; an older nsight-bridge no longer reads it"
FOREIGN = "not a store of nsight-bridge; choose another --db"


class StoreError(ReportError):
    """The store cannot be used; the message says why and what to do."""


def damaged(path: Path, run: int, problem: str) -> StoreError:
    """Return the error for a run whose rows are not what was stored."""
    remedy = f"remove it ('bridge runs rm {run}') and import its report again"
    return StoreError(f"{path}: run {run} is damaged: {problem}; {remedy}")


class Connection(sqlite3.Connection):
    """A connection whose `with` leaves a transaction open that had begun before.

    sqlite-utils 4 does so by itself; sqlite-utils 3 puts every call into ``with connection``, which
    would commit each table of a migration.
    """

    _inside = False

    def __enter__(self) -> Self:
        self._inside = self.in_transaction
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Literal[False]:
        return False if self._inside else super().__exit__(kind, error, trace)


@contextmanager
def open_store(path: Path) -> Iterator[Database]:
    """Open the store with sqlite-utils and migrate it to this version; commit unless the block raises."""
    _there(path)
    try:
        # Absolute: SQLite may take a name that begins with "file:" for a URI.
        connection = sqlite3.connect(path.absolute(), timeout=PATIENCE_S, factory=Connection)
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
        reason = " ".join(str(error).split())
        raise OutputError(f"{path}: {reason}{advice}") from error
    except UnicodeDecodeError as error:  # of a table's name
        raise StoreError(f"{path}: damaged ({error}); choose another --db") from error


@contextmanager
def exclusive_writer(path: Path, *, create: bool = False) -> Iterator[None]:
    """Keep other writers out of the store within the block; ``create`` makes the file.

    Without it the rows of an unfinished import would look like those of a dead one. SQLite's own
    locks do not do: they end with each connection.
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


def stored_columns(table: str) -> dict[str, type]:
    """Return the columns of a large table with their types, without ``id`` and ``run``."""
    if table == "names":
        return dict.fromkeys(TEXTS, str)
    if table in MEASURED:
        return dict(MEASURED[table])
    return {column: _type(table, column) for column in frame_columns(table)}


def frame_columns(kind: str) -> tuple[str, ...]:
    """Return the columns of the table for a frame, without ``id`` and ``run``."""
    own = (c for c in FRAMES[kind].types if c not in ELSEWHERE.get(kind, ()))
    return (*own, *FOUND.get(kind, ()))


def _up_to_date(path: Path, database: Database) -> None:
    if _version(path, database) == VERSION:
        return
    database.conn.execute("BEGIN IMMEDIATE")  # other processes see all of the schema or none
    before = _version(path, database)
    for step in range(before, VERSION):
        MIGRATIONS[step](database)
        database.execute(f"PRAGMA user_version = {step + 1}")
    database.conn.commit()
    if 0 < before < VERSION:
        LOG.warning(UPGRADED, path, before, VERSION)


def _version(path: Path, database: Database) -> int:
    # One statement reads both: another process may be making the store.
    rows = database.execute(
        "SELECT user_version, name FROM pragma_user_version LEFT JOIN sqlite_master ON type = 'table'"
    ).fetchall()
    version, names = int(rows[0][0]), {name for _, name in rows if name}
    if version > VERSION:
        raise StoreError(
            f"{path}: made by a newer nsight-bridge (schema {version}, this is {VERSION})"
        )
    if names and not (version and {"runs", "extents"} <= names):
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
        columns = {c: _type(kind, c) for c in frame_columns(kind)}
        # A separate key keeps the rows of a run together through VACUUM: see extents.
        database.table(kind).create({"id": int, "run": int, **columns}, pk="id")
    for table, columns in _summary_columns().items():
        database.table(table).create({"run": int, **columns})


def _second(database: Database) -> None:
    """Add waits, kinds of memory, JSON payloads, facts of GPUs, and allocations."""
    for kind in FRAMES:
        table, existing = database.table(kind), set[str]()
        if table.exists():
            existing = {column.name for column in table.columns}
        else:
            table.create({"id": int, "run": int}, pk="id")
            existing = {"id", "run"}
        for column in frame_columns(kind):
            if column not in existing:
                table.add_column(column, _type(kind, column))


def _third(database: Database) -> None:
    """Add facts of recordings: the epoch of a report, and what the program recorded of itself."""
    existing = {column.name for column in database.table("reports").columns}
    for name, kind in (("epoch_ns", int), ("metadata", str)):
        if name not in existing:
            database.table("reports").add_column(name, kind)


def _fifth(database: Database) -> None:
    """Add names of runs."""
    if "name" not in {column.name for column in database.table("runs").columns}:
        database.table("runs").add_column("name", str)


def _seventh(database: Database) -> None:
    """Add metrics of Nsight Compute and the names of its reports."""
    if "ncu" not in {column.name for column in database.table("runs").columns}:
        database.table("runs").add_column("ncu", str)
    for table, columns in MEASURED.items():
        database.table(table).create(
            {"id": int, "run": int, **columns}, pk="id", if_not_exists=True
        )


def _eighth(database: Database) -> None:
    """Add overhead and diagnostics of the profiler, and the quality of captures."""
    _second(database)
    for table, column, kind in (("runs", "quality", int), ("reports", "beside", str)):
        if column not in {c.name for c in database.table(table).columns}:
            database.table(table).add_column(column, kind)


def _ninth(database: Database) -> None:
    """Add runs of aggregates, and the lines that an import prints."""
    added = (("runs", "tables"), ("reports", "aggregates"), ("runs", "totals"), ("runs", "worth"))
    for table, column in added:
        if column not in {c.name for c in database.table(table).columns}:
            database.table(table).add_column(column, str)
    database.table("aggregates").create(
        AGGREGATES, pk=("run", "report", "table"), if_not_exists=True
    )


def _tenth(database: Database) -> None:
    """Rename copies and fills to memcpys and memsets: columns, tables and kinds."""
    names = database.table_names()
    if "copy_summary" in names:
        database.execute("ALTER TABLE copy_summary RENAME TO memcpy_summary")
    for old, new in (("copies", "memcpys"), ("fills", "memsets")):
        if old in {column.name for column in database.table("op_summary").columns}:
            database.execute(f"ALTER TABLE op_summary RENAME COLUMN {old} TO {new}")
    for old, new in RENAMED_KINDS.items():
        # A name that a run also uses for something else stays: `loading` reads both words.
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
        listed = json.dumps([_renamed_table(name) for name in json.loads(tables)])
        database.execute("UPDATE runs SET tables = ? WHERE id = ?", [listed, run])


def _twelfth(database: Database) -> None:
    """Say in the names of aggregates that kernels have short names in them."""
    for run, report, table in list(
        database.execute('SELECT run, report, "table" FROM aggregates').fetchall()
    ):
        database.execute(
            'UPDATE aggregates SET "table" = ? WHERE run = ? AND report = ? AND "table" = ?',
            [_with_kernel_names(table), run, report, table],
        )
    for run, tables in list(
        database.execute("SELECT id, tables FROM runs WHERE tables IS NOT NULL")
    ):
        listed = json.dumps([_with_kernel_names(name) for name in json.loads(tables)])
        database.execute("UPDATE runs SET tables = ? WHERE id = ?", [listed, run])


def _with_kernel_names(table: str) -> str:
    """Return the name of a table of aggregates of version 10, with how it names kernels."""
    by, *options = table.split(" ")
    if "kernel" not in by.replace("-", ",").split(",") or {"demangled", "mangled"} & set(options):
        return table
    is_last = options[-1:] and options[-1] in DIRECTIONS
    place = len(options) - 1 if is_last else len(options)
    return " ".join([by, *options[:place], "short", *options[place:]])


def _renamed_table(name: str) -> str:
    """Return the name of a table of aggregates in the words of this version."""
    by, *options = name.split(" ")
    parts = sorted(RENAMED_KINDS.get(text, text) for text in by.split(","))
    return " ".join([",".join(parts), *options])


def _renamed_data(data: bytes) -> bytes:
    """Return a packed table of aggregates with the columns and kinds of this version."""
    plain = zlib.decompress(data)
    size = 8 + int.from_bytes(plain[:8], "little")
    head = json.loads(plain[8:size])
    words = {"sum copies": "sum memcpys", "sum fills": "sum memsets"}
    head["columns"] = [[words.get(name, name), *rest] for name, *rest in head["columns"]]
    if "kind" in head["texts"]:
        head["texts"]["kind"] = [RENAMED_KINDS.get(name, name) for name in head["texts"]["kind"]]
    text = json.dumps(head).encode()
    return zlib.compress(len(text).to_bytes(8, "little") + text + plain[size:], 6)


def _eleventh(database: Database) -> None:
    """Add the summary that an import prints, as JSON."""
    if "summary" not in {column.name for column in database.table("runs").columns}:
        database.table("runs").add_column("summary", str)


def _thirteenth(database: Database) -> None:
    """Add readable names of kernels, the length of captures, checksums, and the views of today."""
    added = (
        ("names", READABLE, str), ("reports", "session_ns", int),
        ("runs", "checksum", int), ("extents", "checksums", str),
    )  # fmt: skip
    for table, column, kind in added:
        if column not in {c.name for c in database.table(table).columns}:
            database.table(table).add_column(column, kind)
    kernels = database.execute(
        "SELECT id, text, coalesce(full_name, text) FROM names WHERE id IN (SELECT a.name"
        " FROM activities a JOIN names k ON k.id = a.kind AND k.text = 'kernel')"
    ).fetchall()
    names = readable_names((short, full) for _, short, full in kernels)
    database.conn.executemany(
        "UPDATE names SET readable = ? WHERE id = ? AND text != ?",
        [(name, number, name) for name, (number, *_) in zip(names, kernels, strict=True)],
    )
    for name, sql in VIEWS.items():
        database.execute(f"DROP VIEW IF EXISTS {name}")
        database.create_view(name, sql.strip())


def _fourteenth(database: Database) -> None:
    """Add the calls of the operating system."""
    _second(database)


def _fifteenth(database: Database) -> None:
    """Add context switches, the calls of NCCL with their messages, and samples of GPU metrics."""
    _second(database)


def _sixteenth(database: Database) -> None:
    """Add what API calls returned, and the times of processes by their calls of the operating system, as JSON."""
    _second(database)
    if "system_spans" not in {column.name for column in database.table("reports").columns}:
        database.table("reports").add_column("system_spans", str)


def _seventeenth(database: Database) -> None:
    """Add the streams of contexts."""
    _second(database)


def _eighteenth(database: Database) -> None:
    """Add labels of runs."""
    if "label" not in {column.name for column in database.table("runs").columns}:
        database.table("runs").add_column("label", str)


MIGRATIONS: list[Callable[[Database], None]] = [
    *(_first, _second, _third, _second, _fifth, _second, _seventh, _eighth, _ninth, _tenth),
    _eleventh,
    _twelfth,
    _thirteenth,
    _fourteenth,
    _fifteenth,
    _sixteenth,
    _seventeenth,
    _eighteenth,
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

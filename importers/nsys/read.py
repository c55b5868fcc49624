"""Read an export of Nsight Systems into a `Capture`. Its files are never written to."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints, factorize, lookup
from bridge.importers.arrow_columns import ColumnarExport
from bridge.importers.capture import Capture, Facts, check_durations
from bridge.importers.column_files import files_of, is_columnar
from bridge.importers.device_work import is_next_to_nothing
from bridge.importers.errors import NotAReport, NothingRecorded
from bridge.importers.nsys import diagnostics_text, schema
from bridge.importers.nsys.annotations import Annotations, Strings, api_name, pool_texts
from bridge.importers.nsys.devices import activities, cuda_streams, memory, waits
from bridge.importers.nsys.gpu_metrics import gpu_metrics
from bridge.importers.nsys.payloads import nccl_calls
from bridge.importers.nsys.ranks import host_and_ranks, name_value_pairs
from bridge.importers.nsys.reading_log import log_tables
from bridge.importers.nsys.stacks import call_chains
from bridge.importers.nsys.tables import (
    FLAG,
    Column,
    Details,
    Present,
    Table,
    has_detail,
    requested_side,
)
from bridge.importers.nsys.times import (
    is_possible,
    origin_of_tables,
    with_possible_times,
)
from bridge.importers.query import Query
from bridge.importers.records import record
from bridge.importers.sqlite_columns import Columns, Database, ints_of, texts_of
from bridge.importers.texts import Texts, unique_names

# -- Devices


def has_no_gpu(read: Mapping[str, Columns]) -> bool:
    """Return whether an export says that the recorded machine had no GPU; False where it says nothing."""
    if len(ints_of(read["gpus"], "gpu")):
        return False
    facts = dict(name_value_pairs(read["system"]))
    return "0" in {facts.get(schema.DRIVER), facts.get(schema.DISCRETE_GPU)}


def devices(read: dict[str, Columns], on_device: frames.Activities) -> frames.Devices:
    """Return the frame `devices`: a row per (process, device number) that was used."""
    used = frames.used_devices(on_device)
    process, device = on_device.process[used], on_device.device[used]
    gpus = read["gpus"]
    gpu = _gpu_numbers(process, device, read)
    rows = {number: row for row, number in enumerate(ints_of(gpus, "gpu").tolist())}
    row = np.array([rows.get(number, MISSING) for number in gpu.tolist()], np.int64)
    names = [*texts_of(gpus, "name").decode(), ""]
    facts = {name: lookup(ints_of(gpus, name), row) for name in frames.DEVICE_FACTS}
    name = frames.Names.of(names[r] for r in row.tolist())
    return frames.Devices(facts, process=process, device=device, gpu=gpu, name=name)


def _gpu_numbers(process: Ints, device: Ints, read: dict[str, Columns]) -> Ints:
    declared = [ints_of(read["devices"], c).tolist() for c in ("pid", "device", "gpu")]
    gpu_of: dict[tuple[int, int], int] = {}
    for pid, number, gpu in zip(*declared, strict=True):
        # Processes of two machines may have the same pid: two GPUs are ambiguous.
        gpu_of[pid, number] = gpu if gpu_of.get((pid, number), gpu) == gpu else MISSING
    gpus = read["gpus"]
    by_number = dict(
        zip(ints_of(gpus, "device").tolist(), ints_of(gpus, "gpu").tolist(), strict=True)
    )
    keys = zip(((process >> 24) & schema.THREAD_BITS).tolist(), device.tolist(), strict=True)
    result = [gpu_of.get((pid, number), by_number.get(number, MISSING)) for pid, number in keys]
    return np.array(result, np.int64)


# -- The profiler: its overhead, its messages, and other records, which cost time


def overhead(columns: Columns, strings: Strings) -> frames.Overhead:
    """Return the frame `overhead`: a row per interval in which the profiler worked on a thread."""
    ints = {name: ints_of(columns, name) for name in columns}
    return frames.Overhead(
        ints, process=_process(ints["thread"]), name=strings.column(ints["name"])
    )


def system_calls(columns: Columns, strings: Strings) -> frames.SystemCalls:
    """Return the frame `system_calls`: a row per call of the operating system's runtime."""
    ints = {name: ints_of(columns, name) for name in columns}
    rows = np.flatnonzero(~np.isin(ints["event"], schema.TRACING_EVENTS))
    ints = {name: frames.pick(column, rows) for name, column in ints.items()}
    return frames.SystemCalls(
        ints, process=_process(ints["thread"]), name=strings.column(ints["name"])
    )


def spans_by_process(parts: Iterable[Columns], origin: int) -> Columns:
    """Return the first start and the last end of some events of each process, a row per process.

    An event without a possible end counts by its start, one without a possible start not at all.
    """
    spans: dict[int, tuple[int, int]] = {}
    for part in parts:
        start, end, thread = (ints_of(part, name) for name in ("start", "end", "thread"))
        rows = np.flatnonzero(is_possible(start, origin))
        start, end, process = start[rows], end[rows], _process(thread[rows])
        end = np.where(is_possible(end, origin), np.maximum(start, end), start)
        code, processes = factorize(process)
        for number, key in enumerate(processes.tolist()):  # one iteration per process
            of_process = code == number
            first, last = int(start[of_process].min()), int(end[of_process].max())
            known = spans.get(key, (first, last))
            spans[key] = min(first, known[0]), max(last, known[1])
    columns = np.array([(key, *span) for key, span in spans.items()], np.int64).reshape(-1, 3).T
    return dict(zip(("process", "start", "end"), columns, strict=True))


def context_switches(columns: Columns, *working: frames.HostEvents) -> frames.ContextSwitches:
    """Return the frame `context_switches`: a row for each time that a thread begins or ceases to run on a CPU.

    Only threads that have rows in one of the ``working`` frames are kept: nsys records those of
    the whole system, if asked to.
    """
    ints = {name: ints_of(columns, name) for name in columns}
    threads = [table.thread for table in working]
    rows = np.flatnonzero(np.isin(ints["thread"], np.unique(np.concatenate(threads))))
    kept = {name: frames.pick(column, rows) for name, column in ints.items()}
    return frames.ContextSwitches(
        kept, process=_process(kept["thread"]), on_cpu=kept["on_cpu"] != 0
    )


def diagnostics(columns: Columns, strings: Strings) -> frames.Diagnostics:
    """Return the frame `diagnostics`: a row per message; 0 stands for an unknown severity."""
    ints = {name: ints_of(columns, name) for name in columns if name != "text"}
    severity = ints["severity"]
    is_known = (severity > 0) & (severity < len(frames.SEVERITIES))
    pool, text = pool_texts(texts_of(columns, "text"), ints["text_id"], strings)
    name = frames.Names(
        *unique_names(text, [" ".join(message.split()) for message in pool.decode()])
    )
    return frames.Diagnostics(ints, severity=np.where(is_known, severity, 0), name=name)


def _all_diagnostics(
    read: Mapping[str, Columns], strings: Strings, *, idle: bool
) -> frames.Diagnostics:
    """Return the frame `diagnostics` with the quoted lines of the program below the messages of the profiler."""
    messages = diagnostics(read["diagnostics"], strings)
    lines = diagnostics_text.quotes(read["streams"], strings, idle=idle)
    lines += diagnostics_text.rates(read["streams"], strings)
    quoted = diagnostics_text.as_diagnostics(lines)
    return frames.Diagnostics.concat([messages, quoted]) if lines else messages


Export = Database | ColumnarExport


def count_other_records(database: Export, tables: Mapping[str, Present]) -> dict[str, int]:
    """Return the number of other records by name; names without any are left out."""
    present = {
        kind: table.name for kind, table in schema.COUNTED_TABLES.items() if table.name in tables
    }
    bounds = database.bounds(present.values())
    counts = {kind: bounds[name][1] - bounds[name][0] + 1 for kind, name in present.items()}
    return {kind: rows for kind, rows in counts.items() if rows > 0}


def _process(thread: Ints) -> Ints:
    return np.where(thread == MISSING, MISSING, thread & ~schema.THREAD_BITS)


# -- The capture


HEADER = b"SQLite format 3\0"
HEADER_BYTES = 100


def read(path: Path, *, details: Details = True) -> Capture:
    """Read an export; raises a `ReportError` if it is damaged or not a profile.

    Columns that only describe single rows are missing, except for the requested ``details``.
    """
    with open_export(path) as database:
        columns = _columns(path, database, details=details)
        skipped = schema.SKIPPED[requested_side(details)]
        is_requested = has_detail(details, schema.OVERHEAD.detail)
        other_records = count_other_records(database, database.tables()) if is_requested else {}
    return to_capture(path, columns, other_records, skipped=skipped)


@contextmanager
def open_export(path: Path) -> Iterator[Export]:
    """Open an export of any form: SQLite, a folder of tables, a file of Arrow's.

    Raises NotAReport if it is damaged, or is written to meanwhile.
    """
    columnar = is_columnar(path)
    if not columnar:
        check_file(path)
    before = _sizes_and_times(path)
    with ColumnarExport(path) if columnar else Database(path) as export:
        yield export
    if _sizes_and_times(path) != before:
        raise NotAReport(f"{path.name}: changed while it was read; wait until nsys has finished")


def _sizes_and_times(path: Path) -> list[tuple[str, int, int]]:
    """Return the name, the size and the time of the last change of each file of an export."""
    stats = [(file.name, file.stat()) for file in files_of(path)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def check_file(path: Path) -> os.stat_result:
    """Check, without SQLite, that the file is a complete database that nobody writes to."""
    if is_columnar(path):
        raise NotAReport(
            f"{path.name}: an export as Arrow or Parquet, where only SQLite can be read;"
            " give the .nsys-rep, or export it with nsys export --type sqlite"
        )
    with path.open("rb") as file:
        head = file.read(HEADER_BYTES)
    if len(head) < HEADER_BYTES or not head.startswith(HEADER):
        raise NotAReport(
            f"{path.name}: not an SQLite database; give an export of nsys or an .nsys-rep"
        )
    for suffix in ("-wal", "-journal"):
        journal = path.with_name(path.name + suffix)
        # Unlike Path.exists, access is False where the name is too long for a file.
        if os.access(journal, os.F_OK) and journal.stat().st_size:
            raise NotAReport(
                f"{path.name}: {journal.name} beside it holds changes not yet merged;"
                " wait until its writer has finished, or open it once with sqlite3"
            )
    _check_size(path, head)
    return path.stat()


def _check_size(path: Path, head: bytes) -> None:
    """Compare the size with the header's number of pages (sqlite.org/fileformat.html, 1.3)."""
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages, counter, valid_for = (
        int.from_bytes(head[start : start + 4], "big") for start in (28, 24, 92)
    )
    size = path.stat().st_size
    expected = pages * page if counter == valid_for else size  # not every writer counts pages
    if expected != size or not page or size % page:
        raise NotAReport(
            f"{path.name}: {size} bytes where its header says {pages} pages of {page}:"
            " truncated or still being written; export or copy it again"
        )


def readable_tables(path: Path, database: Export) -> Mapping[str, Present]:
    """Return the tables of an export; raises NotAReport if one of them is a computed view."""
    tables = database.tables()
    needed = {table.name for table in schema.READ.values()}
    for view in sorted(needed & database.computed_views()):
        raise NotAReport(
            f"{path.name}: {view} is a view that does more than select columns of one table;"
            f" write its rows into a table called {view}, with CREATE TABLE ... AS SELECT"
        )
    return tables


def export_queries(
    path: Path, tables: Mapping[str, Present], *, details: Details
) -> dict[str, Query]:
    """Return the query of each table that the export has.

    Raises NotAReport if the database is no export of Nsight Systems, or has an unknown schema.
    """
    if schema.STRINGS.name not in tables:
        form = "a folder of tables" if path.is_dir() else "a file of tables"
        form = "an SQLite database" if not is_columnar(path) else form
        raise NotAReport(f"{path.name}: {form}, but not an Nsight Systems export")
    try:
        queries = {
            name: table.query(tables, details=details)
            for name, table in schema.READ.items()
            if name not in schema.SKIPPED[requested_side(details)]
        }
        if (
            not queries.get("call_chains") and "launches" in queries
        ):  # the ids of call stacks say nothing without these
            queries["launches"] = schema.LAUNCHES.without("chain").query(tables, details=details)
    except NotAReport as error:
        raise NotAReport(f"{path.name}: {error}") from error
    return {name: query for name, query in queries.items() if query}


def _columns(path: Path, database: Export, *, details: Details) -> dict[str, Columns]:
    tables = readable_tables(path, database)
    queries = export_queries(path, tables, details=details)
    result = database.read(queries)
    log_tables(
        path, tables, queries=queries, read=result, skipped=schema.SKIPPED[requested_side(details)]
    )
    rest = schema.ANNOTATIONS.rest(tables, details=details)
    if take_flags(result.get("annotations", {})) and rest:
        result["annotations"] |= database.read({"rest": rest})["rest"]
    every = {
        name: with_all_columns(table, result.get(name, {})) for name, table in schema.READ.items()
    }
    spans = [every["system_spans"]]
    every["system_spans"] = spans_by_process(spans, origin_of_tables(every))
    has_payloads = isinstance(
        database, Database
    )  # columnar exports are read without binary columns
    if has_payloads and (query := _python_stacks(tables, every, details=details)):
        every |= database.read({"python_stacks": query})
    names = schema.OVERHEAD_NAMES.query(tables)
    if names and "overhead" not in result and diagnostics_text.lacks_events(every):
        every["overhead_names"] = database.read({"names": names})["names"]
    return every


def _python_stacks(
    tables: Mapping[str, Present], every: Mapping[str, Columns], *, details: Details
) -> Query | None:
    """Return the query for the payloads with Python stacks, None where there cannot be any."""
    table = schema.ANNOTATIONS.name
    has_payloads = schema.PYTHON_PAYLOAD in tables.get(table, {})
    if not has_payloads or not has_detail(details, schema.CALL_CHAINS.detail):
        return None
    if not (ints_of(every["annotations"], "type") == schema.DOMAIN_NAME).any():
        return None
    columns = {
        "time": '"start"',
        "thread": f'coalesce("globalTid", {MISSING})',
        "domain": 'coalesce("domainId", 0)',
    }
    columns["payload"] = f"coalesce(hex(\"{schema.PYTHON_PAYLOAD}\"), '')"
    return Query(table, columns, frozenset(["payload"]))


def take_flags(columns: Columns) -> bool:
    """Remove the flags from the types of annotations; return whether any was set."""
    types = ints_of(columns, "type") if columns else np.empty(0, np.int64)
    is_flagged = bool((types >= FLAG).any())
    if is_flagged:
        columns["type"] = types & (FLAG - 1)
    return is_flagged


def with_all_columns(table: Table, columns: Columns) -> Columns:
    """Return all columns of a table; those that were not read are missing in every row."""
    rows = len(next(iter(columns.values()))) if columns else 0
    return {
        name: _replace_none(columns[name], column)
        if name in columns
        else _missing_values(column, rows)
        for name, column in table.columns.items()
    }


def _missing_values(column: Column, rows: int) -> Ints | Texts:
    """Return a column that is missing in every row."""
    if column.text:
        return Texts(np.empty(0, np.uint8), np.broadcast_to(np.int64(0), rows + 1))
    return np.broadcast_to(np.int64(column.missing), (rows,))


def _replace_none(values: Ints | Texts, column: Column) -> Ints | Texts:
    """Return the values with the missing value in place of the export's own one."""
    if column.none is None or isinstance(values, Texts) or not len(values):
        return values
    if values.strides == (0,):  # one value in all rows
        value = column.missing if values[0] == column.none else values[0]
        return np.broadcast_to(np.int64(value), (len(values),))
    return np.where(values == column.none, column.missing, values)


@record
class ExportFacts:
    """The facts of an export of which only a part is read.

    ``last`` is when open ranges end, in ns; ``callers`` are the processes with calls or
    activities. ``origin`` is an instant of the capture in ns, from which no possible time is far away.
    """

    facts: Facts
    last: int
    callers: Ints
    origin: int


def to_capture(
    path: Path,
    read: dict[str, Columns],
    other_records: Mapping[str, int],
    export: ExportFacts | None = None,
    *,
    skipped: Collection[str] = (),
) -> Capture:
    """Return the capture of an export's columns.

    ``export`` holds the facts of the whole export if the columns are only a part of it. ``skipped``
    are tables that were not to be read: nothing is said of them.
    """
    origin = export.origin if export else origin_of_tables(read)
    read, left_out = with_possible_times(read, origin)
    strings = Strings(ints_of(read["strings"], "id"), texts_of(read["strings"], "value"))
    annotations = Annotations.of(read["annotations"], strings)
    launches = _launches(read["launches"], strings)
    on_device = activities(read, strings, export.callers if export else None)
    last = export.last if export else _span(launches, on_device)[1]
    ranges, marks = annotations.ranges(last, session_ns(read)), annotations.marks()
    calls, unread = nccl_calls(annotations, read)
    if export:  # a part of it is not judged: it may hold little work by chance
        facts, messages = export.facts, frames.Diagnostics()
    else:
        tables = (ranges, launches, on_device, marks)
        facts = _facts(path, read, tables=tables, left_out=left_out, skipped=skipped)
        if unread:
            warning = f"{file_name(path)}: {_unread(unread)}"
            facts = replace(facts, warnings=(*facts.warnings, warning))
        is_idle = is_next_to_nothing(on_device, launches, facts.span[1] - facts.span[0])
        messages = _all_diagnostics(read, strings, idle=is_idle)
    return Capture(
        source=(file_name(path),),
        facts=(replace(facts, beside=other_records),),
        ranges=ranges,
        launches=launches,
        activities=on_device,
        marks=marks,
        graph_nodes=_graph_nodes(read),
        waits=waits(read, launches),
        cuda_streams=cuda_streams(read["cuda_streams"], launches, on_device),
        memory=memory(read["memory"], launches),
        overhead=overhead(read["overhead"], strings),
        system_calls=system_calls(read["system_calls"], strings),
        context_switches=context_switches(read["context_switches"], ranges, launches),
        nccl_calls=calls,
        gpu_metrics=gpu_metrics(read["gpu_metrics"], read["gpu_metric_names"]),
        diagnostics=messages,
        threads=_threads(read["threads"], strings),
        processes=_processes(read["processes"]),
        devices=devices(read, on_device),
        texts=annotations.texts,
        chains=call_chains(read, strings, annotations, launches),
    )


def _unread(payloads: int) -> str:
    """Return the warning on payloads of NVTX that are damaged or that no schema describes."""
    of = "payload of NVTX is" if payloads == 1 else "payloads of NVTX are"
    return f"{payloads} {of} damaged or without a schema, and not read"


def _facts(
    path: Path,
    read: Mapping[str, Columns],
    tables: tuple[frames.Ranges, frames.Launches, frames.Activities, frames.Marks],
    left_out: int,
    skipped: Collection[str],
) -> Facts:
    """Return the facts; ``tables`` are ranges, launches, activities and marks."""
    timed = tables[:3]
    opaque = int(tables[2].kind.among(frames.GRAPH).sum())
    check_durations(path.name, timed)
    rows = [len(table) for table in timed]
    result = export_facts(
        path, read, rows=rows, opaque=opaque, span=_span(*tables), left_out=left_out
    )
    # What is not read is not missing.
    return replace(result, warnings=()) if skipped else result


def file_name(path: Path) -> str:
    """Return the name of a file as text; file names may hold any bytes."""
    return os.fsencode(path.name).decode(errors="replace")


def export_facts(
    path: Path,
    read: Mapping[str, Columns],
    rows: Sequence[int],
    opaque: int,
    span: tuple[int, int],
    *,
    left_out: int,
) -> Facts:
    """Return the facts of an export.

    ``rows`` counts ranges, API calls and activities, ``opaque`` the graphs that were traced as a
    whole, ``left_out`` the rows at impossible times. Raises a `ReportError` if there are no rows.
    """
    if not sum(rows):
        raise NothingRecorded(diagnostics_text.nothing_recorded(path.name, read), source=path.name)
    name = file_name(path)
    warnings = _warnings(name, read, rows, opaque)
    if left_out:
        warnings += (
            f"{name}: {left_out} instants, samples and calls at times that no capture has: left out",
        )
    return Facts(
        *_versions(read),
        span,
        warnings,
        _epoch(read),
        host_and_ranks(read),
        session_ns=session_ns(read),
        system_spans=_system_spans(read["system_spans"]),
    )


def _system_spans(columns: Columns) -> dict[int, tuple[int, int]]:
    process, start, end = (ints_of(columns, name).tolist() for name in ("process", "start", "end"))
    return dict(zip(process, zip(start, end, strict=True), strict=True))


def session_ns(read: Mapping[str, Columns]) -> int:
    """Return the length of the capture in ns, or -1 if the export does not state a possible one."""
    lengths = ints_of(read["session"], "duration")
    return int(lengths[is_possible(lengths, 0)].max(initial=MISSING))


def _launches(columns: Columns, strings: Strings) -> frames.Launches:
    ints = {name: ints_of(columns, name) for name in columns}
    process = frames.process_of(ints["thread"])
    name = strings.column(ints["name"], clean=api_name)
    return frames.Launches(ints, process=process, name=name)


def _graph_nodes(read: dict[str, Columns]) -> frames.GraphNodes:
    """Return the frame `graph_nodes`, from the table that has them."""
    ints = {name: ints_of(read["graph_nodes"], name) for name in read["graph_nodes"]}
    if not len(ints["node"]):
        old = {name: ints_of(read["graph_nodes_old"], name) for name in ints}
        nodes = np.flatnonzero(old["node"] != MISSING)  # the others are creations of graphs
        ints = {name: column[nodes] for name, column in old.items()}
    return frames.GraphNodes(ints, process=frames.process_of(ints["thread"]))


def _span(*tables: frames.Records) -> tuple[int, int]:
    """Return the first and the last time of some frames."""
    columns = [t[c] for t in tables for c in ("time", "start", "end") if c in t.types]
    filled = [column for column in columns if len(column)]
    if not filled:
        return (0, 0)
    return min(int(c.min()) for c in filled), max(int(c.max()) for c in filled)


def _versions(read: Mapping[str, Columns]) -> tuple[str, str]:
    known: dict[str, str] = {}
    for name in ("versions_old", "versions"):
        pairs = texts_of(read[name], "name").decode(), texts_of(read[name], "value").decode()
        known |= dict(zip(*pairs, strict=True))
    return known.get(schema.PRODUCT_VERSION, ""), known.get(schema.SCHEMA_VERSION, "")


def _epoch(read: Mapping[str, Columns]) -> int:
    """Return the ns of the epoch at which times are 0; -1 if unknown or of several sessions."""
    result = set(ints_of(read["epoch"], "epoch").tolist())
    return int(result.pop()) if len(result) == 1 else MISSING


def _threads(columns: Columns, strings: Strings) -> frames.Threads:
    """Return the frame `threads`; the name of highest priority counts, then by letter."""
    thread, priority = ints_of(columns, "thread"), ints_of(columns, "priority")
    name = strings.column(ints_of(columns, "name"))
    letters = np.argsort(np.argsort(np.array(name.texts, object)))[name.codes]
    order = np.lexsort((letters, -priority, thread))
    rows = order[np.unique(thread[order], return_index=True)[1]]
    thread = thread[rows]
    return frames.Threads(
        thread=thread, process=frames.process_of(thread), name=frames.Names.of(name[rows])
    )


def _processes(columns: Columns) -> frames.Processes:
    name = frames.Names.of(texts_of(columns, "name").decode())
    return frames.Processes(process=ints_of(columns, "process"), name=name)


def _warnings(
    name: str, read: Mapping[str, Columns], rows: Sequence[int], opaque: int
) -> tuple[str, ...]:
    """Return the warnings; ``rows`` counts ranges, launches and activities."""
    lines = diagnostics_text.missing(read, rows, no_gpu=has_no_gpu(read))
    if opaque:
        lines.append(
            f"{opaque} CUDA graph launches are recorded as a whole;"
            " nsys profile --cuda-graph-trace=node shows the kernels in them"
        )
    return tuple(f"{name}: {text}" for text in lines)

"""The events of an SQLite export of Nsight Systems, read row by row for the plain loops of `witness/account.py`."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from witness.account import IDLE, WORK, Activity, Call, Events, Range, Span, clipped, finish

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
STATE_OF = {
    KERNELS: "compute",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "other",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
}
CALLS = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")
COMMUNICATION = re.compile(r"(void )?nccl", re.IGNORECASE)
INTERVALS = (59, 60)  # push/pop and start/end ranges


def rows(database: sqlite3.Connection, table: str, *columns: str) -> Iterator[tuple]:
    """Yield the rows of a table; a column that it lacks is None, a table that is not there has no rows."""
    there = {name for _, name, *_ in database.execute(f'PRAGMA table_info("{table}")')}
    if there:
        listed = ", ".join(name if name in there else f"NULL AS {name}" for name in columns)
        yield from database.execute(f'SELECT {listed} FROM "{table}"')


def events_of(path: Path) -> Events:
    """Return what an export holds; a process is its number with that of its host, a GPU its number in its machine."""
    with closing(
        sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as database:
        database.text_factory = lambda text: text.decode(errors="replace")
        texts = dict(rows(database, "StringIds", "id", "value"))
        gpu_of = {
            (pid, device): gpu
            for pid, device, gpu in rows(
                database, "TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId"
            )
        }
        ranges = [
            Range(thread >> 24, start, end)
            for kind, start, end, thread in rows(
                database, "NVTX_EVENTS", "eventType", "start", "end", "globalTid"
            )
            if kind in INTERVALS and start is not None
        ]
        calls, launches = [], {}
        for table in CALLS:
            for start, end, thread, correlation in rows(
                database, table, "start", "end", "globalTid", "correlationId"
            ):
                calls.append(Call(thread >> 24, start, end))
                launches.setdefault((thread >> 24, correlation), start)
        of_system = [
            Call(thread >> 24, start, end)
            for start, end, thread in rows(database, "OSRT_API", "start", "end", "globalTid")
        ]
        work = []
        for table, state in STATE_OF.items():
            for start, end, device, owner, name, correlation in rows(
                database, table, "start", "end", "deviceId", "globalPid", "demangledName", "correlationId",
            ):  # fmt: skip
                process = owner >> 24
                gpu = gpu_of.get((process & 0xFFFFFF, device), (process, device))
                talks = table == KERNELS and COMMUNICATION.match(texts.get(name) or "")
                work.append(
                    Activity(
                        process,
                        gpu,
                        start,
                        end,
                        "communication" if talks else state,
                        launches.get((process, correlation)),
                    )
                )
    return Events(ranges, calls, of_system, work)


def swept(work: Sequence[Activity], span: Span) -> tuple[dict[str, int], int]:
    """Return the time of each state, and of exposed communication, of the work of a GPU: edge by edge, for large exports."""
    edges = []
    for one in work:
        start, end = clipped((one.start, finish(one)), span)
        edges += [(start, 1, one.state), (end, -1, one.state)]
    times, exposed, at = dict.fromkeys((*WORK, IDLE), 0), 0, span[0]
    running = dict.fromkeys(WORK, 0)
    for time, change, state in sorted([*edges, (span[1], 0, WORK[0])]):
        now = next((known for known in WORK if running[known]), IDLE)
        times[now] += time - at
        exposed += time - at if running["communication"] and not running["compute"] else 0
        at, running[state] = time, running[state] + change
    return times, exposed

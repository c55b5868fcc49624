"""Writes exports by the tables' and columns' own names, with just the columns that the rows have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

PID = 7 << 24
TID = PID | 7
TEXTS = {"text", "value", "name", "metricName"}
NVTX, STRINGS = "NVTX_EVENTS", "StringIds"
CALLS, KERNELS = "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES, FILLS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
METRICS, METRIC_NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
GRAPHS, SESSION = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "ANALYSIS_DETAILS"


def write(path: Path, tables: dict[str, list[dict[str, object]]]) -> Path:
    """Write tables, that of strings always; one without rows has the columns that must be there."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as export:
        for name, rows in ({STRINGS: []} | tables).items():
            columns = list(dict.fromkeys(column for row in rows for column in row))
            columns = columns or ["id", "value", "start", "end", "eventType"]
            texts = TEXTS - {"value"} if name == METRICS else TEXTS
            typed = ", ".join(f'"{c}" {"TEXT" if c in texts else "INTEGER"}' for c in columns)
            export.execute(f'CREATE TABLE "{name}" ({typed})')
            marks = ", ".join("?" * len(columns))
            values = [[row.get(column) for column in columns] for row in rows]
            export.executemany(f'INSERT INTO "{name}" VALUES ({marks})', values)
        export.commit()
    return path


def strings(*texts: str) -> list[dict[str, object]]:
    """Register strings, from id 1 on."""
    return [{"id": number, "value": text} for number, text in enumerate(texts, 1)]


def event(
    kind: int = 59, start: int = 10, end: int | None = 20, **more: object
) -> dict[str, object]:
    return {"start": start, "end": end, "eventType": kind, "globalTid": TID, **more}


def changed(path: Path, *statements: str) -> Path:
    """Run SQL on an export, for what rows cannot say."""
    with closing(sqlite3.connect(path)) as export:
        for statement in statements:
            export.execute(statement)
        export.commit()
    return path

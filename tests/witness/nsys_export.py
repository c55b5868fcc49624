"""The records of an export of Nsight Systems, read with nothing but `sqlite3`."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from witness.attribution import LIBRARIES, Activity, Call, Range

PROCESS = -16777216  # all bits of a globalTid but those of the thread
PER_CALL = re.compile(r", (seq|op_id|sizes|input_op_ids) = [-0-9\[]")
SIZES = re.compile(r", sizes = (\[.*?\])(?=, input_op_ids = |\Z)")
KINDS = {
    "KERNEL": ("kernel", "s.value", "0"),
    "MEMCPY": ("memcpy", "CAST(copyKind AS TEXT)", "bytes"),
    "MEMSET": ("memset", "''", "bytes"),
    "GRAPH_TRACE": ("graph", "CAST(graphId AS TEXT)", "0"),
}
COPIES = {1: "Host-to-Device", 2: "Device-to-Host", 8: "Device-to-Device", 10: "Peer-to-Peer"}
COPIES |= {11: "Unified Host-to-Device", 12: "Unified Device-to-Host"}


@dataclass(frozen=True)
class Plain:
    """Records, and the whole text of each range."""

    ranges: list[Range]
    calls: list[Call]
    activities: list[Activity]
    texts: list[str]


def read(path: Path) -> Plain:
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as export:
        tables = {name for (name,) in export.execute("SELECT name FROM sqlite_master")}
        ranges, texts = _ranges(export) if "NVTX_EVENTS" in tables else ([], [])
        calls = _calls(export) if "CUPTI_ACTIVITY_KIND_RUNTIME" in tables else []
        return Plain(ranges, calls, list(_activities(export, tables)), texts)


def without_per_call_part(text: str) -> str:
    """Cut where PyTorch writes what belongs to one call, unless it does not end as a value does."""
    found = PER_CALL.search(text)
    return text[: found.start()] if found and re.search(r"[0-9\]]\Z", text) else text


def _calls(export):
    rows = export.execute(
        f"SELECT globalTid & {PROCESS}, globalTid, correlationId, start, end"
        " FROM CUPTI_ACTIVITY_KIND_RUNTIME ORDER BY rowid"
    )
    return [Call(0, *row) for row in rows]


def _activities(export, tables: set[str]) -> Iterable[Activity]:
    for table, (kind, name, size) in KINDS.items():
        if f"CUPTI_ACTIVITY_KIND_{table}" in tables:
            strings = "LEFT JOIN StringIds s ON s.id = shortName" if kind == "kernel" else ""
            rows = export.execute(
                f"SELECT globalPid, correlationId, start, end, '{kind}', {name}, {size}"
                f" FROM CUPTI_ACTIVITY_KIND_{table} a {strings} ORDER BY a.rowid"
            )
            for *where, kind_, short, moved in rows:
                yield Activity(0, *where, kind_, _name(kind_, short), moved)


def _name(kind: str, short: str) -> str:
    names = {
        "memcpy": lambda: f"[CUDA memcpy {COPIES[int(short)]}]",
        "memset": lambda: "[CUDA memset]",
    }
    names |= {"kernel": lambda: short, "graph": lambda: f"[CUDA graph {short}]"}
    return names[kind]()


def _ranges(export):
    name = "COALESCE(n.text, s.value, '<unnamed>')"
    of = "FROM NVTX_EVENTS n LEFT JOIN StringIds s ON s.id = n.textId"
    domains = {
        (process, domain): text
        for process, domain, text in export.execute(
            f"SELECT globalTid & {PROCESS}, domainId, {name} {of} WHERE eventType = 75 ORDER BY n.rowid DESC"
        )
    }
    rows = export.execute(
        f"SELECT globalTid & {PROCESS}, globalTid, start, end, COALESCE(domainId, 0), COALESCE(int64Value, -1),"
        f" eventType = 60, {name} {of} WHERE eventType IN (59, 60) ORDER BY n.rowid"
    ).fetchall()
    own: dict[tuple[int, int], list[str]] = {}
    for process, _, _, _, domain, *_, text in rows:
        own.setdefault((process, domain), []).append(text)
    libraries = {
        key for key, texts in own.items() if key[1] and _is_library(domains.get(key, ""), texts)
    }
    ranges = []
    for process, thread, start, end, domain, payload, phase, text in rows:
        op = "" if (process, domain) in libraries else without_per_call_part(text)
        op = "ProfilerStep" if op.startswith("ProfilerStep#") else op
        ranges.append(Range(0, process, thread, start, end, op, domain, payload, bool(phase)))
    return ranges, [row[-1] for row in rows]


def _is_library(name: str, texts: list[str]) -> bool:
    return name.lower() in LIBRARIES if name else all(text.startswith("nccl") for text in texts)

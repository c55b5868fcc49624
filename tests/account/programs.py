"""Exports of made programs, and the events that are in them for the plain loops of `witness/account.py`.

Times come from so few that ties, twins and crossings are the rule; some ends are before their starts, some are missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from made_reports import MARK, PUSH_POP, START_END, VERSIONS, Made, process, thread
from witness.account import Activity, Call, Events, Instant, Range

PIDS = (100, 101)
LAST = 60  # most times lie from 0 to this
CHOSEN = "chosen"  # the name of ranges that --range selects
BEGINS, ENDS, CALLS = (
    31,
    32,
    27,
)  # classes of events of the operating system's runtime: of tracing, and a call
STATES = {"kernels": "compute", "copies": "copy", "fills": "other", "graphs": "graph"}
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"

times = st.integers(-3, LAST)
lengths = st.sampled_from([0, 0, 1, 2, 5, 9, 20, -2])


@dataclass(frozen=True)
class Program:
    """Rows of an export by table, the events in them, and how long the collection lasted, 0 where that is not told."""

    tables: dict[str, list[dict[str, Any]]]
    events: Events
    session: int
    chosen: list[Range] = field(default_factory=list)  # what `--range` selects

    def written(self, path: Path) -> Path:
        made = Made()
        made.tables["session"].clear()
        if self.session:
            made.tables["session"].append({"duration": self.session})
        for name, rows in self.tables.items():
            made.tables[name] += [
                {key: made.string(value) if key in TEXTS[name] else value for key, value in row.items()}
                for row in rows
            ]  # fmt: skip
        return made.written(path)


TEXTS = {
    "annotations": (), "launches": ("name",), "system_calls": ("name",), "devices": (), "gpus": (),
    **dict.fromkeys(STATES, ("name", "full_name", "mangled")),
}  # fmt: skip


@st.composite
def programs(draw: st.DrawFn, *, pids: tuple[int, ...] = PIDS) -> Program:
    """Draw a program of one or two processes on one or two GPUs, and who recorded what of it."""
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in TEXTS}
    used = draw(st.sampled_from([pids, pids[:1]]))
    gpu_of = {(pid, device): draw(st.integers(0, 1)) for pid in used for device in (0, 1)}
    tables["devices"] += [
        {"pid": pid, "device": device, "gpu": gpu} for (pid, device), gpu in gpu_of.items()
    ]
    tables["gpus"] += [{"gpu": gpu, "device": gpu, "name": "H"} for gpu in (0, 1)]
    owners = st.sampled_from(used)
    ranges, names = [], []
    for pid, start, length, kind in draw(
        st.lists(
            st.tuples(owners, times, lengths | st.none(), st.sampled_from(["a", "b", CHOSEN])),
            max_size=5,
        )
    ):
        has_end = length is not None and length >= 0
        lasts = length if has_end or kind != CHOSEN else 7  # what is selected has an end
        end = None if lasts is None else start + lasts
        tables["annotations"].append(
            {
                "type": draw(st.sampled_from([PUSH_POP, PUSH_POP, START_END])),
                "start": start,
                "end": end,
                "thread": thread(pid, draw(st.integers(1, 2))),
                "text": kind,
            }
        )
        ranges.append(Range(pid, start, end))
        names.append(kind)
    instants = draw(st.lists(st.integers(0, 3 * LAST), max_size=2))
    for at in instants:  # none stretches a run
        tables["annotations"].append(
            {"type": MARK, "start": at, "end": None, "text": "mark", "thread": thread(used[0])}
        )
    calls, work = [], []
    some = st.lists(st.tuples(owners, times, lengths), max_size=2)
    for pid, start, length in draw(some):
        _call(tables, pid, start, start + length)
        calls.append(Call(pid, start, start + length))
    for pid, table, launch, start, length in draw(
        st.lists(
            st.tuples(owners, st.sampled_from([*STATES, "kernels"]), st.none() | times, times, lengths),
            max_size=8,
        )
    ):  # fmt: skip
        correlation = 900 + len(work)
        if launch is not None:
            correlation = _call(tables, pid, launch, launch + 1)
            calls.append(Call(pid, launch, launch + 1))
        end = start + length or 1  # an end of 0 is that of work whose end is not known
        device, talks = draw(st.integers(0, 1)), table == "kernels" and draw(st.booleans())
        name = NCCL if talks else "gemm"
        named = dict.fromkeys(TEXTS["kernels"], name) if table == "kernels" else {}
        tables[table].append(
            {
                "start": start,
                "end": end,
                "device": device,
                "context": 1,
                "stream": 7 + draw(st.integers(0, 2)),
                "process": process(pid),
                "correlation": correlation,
                **named,
                **({"copy_kind": 1, "bytes": 8} if table == "copies" else {}),
                **({"bytes": 8} if table == "fills" else {}),
                **({"graph": 3} if table == "graphs" else {}),
            }
        )
        state = "communication" if talks else STATES[table]
        work.append(Activity(pid, gpu_of[pid, device], start, end, state, launch))
    of_system = []
    for pid, start, length, event in draw(
        st.lists(
            st.tuples(
                st.sampled_from([*used, 102]), times, lengths | st.none(), st.sampled_from([BEGINS, ENDS, CALLS])
            ),
            max_size=3,
        )
    ):  # fmt: skip
        end = None if length is None else start + length
        row = {"start": start, "end": end, "thread": thread(pid), "event": event}
        tables["system_calls"].append({**row, "name": "poll"})
        of_system.append(Call(pid, start, end))
    session = draw(st.sampled_from([0, 0, LAST // 2, LAST, 10**9]))
    chosen = [one for one, name in zip(ranges, names, strict=True) if name == CHOSEN]
    # nsys ends with the session what was open then
    ranges = [
        one._replace(end=None)
        if session and one.end is not None and one.start < session <= one.end
        else one
        for one in ranges
    ]
    marks = [Instant(used[0], at) for at in instants]
    return Program(tables, Events(ranges, calls, of_system, work, marks), session, chosen)


def _call(tables: dict[str, list[dict[str, Any]]], pid: int, start: int, end: int) -> int:
    """Add an API call; return its correlation id."""
    number = 1 + len(tables["launches"])
    row = {"start": start, "end": end, "thread": thread(pid), "correlation": number}
    tables["launches"].append({**row, "name": "cudaLaunchKernel_v7000"})
    return number


def collection(program: Program) -> tuple[int, int] | None:
    """Return the time that was collected, if it is told on the clock of the events."""
    return (0, program.session) if program.session else None


__all__ = ["CHOSEN", "LAST", "PIDS", "VERSIONS", "Program", "collection", "programs"]

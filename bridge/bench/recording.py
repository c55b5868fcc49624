"""Results as a recording: a file that `bridge import`, `report` and `diff` read like any other.

Each run is a step, and in it each op a range as long as the run's latency: so a diff has the runs as samples. The ranges are laid
one after another from the time of writing; the clock that measured them is in the recording's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import get_native_id
from time import monotonic_ns
from typing import Any

from bridge.annotate import stack
from bridge.annotate.label import Label
from bridge.annotate.plain_values import written_shapes
from bridge.annotate.recording.sink import Memory
from bridge.annotate.recording.writer import Row, Writer
from bridge.bench.errors import BenchError
from bridge.bench.result import Group, Result
from bridge.output import check, write

STEP = "ProfilerStep#{}"
PUSHED = 0  # the kind of range
LONGEST = 60  # of a name within a file's name
LAID_OUT = (
    "a step per run; ranges as long as the latency, one after another from the time of writing"
)


def save(
    results: Result | Group | Iterable[Result], path: str | Path, *, force: bool = False
) -> None:
    """Write results to a recording (``.jsonl``); raises bridge.output.OutputError if that cannot be written or exists, unless ``force``."""
    target = Path(path)
    check(target, force=force)
    write(target, recording(listed(results)), force=force)


def file_name(results: Sequence[Result]) -> str:
    """Return what to call a recording: ``bench-matmul.jsonl``."""
    name = re.sub(r"[^\w.-]+", "-", results[0].name)[:LONGEST].strip("-")
    return f"bench-{name or 'call'}.jsonl"


def listed(results: Result | Group | Iterable[Result]) -> list[Result]:
    """Return results one by one; of a group the ops, and the whole as ``group: a + b``."""
    if isinstance(results, Result):
        return [results]
    return results.results if isinstance(results, Group) else list(results)


def recording(results: Sequence[Result]) -> str:
    """Return the text of a recording; ValueError if there are no results."""
    if not results:
        raise BenchError("no results to record")
    sink = Memory()
    writer = Writer(sink)
    writer.about({"bench": _about(results)})
    thread = get_native_id()
    writer.thread(thread, ", ".join(dict.fromkeys(f"{r.device} by {r.clock}" for r in results)))
    time = monotonic_ns()
    for step in range(max(len(one.elapsed) for one in results)):
        own = [one for one in results if step < len(one.elapsed)]
        end = time + sum(int(one.latencies[step]) for one in own)
        # Before what is in it: of two ranges of one length the earlier row is the outer one.
        writer.row(Row(Label(STEP.format(step)), PUSHED, thread, time, end, 0))
        for one in own:
            time = _range(writer, one, step, thread, time)
    writer.close()
    return b"".join(sink.lines).decode()


def _range(writer: Writer, one: Result, step: int, thread: int, start: int) -> int:
    """Hand on a run; return when it ends."""
    call = stack.new_call_id()
    details = _details(one)
    key = one.title, one.shapes, one.flops, one.bytes
    if not writer.note_alike(call, key):
        writer.note(call, key, details)
    end = start + int(one.latencies[step])
    writer.row(Row(Label(one.title, None, "bench"), PUSHED, thread, start, end, call))
    return end


def _details(one: Result) -> dict[str, Any]:
    known = {"flops": one.flops, "bytes": one.bytes}
    found = written_shapes("", one.shapes) if one.shapes else {}
    args = dict(one.point)
    return found | ({"args": args} if args else {}) | {k: v for k, v in known.items() if v >= 0}


def _about(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "layout": LAID_OUT,
        "results": [
            {
                "name": one.title,
                "inputs": one.inputs,
                "device": one.device,
                "clock": one.clock,
                "median_ns": one.median,
                "runs": len(one.elapsed),
                "number": one.number,
                "warmup": one.options.warmup,
                "cold": one.options.cold,
                "graph": one.options.graph,
                "streams": list(one.streams),
                "workspace_bytes": one.workspace,
                "loop_ns": round(one.loop_ns, 3),
            }
            for one in results
        ],
    }


__all__ = ["listed", "recording", "save"]

"""Write results to a recording, which `bridge import`, `report` and `diff` read as any other.

Each run is a step with a range per op, as long as the run's latency: a diff has the runs as
samples. The ranges follow one another from the time of writing; the metadata names the clock that
measured them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import get_native_id
from time import monotonic_ns
from typing import Any

from bridge.annotate import stack
from bridge.annotate.details import shape_fields
from bridge.annotate.label import Label
from bridge.annotate.recording.sink import Memory
from bridge.annotate.recording.writer import Row, Writer
from bridge.bench.devices.base import BenchError
from bridge.bench.result import Group, Result
from bridge.output import check, write

STEP = "ProfilerStep#{}"
PUSHED = 0  # kind of range
MAX_NAME = 60  # characters of the op's name in a file name
LAYOUT = "a step per run; ranges as long as the latency, one after another from the time of writing"


def save(
    results: Result | Group | Iterable[Result], path: str | Path, *, force: bool = False
) -> None:
    """Write results to a recording (``.jsonl``).

    Raises bridge.output.OutputError if it cannot be written, or exists and ``force`` is False.
    """
    target = Path(path)
    check(target, force=force)
    write(target, recording(as_list(results)), force=force)


def file_name(results: Sequence[Result]) -> str:
    """Return the default file name: ``bench-matmul.jsonl``."""
    name = re.sub(r"[^\w.-]+", "-", results[0].name)[:MAX_NAME].strip("-")
    return f"bench-{name or 'call'}.jsonl"


def as_list(results: Result | Group | Iterable[Result]) -> list[Result]:
    """Return a list of results; of a group the whole and the ops."""
    if isinstance(results, Result):
        return [results]
    return results.results if isinstance(results, Group) else list(results)


def recording(results: Sequence[Result]) -> str:
    """Return the text of a recording; raises ValueError without results."""
    if not results:
        raise BenchError("no results to record")
    sink = Memory()
    writer = Writer(sink)
    writer.about({"bench": _metadata(results)})
    thread = get_native_id()
    writer.thread(thread, ", ".join(dict.fromkeys(f"{r.device} by {r.clock}" for r in results)))
    time = monotonic_ns()
    for step in range(max(len(result.elapsed) for result in results)):
        of_step = [result for result in results if step < len(result.elapsed)]
        end = time + sum(int(result.latencies[step]) for result in of_step)
        # The step comes first: of two equal ranges the earlier row is the outer one.
        writer.row(
            Row(
                label=Label(STEP.format(step)),
                kind=PUSHED,
                thread=thread,
                start=time,
                end=end,
                payload=0,
            )
        )
        for result in of_step:
            time = _write_range(writer, result, step=step, thread=thread, start=time)
    writer.close()
    return b"".join(sink.lines).decode()


def _write_range(writer: Writer, result: Result, step: int, thread: int, start: int) -> int:
    """Write a run; return its end."""
    call = stack.new_call_id()
    details = _details(result)
    key = result.title, result.shapes, result.flops, result.bytes
    if not writer.note_alike(call, key):
        writer.note(call, key, details)
    end = start + int(result.latencies[step])
    writer.row(
        Row(
            label=Label(result.title, None, "bench"),
            kind=PUSHED,
            thread=thread,
            start=start,
            end=end,
            payload=call,
        )
    )
    return end


def _details(result: Result) -> dict[str, Any]:
    costs = {"flops": result.flops, "bytes": result.bytes}
    shapes = shape_fields("", result.shapes) if result.shapes else {}
    args = dict(result.point)
    return shapes | ({"args": args} if args else {}) | {k: v for k, v in costs.items() if v >= 0}


def _metadata(results: Sequence[Result]) -> dict[str, Any]:
    return {
        "layout": LAYOUT,
        "results": [
            {
                "name": result.title,
                "inputs": result.inputs,
                "device": result.device,
                "clock": result.clock,
                "median_ns": result.median,
                "runs": len(result.elapsed),
                "number": result.number,
                "warmup": result.options.warmup,
                "cold": result.options.cold,
                "graph": result.options.graph,
                "streams": list(result.streams),
                "workspace_bytes": result.workspace,
                "loop_ns": round(result.loop_ns, 3),
            }
            for result in results
        ],
    }


__all__ = ["as_list", "recording", "save"]

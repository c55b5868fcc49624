"""The explanation of an attribution: lines for the terminal, JSON in the format bridge.why/1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from bridge.analyze.checks.why import Hint, OtherMatches, Source, Why
from bridge.analyze.core.open_ranges import Event, Place, Range, Thread
from bridge.render import units

FORMAT = "bridge.why/1"
STEP = "  "  # indentation per level of nesting
MAX_FRAMES = 20  # of a call stack


def as_json(why: Why) -> str:
    """Return all facts as one JSON object; times in ns as recorded, a missing integer is -1."""
    return json.dumps({"format": FORMAT, **asdict(why)}, ensure_ascii=False, indent=1) + "\n"


def for_terminal(why: Why) -> str:
    """Return the chain from activity to op, a line per step; times are since the first event."""
    lines = [*_activity(why), *_captured(why), *_call(why), *_verdict(why), *_others(why.others)]
    return "".join(f"{_clean(line)}\n" for line in lines)


def _activity(why: Why) -> Iterator[str]:
    yield _step(why.activity, why.base_ns)
    if why.reports > 1:
        yield f"  in {why.report}"
    places = {"device": why.device, "context": why.context, "stream": why.stream}
    location = [f"{name} {number}" for name, number in places.items() if number >= 0]
    correlation = (
        f"correlation id {why.correlation}" if why.correlation > 0 else "no correlation id"
    )
    yield f"  on {', '.join([*location, correlation])}"
    if why.graph_node >= 0 and why.captured is None:
        yield f"  node {why.graph_node} of a CUDA graph; its capture is not in the report"


def _captured(why: Why) -> Iterator[str]:
    if why.captured:
        start = units.time(why.captured.step.start_ns - why.base_ns)
        node = f"node {why.captured.step.name} (#{why.captured.step.row})"
        yield f"captured as {node} of a CUDA graph at {start}"
        yield from _source(why.captured_source)
        yield from _place(why.captured, why.base_ns)


def _call(why: Why) -> Iterator[str]:
    if why.call:
        yield f"launched by {_step(why.call.step, why.base_ns)}"
        yield from _source(why.source)
        yield from _place(why.call, why.base_ns)


def _source(source: Source | None) -> Iterator[str]:
    """Yield the line of the program that made the call, and the call stack."""
    if source is None:
        return
    if source.text:
        of = " (where its op is defined)" if source.kind == "op" else ""
        yield f"  from {_call_site(source.function, source.text)}{of}"
    if source.stack:
        yield "  call stack, the innermost frame first:"
        for frame in source.stack[:MAX_FRAMES]:
            place = f"{frame.file}:{frame.line}" if frame.line > 0 else frame.file
            yield f"{STEP * 2}{_call_site(frame.function, place)}"
        if (more := len(source.stack) - MAX_FRAMES) > 0:
            yield f"{STEP * 2}{more} more frames (--format json has them)"


def _call_site(function: str, place: str) -> str:
    return f"{function} at {place}" if function and place else function or place


def _place(place: Place, base: int) -> Iterator[str]:
    """Yield the ranges that were open on a thread."""
    heading = "where these ranges were open:" if place.ranges else "where no range was open"
    yield f"  on {_thread(place.thread)}, {heading}"
    for depth, open_range in enumerate(place.ranges):
        yield f"{STEP * (depth + 2)}{_range(open_range, base)}"
    if place.phases:
        yield f"  phases open then: {', '.join(f'{p.name} (#{p.row})' for p in place.phases)}"


def _range(range_: Range, base: int) -> str:
    lines = [
        range_.text if range_.text != range_.name else "",
        f"op {range_.op}" if range_.op not in {"", range_.name} else "",
        f"not an op: {range_.note}" if range_.note else "",
        "" if range_.ended else "never ended",
    ]
    more = "; ".join(filter(None, lines))
    head = (
        f"range #{range_.row} {range_.name}, {_times(range_.duration_ns, range_.start_ns - base)}"
    )
    return f"{head} ({more})" if more else head


def _verdict(why: Why) -> Iterator[str]:
    if not why.reason:
        yield f"op: {why.op}, by {why.rule}: {why.rule_text}"
    else:
        yield f"no op ({why.reason}): {why.reason_text}"
    if why.owner:
        yield f"  {_step(why.owner.step, why.base_ns)}, on {_thread(why.owner.thread)}"
    yield from _lineage(why)
    yield from _nccl(why)
    if why.captured and why.call:
        places = f"captured in {why.captured.op or 'no op'}, launched in {why.call.op or 'no op'}"
        yield f"  {places}; --graphs capture|launch chooses, the other serves where that has no op"
    yield from map(_hint, why.hints)
    if why.remedy:
        yield f"to change that: {why.remedy}"


def _lineage(why: Why) -> Iterator[str]:
    """Yield the forward range, the module and the adopter of the op."""
    if why.lineage is None:
        return
    if why.lineage.forward:
        place = why.lineage.forward
        ambiguity = ", a choice between several threads" if why.lineage.ambiguous else ""
        yield (
            f"  backward work of {_step(place.step, why.base_ns)}, on {_thread(place.thread)}"
            f" (same sequence number{ambiguity})"
        )
    elif why.lineage.direction == "backward":
        yield "  backward work; no forward range has its sequence number"
    if why.lineage.module:
        yield f"  module: {why.lineage.module}"
    if why.lineage.adopter:
        place = why.lineage.adopter
        yield f"  adopted, by time alone, by {_step(place.step, why.base_ns)}, on {_thread(place.thread)}"


def _nccl(why: Why) -> Iterator[str]:
    """Yield what NCCL's payload says of the message."""
    if (said := why.nccl) is None:
        return
    several = f" in {units.count(said.messages)} messages" if said.messages > 1 else ""
    rank = f"rank {said.rank} of" if said.rank >= 0 else "one of"
    parts = [
        f"{units.size(said.bytes)}{several}",
        said.reduction,
        f"peer {said.peer}" if said.peer >= 0 else "",
        f"root {said.root}" if said.root >= 0 else "",
        f"{rank} {said.ranks} ranks" if said.ranks > 0 else "",
        f"communicator {said.communicator}" if said.communicator else "",
    ]
    yield f"  NCCL says: {', '.join(filter(None, parts))}"


def _hint(hint: Hint) -> str:
    return f"  {hint.text}" + ("" if hint.ns is None else f" {units.time(hint.ns)}")


def _others(others: OtherMatches) -> Iterator[str]:
    if not others.count:
        return
    names = "that name" if others.names == 1 else f"such a name ({others.names} different names)"
    yield (
        f"this is the longest of {units.count(others.count + 1)} activities with {names};"
        f" next: {_rows(others.longest)} (bridge why REPORT '#{others.longest[0]}')"
    )
    if others.without_op:
        count = units.count(others.without_op_count)
        yield f"  {count} of them have no op; the longest of these: {_rows(others.without_op)}"


def _rows(rows: Sequence[int]) -> str:
    return ", ".join(f"#{row}" for row in rows)


def _step(step: Event, base: int) -> str:
    head = f"{step.what} #{step.row} {step.name}"
    if step.duration_ns != step.end_ns - step.start_ns:
        start, end = units.time(step.start_ns - base), units.time(step.end_ns - base)
        return f"{head}, from {start} to {end}"
    return f"{head}, {_times(step.duration_ns, step.start_ns - base)}"


def _times(duration: int, start: int) -> str:
    return f"{units.time(duration)} at {units.time(start)}"


def _thread(thread: Thread) -> str:
    thread_text = f"{thread.tid} ({thread.name})" if thread.name else f"{thread.tid}"
    process_text = f"{thread.pid} ({thread.process})" if thread.process else f"{thread.pid}"
    return f"thread {thread_text} of process {process_text}"


def _clean(line: str) -> str:
    """Return a line without line breaks: control characters are replaced by blanks."""
    return line if line.isprintable() else "".join(c if c.isprintable() else " " for c in line)

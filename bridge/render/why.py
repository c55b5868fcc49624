"""One attribution explained: lines for the terminal, and JSON in the format bridge.why/1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from bridge.analyze.open_ranges import Place, Range, Step, Thread
from bridge.analyze.why import Hint, Others, Why
from bridge.render import units

FORMAT = "bridge.why/1"
STEP = "  "  # a range stands this far inside the one around it


def as_json(why: Why) -> str:
    """Return all facts as one JSON object; times in ns as recorded, a missing integer is -1."""
    return json.dumps({"format": FORMAT, **asdict(why)}, ensure_ascii=False, indent=1) + "\n"


def for_terminal(why: Why) -> str:
    """Return the chain, a line per step; times are counted from the report's first event."""
    lines = [*_activity(why), *_captured(why), *_call(why), *_verdict(why), *_others(why.others)]
    return "".join(f"{_clean(line)}\n" for line in lines)


def _activity(why: Why) -> Iterator[str]:
    yield _step(why.activity, why.base_ns)
    if why.reports > 1:
        yield f"  in {why.report}"
    places = {"device": why.device, "context": why.context, "stream": why.stream}
    where = [f"{name} {number}" for name, number in places.items() if number >= 0]
    ident = f"correlation id {why.correlation}" if why.correlation > 0 else "no correlation id"
    yield f"  on {', '.join([*where, ident])}"
    if why.graph_node >= 0 and why.captured is None:
        yield f"  node {why.graph_node} of a CUDA graph; its capture is not in the report"


def _captured(why: Why) -> Iterator[str]:
    if why.captured:
        at = units.time(why.captured.step.start_ns - why.base_ns)
        made = f"node {why.captured.step.name} (#{why.captured.step.row})"
        yield f"captured as {made} of a CUDA graph at {at}"
        yield from _place(why.captured, why.base_ns)


def _call(why: Why) -> Iterator[str]:
    if why.call:
        yield f"launched by {_step(why.call.step, why.base_ns)}"
        yield from _place(why.call, why.base_ns)


def _place(place: Place, base: int) -> Iterator[str]:
    """Say what was open on a thread."""
    open_there = "where these ranges were open:" if place.ranges else "where no range was open"
    yield f"  on {_thread(place.thread)}, {open_there}"
    for depth, one in enumerate(place.ranges):
        yield f"{STEP * (depth + 2)}{_range(one, base)}"
    if place.phases:
        yield f"  phases open then: {', '.join(f'{p.name} (#{p.row})' for p in place.phases)}"


def _range(one: Range, base: int) -> str:
    said = [
        one.text if one.text != one.name else "",
        f"op {one.op}" if one.op not in {"", one.name} else "",
        f"not an op: {one.note}" if one.note else "",
        "" if one.ended else "never ended",
    ]
    more = "; ".join(filter(None, said))
    head = f"range #{one.row} {one.name}, {_times(one.duration_ns, one.start_ns - base)}"
    return f"{head} ({more})" if more else head


def _verdict(why: Why) -> Iterator[str]:
    if not why.reason:
        yield f"op: {why.op}, by {why.rule}: {why.rule_text}"
    else:
        yield f"no op ({why.reason}): {why.reason_text}"
    if why.owner:
        yield f"  {_step(why.owner.step, why.base_ns)}, on {_thread(why.owner.thread)}"
    yield from _lineage(why)
    if why.captured and why.call:
        places = f"captured in {why.captured.op or 'no op'}, launched in {why.call.op or 'no op'}"
        yield f"  {places}; --graphs capture|launch chooses, the other serves where that has no op"
    yield from map(_hint, why.hints)
    if why.remedy:
        yield f"to change that: {why.remedy}"


def _lineage(why: Why) -> Iterator[str]:
    """Say where the op belongs besides its thread, where that is news."""
    if why.lineage is None:
        return
    if why.lineage.forward:
        place = why.lineage.forward
        choice = ", a choice between several threads" if why.lineage.ambiguous else ""
        yield (
            f"  backward work of {_step(place.step, why.base_ns)}, on {_thread(place.thread)}"
            f" (same sequence number{choice})"
        )
    elif why.lineage.direction == "backward":
        yield "  backward work; no forward range has its sequence number"
    if why.lineage.module:
        yield f"  module: {why.lineage.module}"
    if why.lineage.adopter:
        place = why.lineage.adopter
        yield f"  adopted, by time alone, by {_step(place.step, why.base_ns)}, on {_thread(place.thread)}"


def _hint(hint: Hint) -> str:
    return f"  {hint.text}" + ("" if hint.ns is None else f" {units.time(hint.ns)}")


def _others(others: Others) -> Iterator[str]:
    if not others.count:
        return
    names = "with that name" if others.names == 1 else f"with such a name ({others.names} names)"
    yield (
        f"the longest of {units.count(others.count + 1)} {names}, next {_rows(others.longest)};"
        " any one: bridge why REPORT '#ROW'"
    )
    if others.without_op:
        count = units.count(others.without_op_count)
        yield f"  without an op of these: {count}, the longest {_rows(others.without_op)}"


def _rows(rows: Sequence[int]) -> str:
    return ", ".join(f"#{row}" for row in rows)


def _step(step: Step, base: int) -> str:
    head = f"{step.what} #{step.row} {step.name}"
    if step.duration_ns != step.end_ns - step.start_ns:
        start, end = units.time(step.start_ns - base), units.time(step.end_ns - base)
        return f"{head}, from {start} to {end}"
    return f"{head}, {_times(step.duration_ns, step.start_ns - base)}"


def _times(duration: int, start: int) -> str:
    return f"{units.time(duration)} at {units.time(start)}"


def _thread(thread: Thread) -> str:
    named = f"{thread.tid} ({thread.name})" if thread.name else f"{thread.tid}"
    process = f"{thread.pid} ({thread.process})" if thread.process else f"{thread.pid}"
    return f"thread {named} of process {process}"


def _clean(line: str) -> str:
    """Return a line that stays one: control characters give way to blanks."""
    return line if line.isprintable() else "".join(c if c.isprintable() else " " for c in line)

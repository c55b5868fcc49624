"""Where to annotate: lines for the terminal, JSON in the format bridge.annotate/1."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bridge.analyze.checks.annotate import (
    ANNOTATED,
    FUNCTION,
    ITERATION,
    MODULE,
    PYTHON,
    THIN,
    Annotations,
    Candidate,
)
from bridge.render import units
from bridge.render.table import clean
from bridge.render.wrapping import wrap

FORMAT = "bridge.annotate/1"
INDENT = "   "
HEADER = "#include <nvtx3/nvtx3.hpp>"


# -- What to add


def code(place: Candidate) -> str:
    """Return the line of code that annotates a place."""
    name = json.dumps(range_name(place), ensure_ascii=False)
    if place.language != PYTHON:
        return f"nvtx3::scoped_range range{{{name}}};"
    return "@nvtx_op" if place.kind == FUNCTION else f"with bridge.nvtx_op({name}):"


def range_name(place: Candidate) -> str:
    """Return a name for the range of a place."""
    if place.part:
        return place.part
    if place.kind == FUNCTION:
        return place.function
    function = place.file.rpartition("/")[2] if place.function == MODULE else place.function
    return f"{function}:{place.line}"


def where(place: Candidate) -> str:
    """Return in words where the line of code belongs."""
    if not place.function:
        work = place.first_work
        work += f" … {place.last_work}" if place.last_work != work else ""
        if place.kind != ITERATION:
            return f"around the code that launches {work}"
        around = "around" if place.language == PYTHON else "first in"
        return f"{around} the body of the loop that launches {work}"
    if place.language != PYTHON:
        return f"first in {place.function}"
    if place.kind == FUNCTION:
        return f"above def {place.function}"
    several = f"lines {place.line} to {place.last_line}"
    return f"around {several if place.last_line > place.line else f'line {place.line}'}"


def source(place: Candidate) -> str:
    """Return ``file:line``, the module of native code, or ''."""
    return f"{place.file}:{place.line}" if place.line > 0 else place.file


def automatic(answer: Annotations) -> str:
    """Return the command that annotates the program without changes, '' if there is none."""
    script = answer.script.replace("\\", "/").rpartition("/")[2] or "PROGRAM.py"
    return f"bridge run --auto {script}" if answer.framework else ""


# -- The document and the lines


def as_document(answer: Annotations, source_names: Sequence[str]) -> Mapping[str, Any]:
    """Return the answer as a JSON object."""
    places = [
        {**asdict(place), "source": source(place), "add": code(place), "where": where(place)}
        for place in answer.places
    ]
    facts = {**asdict(answer), "places": places}
    return {"format": FORMAT, "source": list(source_names), "automatic": automatic(answer), **facts}


def as_json(answer: Annotations, source_names: Sequence[str]) -> str:
    """Return the answer as JSON; times in ns, a missing integer is -1."""
    return json.dumps(as_document(answer, source_names), ensure_ascii=False, indent=1) + "\n"


def for_terminal(answer: Annotations, width: int) -> str:
    """Return the verdict, the places with what to add, and what is left."""
    lines = [*_verdict(answer), *_automatic(answer)]
    for number, place in enumerate(answer.places, start=1):
        lines += ["", *_place(number, place, answer.gpu_ns)]
    lines += _rest(answer)
    return "".join(f"{part}\n" for line in lines for part in wrapped(clean(line), width))


def wrapped(line: str, width: int) -> Iterator[str]:
    """Yield a line in pieces that fit, all of them indented like the first."""
    indent = line[: len(line) - len(line.lstrip())]
    yield from (f"{indent}{part}" for part in wrap(line.lstrip(), width - len(indent)) or [""])


def _verdict(answer: Annotations) -> Iterator[str]:
    """Yield how much of the work is in ops, and how much of the other is on known call stacks."""
    whole, without = answer.gpu_ns, answer.gpu_ns - answer.in_ops_ns
    if answer.verdict == ANNOTATED:
        yield f"Nothing to add: {_time(answer.in_ops_ns, whole)} of {units.time(whole)} of GPU time are in ops."
        if answer.coarse:
            yield f"Most of it is in one op, {answer.coarse}. What would split that:"
            yield f"→ bridge annotate REPORT --inside {shlex.quote(answer.coarse)}"
        else:
            yield "→ bridge report REPORT --by op"
        return
    others = f"in {', '.join(answer.inside)} or in none" if answer.inside else "in none"
    in_ops = f"{_time(answer.in_ops_ns, whole)} in {'other ' * bool(answer.inside)}ops"
    yield f"{units.time(whole)} of GPU time: {in_ops}, {_time(without, whole)} {others}."
    if answer.verdict == THIN:
        yield f"{_evidence(answer)} To record more:"
        yield "→ bridge run --backtrace PROGRAM"


def _evidence(answer: Annotations) -> str:
    """Return a sentence on evidence that is thin."""
    if not answer.stack_ns + answer.sample_ns:
        return "The evidence is thin: no call stack tells which lines launch that work."
    without = answer.gpu_ns - answer.in_ops_ns
    parts = ((answer.stack_ns, "call stacks"), (answer.sample_ns, "samples of the CPU"))
    told = (
        f"{name} tell who launched {units.percent(part / without)} of that"
        for part, name in parts
        if part
    )
    return f"The evidence is thin: {', '.join(told)}."


def _automatic(answer: Annotations) -> Iterator[str]:
    """Yield how to annotate a program of a known framework without changes."""
    if answer.framework and answer.verdict != ANNOTATED:
        model = (
            ", or in the code: bridge.torch.auto(model)" if answer.framework == "PyTorch" else ""
        )
        yield f"This is a {answer.framework} program, which can be annotated without changes{model}:"
        yield f"→ {automatic(answer)}"


def _place(number: int, place: Candidate, whole: int) -> Iterator[str]:
    """Yield a place, its work and how sure that is, and what to add."""
    calls, is_iteration = units.count(place.calls), place.kind == ITERATION
    name = f"{place.function}, {source(place)}" if place.function else place.part
    if is_iteration:
        name = f"iteration in {name}" if place.function else f"loop of {calls} iterations"
    yield f"{number}. {name}"
    within = units.time(place.gpu_ns)
    facts = [
        _time(place.total_ns, whole),
        f"{within} of that in no place within" if place.total_ns > place.gpu_ns else "",
        f"{calls} {'iterations' if is_iteration else 'calls'}"
        if place.function and place.calls >= 0
        else "",
        f"{place.confidence} confidence ({', '.join(place.evidence)})",
    ]
    yield f"{INDENT}{', '.join(filter(None, facts))}"
    yield f"{INDENT}{code(place)}   {where(place)}"


def _rest(answer: Annotations) -> Iterator[str]:
    """Yield what C++ needs, and how much is in no place."""
    if answer.verdict == ANNOTATED:
        return
    if any(place.language != PYTHON for place in answer.places):
        yield ""
        yield f"In C++ also {HEADER}, a header of the CUDA toolkit."
    if answer.places:
        yield ""
        yield f"In none of these places: {_time(answer.unplaced_ns, answer.gpu_ns)}."


def _time(part: int, whole: int) -> str:
    return f"{units.time(part)} ({units.percent(part / max(1, whole))})"

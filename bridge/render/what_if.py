"""The run that would have been: lines for the terminal, JSON in the format bridge.what-if/1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bridge.analyze.core.table import Table
from bridge.analyze.run.what_if import GPU, HIDE, OP, Changed, RunTime, WhatIf
from bridge.render import table as tables
from bridge.render import units
from bridge.render.table import Look
from bridge.render.wrapping import wrap

FORMAT = "bridge.what-if/1"


def as_document(answer: WhatIf, source: Sequence[str]) -> Mapping[str, Any]:
    """Return the answer as a JSON object."""
    return {"format": FORMAT, "source": list(source), **asdict(answer)}


def as_json(answer: WhatIf, source: Sequence[str]) -> str:
    """Return the answer as JSON; times in ns, -1 where there are no iterations."""
    return json.dumps(as_document(answer, source), ensure_ascii=False, indent=1) + "\n"


def for_terminal(answer: WhatIf, look: Look) -> str:
    """Return the changes, the times that would be beside the recorded ones, and what the run then waits for."""
    lines = [*map(_change, answer.changes), *_lengths(answer), *_range(answer)]
    text = "".join(f"{part}\n" for line in lines for part in wrap(line, look.width))
    if not answer.bound:
        return text
    rows = Table.of_records([asdict(bound) for bound in answer.bound])
    return f"{text}\nThen it waits for:\n{tables.for_terminal('critical', rows, look)}"


def _change(change: Changed) -> str:
    """Return what was changed, and how much of it there is."""
    name, takes = tables.clean(change.name), f"{units.percent(1 - change.part)} less time"
    if change.part == 0:
        takes = "no time"
    what, count = {
        OP: (f"{name} and all under it: {takes}", "range"),
        HIDE: (f"{name} hidden by computation", "kernel or copy"),
        GPU: (f"kernels: {takes}", "kernel"),
    }.get(change.option, (f"without {name}", "call"))
    several = {"kernel or copy": "kernels or copies"}.get(count, f"{count}s")
    number = units.count(change.count)
    return (
        f"{what} ({number} {count if change.count == 1 else several}, {units.time(change.time_ns)})"
    )


def _lengths(answer: WhatIf) -> Iterator[str]:
    what = "the selected part" if answer.is_part else "the run"
    if answer.asked_iterations:
        what = f"a run of {units.count(answer.asked_iterations)} iterations"
    yield _compared(what, answer.recorded.run_ns, answer.would_be.run_ns)
    if answer.recorded.iteration_ns >= 0:
        yield _compared("an iteration", answer.recorded.iteration_ns, answer.would_be.iteration_ns)


def _compared(what: str, before: int, after: int) -> str:
    """Return a sentence with a time that would be and the recorded one."""
    takes = f"{what[0].upper()}{what[1:]} would take {units.time(after)} instead of {units.time(before)}"
    saved = before - after
    if not saved:
        return f"{takes}: nothing is saved."
    share = units.percent(abs(saved) / max(1, before))
    return f"{takes}: {units.time(abs(saved))} ({share}) {'less' if saved > 0 else 'more'}."


def _range(answer: WhatIf) -> Iterator[str]:
    """Yield how long the run may be, where that depends on what nobody recorded."""
    lasting, paced = answer.lasting_waits, answer.paced_waits
    if lasting != paced:
        yield (
            "It depends on waits whose end nobody recorded, such as those for a loader in another process:"
            f" {_times(lasting)} if they last as long as they did, {_times(paced)} if they end at the pace at which"
            " they did."
        )


def _times(time: RunTime) -> str:
    each = f" ({units.time(time.iteration_ns)} an iteration)" if time.iteration_ns >= 0 else ""
    return f"{units.time(time.run_ns)}{each}"

"""Why a distributed program hangs: lines for the terminal, JSON in the format bridge.hang/1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from bridge.analyze.checks.hang import (
    MISSING_RANK,
    NOT_STARTED,
    STUCK,
    UNLIKE,
    Hang,
    RankState,
    Recorded,
)
from bridge.render import units

FORMAT = "bridge.hang/1"
WAITS = "waits in"
MOST = 8  # ranks that are listed, of as many as wait alike


def as_json(source: Sequence[str], found: Sequence[Hang]) -> str:
    """Return all facts as one JSON object; times in ns, a missing integer is -1."""
    document = {"format": FORMAT, "source": list(source), "hangs": [asdict(one) for one in found]}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def for_terminal(found: Sequence[Hang]) -> str:
    """Return some lines per hang; a line that says so without any."""
    if not found:
        return "Every operation in the dumps completed on all ranks that called it: no collective hangs.\n"
    return "\n".join("".join(f"{line}\n" for line in _hang(one)) for one in found)


def _hang(hang: Hang) -> Iterator[str]:
    what = f"{hang.name}, number {hang.number} of {hang.group or 'its group'}"
    ranks = _ranks(hang.culprits)
    if hang.kind == MISSING_RANK:
        yield f"{ranks} did not call {what}."
    elif hang.kind == UNLIKE and hang.waiting:
        yield f"{ranks} called something else than {what}."
    elif hang.kind == UNLIKE:
        yield f"The ranks disagree on number {hang.number} of {hang.group}."
    elif hang.kind == NOT_STARTED:
        yield f"{ranks} called {what}, and the GPU has not begun it: earlier work of its stream does not end."
    elif hang.kind == STUCK:
        alike = " alike" if len(hang.waiting) > 1 else ""
        yield f"{_ranks(hang.waiting)} called {what}{alike}, and it does not complete: {_look_at(hang)}."
    else:
        yield f"{_ranks(hang.waiting)} waits in {what}: its counterpart is missing."
    yield from _listed(hang.culprits, "last called" if hang.kind == MISSING_RANK else "called")
    yield from _listed(hang.waiting, WAITS)
    for one in hang.recorded:
        yield f"  {_end_of(one)}"
    if hang.without_dump:
        yield f"  nothing is known of {_ranks(hang.without_dump).lower()}: no dump, or none of its last calls here"


def _end_of(one: Recorded) -> str:
    """Return where a rank is at the end of a report, in one line."""
    where = f"in {one.path}" if one.path else "in no op"
    after = f" after {one.call}" if one.call else ""
    silent = f", and nothing is recorded of it for the last {units.time(one.since_ns)}"
    return f"at the end of {one.source} rank {one.rank} is {where}{after}{silent}"


def _look_at(hang: Hang) -> str:
    if hang.without_dump:
        return "look at the ranks of which nothing is known"
    return "look at the network, and at the GPUs"


def _listed(states: Sequence[RankState], verb: str) -> Iterator[str]:
    for state in states[:MOST]:
        yield f"  rank {state.rank} {_said(state, verb)}"
    if len(states) > MOST:
        yield f"  and {len(states) - MOST} more ranks"


def _said(state: RankState, verb: str) -> str:
    if not state.name:
        return "called nothing in this group"
    parts = [f"{verb} {state.name} {state.sizes}", state.state]
    if state.since_ns >= 0:
        time = units.time(state.since_ns)
        parts.append(f"for {time}" if verb == WAITS else f"{time} before the dump")
    if state.line:
        parts.append(f"at {state.line} in {state.function}")
    return ", ".join(parts)


def _ranks(ranks: Sequence[RankState] | Sequence[int]) -> str:
    numbers = [str(one if isinstance(one, int) else one.rank) for one in ranks]
    more = f" and {len(numbers) - MOST} more" if len(numbers) > MOST else ""
    return f"Rank {numbers[0]}" if len(numbers) == 1 else f"Ranks {', '.join(numbers[:MOST])}{more}"

"""What is said before everything else: calls that failed, a program that died, work and records that are missing.

`failures` returns these facts in the order in which they are told. Their texts are made in `bridge/render/failures.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from bridge.analyze.core.failed_calls import (
    FailedGroup,
    all_launches_failed,
    failed_groups,
    results,
    succeeded_later,
)
from bridge.analyze.core.unrecorded import Unrecorded, losses
from bridge.importers import frames
from bridge.importers.records import record
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture, once
from bridge.knowledge import cuda_errors

ERROR = frames.SEVERITIES.index("error")
MOST_QUOTES = 2  # of each kind


@record
class FailedCalls:
    """API calls of one function that returned one error; ``count`` of ``of`` calls of that function.

    ``first_ns`` is when the first of them began, since the first event of the capture, ``op`` its op, "" for none, and
    ``pid`` its process. ``retried`` counts those for which there was memory when it was asked for again. After an
    error that is ``sticky`` nothing works: ``followed`` later calls returned it again. ``after`` is the kernel of the
    last launch before it that did not fail, or the function that launched it, and ``after_op`` the op of that; "" if
    there is none. ``is_severe`` says that launches or memory failed, or all that follows; ``all_launches`` that these
    and others are all launches of the capture.
    """

    call: str
    number: int
    name: str
    meaning: str
    count: int
    of: int
    first_ns: int
    op: str
    pid: int
    retried: int = 0
    sticky: bool = False
    followed: int = 0
    after: str = ""
    after_op: str = ""
    is_severe: bool = False
    all_launches: bool = False
    kind: str = "failed-calls"


@record
class ProgramError:
    """The line in which a program tells of its error."""

    pid: int
    program: str
    line: str
    kind: str = "program-error"


@record
class NotRecorded:
    """GPU work that ran, and is not in the capture."""

    what: Unrecorded
    kind: str = "not-recorded"


@record
class LostRecords:
    """What the profiler says of records that it lost."""

    message: str
    kind: str = "lost-records"


Failure = FailedCalls | ProgramError | NotRecorded | LostRecords


@once
def failures(attributed: AttributedCapture) -> tuple[Failure, ...]:
    """Return what failed and what was lost, in the order in which it is told.

    Failed calls come in order of time; those that did no more harm than to be refused follow the error of the program.
    """
    calls = _failed_calls(attributed)
    unrecorded = Unrecorded.of(attributed)
    quoted = unrecorded.messages if unrecorded else ()
    lost = [text for text in losses(attributed.capture) if text not in quoted]
    return (
        *(one for one in calls if one.is_severe),
        *_program_errors(attributed),
        *(one for one in calls if not one.is_severe),
        *([NotRecorded(unrecorded)] if unrecorded else []),
        *(LostRecords(text) for text in lost[:MOST_QUOTES]),
    )


def hides_causes(found: Iterable[Failure]) -> bool:
    """Return whether no cause of idle time can be told: no launch worked, or kernels were not recorded."""
    return any(
        isinstance(one, NotRecorded) or (isinstance(one, FailedCalls) and one.all_launches)
        for one in found
    )


def as_dicts(found: Sequence[Failure]) -> list[dict[str, Any]]:
    """Return failures as values that JSON can hold; `from_dicts` reads them back."""
    return [asdict(one) for one in found]


def from_dicts(values: Iterable[Mapping[str, Any]]) -> tuple[Failure, ...]:
    """Return the failures that `as_dicts` returned."""
    kinds = {one.kind: one for one in (FailedCalls, ProgramError, LostRecords)}
    return tuple(
        NotRecorded(Unrecorded.from_dict(value["what"]))
        if value["kind"] == NotRecorded.kind
        else kinds[value["kind"]](**value)
        for value in values
    )


# -- Failed calls


def _failed_calls(attributed: AttributedCapture) -> list[FailedCalls]:
    all_failed = all_launches_failed(attributed)
    return [_told(attributed, group, all_failed) for group in failed_groups(attributed)]


def _told(attributed: AttributedCapture, group: FailedGroup, all_failed: bool) -> FailedCalls:
    calls, row = attributed.capture.launches, int(group.rows[0])
    error, sticky = cuda_errors.error(group.number), cuda_errors.is_sticky(group.number)
    name = calls.name.codes
    return FailedCalls(
        call=group.call,
        number=group.number,
        name=error.name(group.call),
        meaning=error.meaning,
        count=len(group.rows),
        of=int(((name == name[row]) & (results(attributed) != NONE)).sum()),
        first_ns=int(calls.start[row]) - attributed.capture.began,
        op=_op(attributed, row),
        pid=int(frames.pid(calls.process[row : row + 1])[0]),
        retried=0
        if sticky or group.is_launch
        else int(succeeded_later(attributed, group.rows).sum()),
        sticky=sticky,
        followed=group.followed,
        after=_launched(attributed, group.after) if sticky else "",
        after_op=_op(attributed, group.after) if sticky else "",
        is_severe=cuda_errors.always_counts(group.number) or group.is_launch,
        all_launches=all_failed and group.is_launch,
    )


def _op(attributed: AttributedCapture, row: int) -> str:
    """Return the op in which an API call was made, "" for none."""
    node = int(attributed.launch_node[row]) if row != NONE else NONE
    op = int(attributed.node_op[node]) if node != NONE else NONE
    return attributed.ops[op] if op != NONE else ""


def _launched(attributed: AttributedCapture, row: int) -> str:
    """Return the name of what an API call launched, or its own name; "" without a call."""
    if row == NONE:
        return ""
    work = np.flatnonzero(attributed.attribution.launch == row)
    names = attributed.activity_name if len(work) else attributed.capture.launches.name
    return names[int(work[0]) if len(work) else row]


# -- The program


def _program_errors(attributed: AttributedCapture) -> list[ProgramError]:
    """Return the errors that programs tell of, one line per process."""
    capture = attributed.capture
    table = capture.diagnostics
    source, severity, process = table.source, table.severity, table.process
    rows = np.flatnonzero((source == frames.PROGRAM) & (severity == ERROR))
    names = dict(zip(capture.processes.process.tolist(), capture.processes.name, strict=True))
    found = ((int(process[row]), table.name[row]) for row in rows[:MOST_QUOTES].tolist())
    return [
        ProgramError(int(frames.pid(np.array([of]))[0]), _program(names.get(of, "")), line)
        for of, line in found
    ]


def _program(path: object) -> str:
    """Return the name of a program without its folder."""
    return str(path).replace("\\", "/").rpartition("/")[2]

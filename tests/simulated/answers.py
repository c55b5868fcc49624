"""What the product says of an export, in plain data: the one module that knows how the product is asked."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

import bridge
from bridge.analyze.checks.advice import Advice, advise
from bridge.analyze.core.devices import Devices
from bridge.analyze.run.account import runs
from bridge.analyze.run.idle.causes import WORDS, find_causes
from bridge.join.arrays import NONE
from bridge.join.attributed import AttributedCapture
from simulated.causes import Piece
from simulated.host import Cause

MAIN_ROWS = (
    0.1  # of the time of a finding's evidence: a name with less of it is not what it is about
)
NO_NAMES = ("path",)  # columns of evidence that name what is around it
WORD = re.compile(r"[\w:]+")
CAUSES = {  # the words for causes of idle time
    "work elsewhere": Cause.WORK_ELSEWHERE,
    "late rank": Cause.LATE_RANK,
    "profiler": Cause.PROFILER,
    "input": Cause.INPUT,
    "data loading": Cause.LOADING,
    "Python's lock": Cause.PYTHON_LOCK,
    "synchronization": Cause.API,
    "blocking memcpy": Cause.API,
    "memcpy calls": Cause.API,
    "launch calls": Cause.API,
    "other CUDA calls": Cause.API,
    "loading of code": Cause.API,
    "OS calls": Cause.OS,
    "compilation": Cause.OP,
    "host code": Cause.OP,
    "host code outside ops": Cause.HOST,
    "launch latency": Cause.LATENCY,
    "not running": Cause.ABSENT,
    "unknown": Cause.UNKNOWN,
}


@dataclass(frozen=True)
class Found:
    """A finding: who found it, and the ops, calls, kernels and GPUs that it names; -1 ns for no estimate, no limit."""

    check: str
    names: frozenset[str]
    saving_ns: int = -1
    limit_ns: int = -1
    once: bool = False  # paid once, not in each iteration


@dataclass(frozen=True)
class Answer:
    """What the product says of a run: states and causes of idle time by the number of the GPU; findings, the first first."""

    length_ns: int
    states: dict[int, dict[str, int]] = field(default_factory=dict)
    causes: dict[int, list[Piece]] = field(default_factory=dict)
    findings: tuple[Found, ...] = ()


def answer(path: Path) -> Answer:
    """Load an export, and ask for all of it."""
    attributed = bridge.load(path).attributed
    (run,) = runs(attributed)
    found = [_found(advice) for advice in advise(attributed).advice]
    return Answer(
        run.length_ns,
        {_number(gpu.device): dict(gpu.states) for gpu in run.gpus},
        _causes(attributed),
        # What has neither estimate nor limit is a remark.
        tuple(one for one in found if max(one.saving_ns, one.limit_ns) >= 0),
    )


def _number(device: str) -> int:
    match = re.match(r"GPU (\d+)", device)
    assert match
    return int(match[1])


def _found(advice: Advice) -> Found:
    finding, name = advice.finding, advice.rule.name
    told = frozenset(text for text in finding.figures.values() if isinstance(text, str) and text)
    words = frozenset(word for text in told for word in WORD.findall(text))
    names = _names(finding.evidence.to_pandas()) | told | words
    return Found(name, names, finding.saving_ns, finding.ceiling_ns, once=finding.once)


def _names(evidence: pd.DataFrame) -> frozenset[str]:
    """Return the texts of a finding that it is mainly about."""
    weight = evidence["total_ns"] if "total_ns" in evidence else pd.Series(1, evidence.index)
    least = MAIN_ROWS * weight.sum() if "total_ns" in evidence else 0
    names: set[str] = set()
    for column in evidence.columns.difference([*NO_NAMES, "total_ns"]):
        total = weight.groupby(evidence[column], observed=True).sum()
        names.update(
            text for text, ns in total.items() if isinstance(text, str) and text and ns >= least
        )
    return frozenset(names)


def _causes(attributed: AttributedCapture) -> dict[int, list[Piece]]:
    """Return the idle time of each GPU in pieces; those of ops and of calls have a name."""
    causes, numbers = find_causes(attributed), Devices.of_report(attributed).number
    pieces = causes.pieces
    device = causes.gaps.device[pieces.interval]
    columns = (causes.cause, causes.op, causes.callee)
    cause, op, callee = (column[causes.row_of_piece] for column in columns)
    result: dict[int, list[Piece]] = {number: [] for number in numbers}
    columns = (device, pieces.start, pieces.end, cause, op, callee)
    for gpu, start, end, word, number, call in zip(*(c.tolist() for c in columns), strict=True):
        known, name = CAUSES[WORDS[word]], ""
        if known is Cause.OP and number != NONE:
            name = attributed.ops[number]
        elif known in {Cause.API, Cause.OS}:
            name = causes.callees[call]
        result[numbers[gpu]].append(Piece(start, end, known, name))
    return {gpu: sorted(those, key=lambda piece: piece.start) for gpu, those in result.items()}

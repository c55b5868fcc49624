"""Holds what the product says of simulated programs against what is true of them."""

from __future__ import annotations

import multiprocessing
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory

from bridge.importers.errors import NothingRecorded
from simulated.answers import Answer, Found, answer
from simulated.causes import Piece
from simulated.degraded import degraded_rows, known_span, known_states
from simulated.host import Cause
from simulated.matching import Ordinary, about_which, bare
from simulated.programs import draw, draw_further
from simulated.troubles import About
from simulated.truth import TroubleTruth, Truth

WHOLE = "whole"
# Shares of the run.
WORTH = 0.02  # what a trouble must cost so that its saving is judged
LARGE = 0.10  # what must be found
FALSE_ALARM = 0.05  # an estimate that no healthy program may have
# How far an estimate may be off: a share of the run, or of the saving.
OF_RUN, OF_SAVING = 0.005, 0.10
AS_GOOD = 0.95  # of the best trouble's saving: as good a first finding
WRONG_CAUSES = 0.01  # of the idle time
STEP_NUMBER = re.compile(r"#\d+$")

# Kinds that have a limit and no estimate: how much faster a kernel could be is in no report.
LIMITED = frozenset({"slow_kernel"})

# What share of cases must hold in each respect of `RESPECTS`: what is aimed at, and what has been reached.
GOALS = {
    "length": 1.0,
    "states": 1.0,
    "causes": 1.0,
    "savings": 0.90,
    "all savings": 0.90,
    "first": 0.95,
    "all first": 0.95,
    "found": 0.95,
    "healthy": 0.98,
    "excess": 1.0,
}
FLOORS = {
    "length": 1.0,
    "states": 1.0,
    "causes": 0.95,
    "savings": 0.72,
    "all savings": 0.7,
    "first": 0.9,
    "all first": 0.85,
    "found": 0.95,
    "healthy": 0.96,
    "excess": 0.7,
}


@dataclass(frozen=True)
class Judged:
    """A trouble of a program, and the first finding about it: its place from 0, or -1."""

    name: str
    healthy: bool
    saving_ns: int
    about: About
    place: int = -1
    estimate_ns: int = -1
    limit_ns: int = -1


@dataclass(frozen=True)
class Measured:
    """A program, what is true of it, and what was said.

    ``about`` names the troubles and ``habits`` that each finding is about. ``idle`` is the idle time of all GPUs by the true cause, the
    cause that was said, and whether no other name was said.
    """

    seed: int
    base: str
    evidence: str
    length_ns: int
    is_length: bool
    is_states: bool
    troubles: tuple[Judged, ...]
    findings: tuple[Found, ...]
    about: tuple[frozenset[str], ...]
    habits: tuple[Judged, ...] = ()
    idle: Counter[tuple[Cause, Cause, bool]] = field(default_factory=Counter)

    @property
    def real(self) -> list[Judged]:
        """The troubles that are to be found."""
        return [trouble for trouble in self.troubles if not trouble.healthy]

    @property
    def best_ns(self) -> int:
        """What the remedy saves that saves most."""
        return max((trouble.saving_ns for trouble in self.real), default=0)

    def allowed_ns(self, saving_ns: int) -> float:
        """Return how far an estimate of this saving may be off."""
        return max(OF_RUN * self.length_ns, OF_SAVING * saving_ns)

    def excess_ns(self, place: int) -> int:
        """Return how much more a finding promises than the trouble that it is about costs."""
        by_name = {one.name: one.saving_ns for one in (*self.real, *self.habits)}
        true = max((by_name.get(name, 0) for name in self.about[place]), default=0)
        return self.findings[place].saving_ns - max(true, 0)

    def is_excess(self, place: int) -> bool:
        """Return whether a finding promises too much."""
        excess = self.excess_ns(place)
        return excess > self.allowed_ns(self.findings[place].saving_ns - excess)


# -- Respects: the cases of a program, and whether each holds


def is_right(measured: Measured, trouble: Judged) -> bool:
    """Return whether a trouble's saving is estimated."""
    error = abs(trouble.estimate_ns - trouble.saving_ns)
    return trouble.estimate_ns >= 0 and error <= measured.allowed_ns(trouble.saving_ns)


def _all_savings(one: Measured) -> list[bool]:
    worth = [trouble for trouble in one.real if trouble.saving_ns >= WORTH * one.length_ns]
    return [is_right(one, trouble) for trouble in worth]


def _savings(one: Measured) -> list[bool]:
    return _all_savings(_estimable(one))


def _estimable(one: Measured) -> Measured:
    """Return a program without the troubles that have no estimate, by which findings are in order."""
    return replace(one, troubles=tuple(t for t in one.troubles if t.name not in LIMITED))


def _first(one: Measured) -> list[bool]:
    return _is_first(one, _estimable(one).best_ns)


def _all_first(one: Measured) -> list[bool]:
    return _is_first(one, one.best_ns)


def _is_first(one: Measured, best_ns: int) -> list[bool]:
    """Return whether the first finding is about what saves so much; nothing if that is little."""
    if best_ns < WORTH * one.length_ns:
        return []
    known = (*one.real, *one.habits)
    best = {t.name for t in known if t.saving_ns >= AS_GOOD * best_ns}
    return [bool(one.about and one.about[0] & best)]


def _found(one: Measured) -> list[bool]:
    return [t.place >= 0 for t in one.real if t.saving_ns >= LARGE * one.length_ns]


def _healthy(one: Measured) -> list[bool]:
    alarm = any(found.saving_ns > FALSE_ALARM * one.length_ns for found in one.findings)
    return [] if one.real else [not alarm]


def _causes(one: Measured) -> list[bool]:
    wrong = sum(ns for cause, ns in one.idle.items() if is_wrong(*cause))
    return [wrong <= WRONG_CAUSES * one.idle.total()] if one.idle else []


def is_by_call(true: Cause, said: Cause, named: bool) -> bool:
    """Return whether loading or Python's lock was told by its call alone, or as code without a range: less than is true, and not wrong."""
    is_call = said is Cause.OS and true in {Cause.LOADING, Cause.PYTHON_LOCK}
    return named and (is_call or (said is Cause.HOST and true is Cause.LOADING))


def is_wrong(true: Cause, said: Cause, named: bool) -> bool:
    """Return whether a cause is neither the true one, nor its call, nor unknown."""
    if said is Cause.UNKNOWN or is_by_call(true, said, named):
        return False
    return said is not true or not named


# In what a program of whole evidence may fail, and one of less.
BINDING = tuple(name for name in GOALS if name not in {"all savings", "all first", "excess"})
BINDING_DEGRADED = ("length", "states", "excess")
RESPECTS: dict[str, Callable[[Measured], list[bool]]] = {
    "length": lambda one: [one.is_length],
    "states": lambda one: [one.is_states],
    "causes": _causes,
    "savings": _savings,
    "all savings": _all_savings,
    "first": _first,
    "all first": _all_first,
    "found": _found,
    "healthy": _healthy,
    "excess": lambda one: [not any(map(one.is_excess, range(len(one.findings))))],
}


def cases(respect: str, those: Iterable[Measured]) -> list[bool]:
    """Return whether each case of a respect holds, in all programs."""
    return [holds for one in those for holds in RESPECTS[respect](one)]


def share(respect: str, those: Iterable[Measured]) -> float:
    """Return the share of the cases that hold; 1 if there are none."""
    held = cases(respect, those)
    return sum(held) / len(held) if held else 1.0


def failed(one: Measured) -> list[str]:
    """Return the respects in which a program fails."""
    binding = BINDING if one.evidence == WHOLE else BINDING_DEGRADED
    return [name for name in binding if not all(RESPECTS[name](one))]


# -- Measuring


def measure_all(
    seeds: Iterable[int],
    evidence: Sequence[str] = (WHOLE,),
    *,
    kind: str = "",
    further: bool = False,
    processes: int = 2,
) -> Iterator[Measured]:
    """Measure the programs of seeds, those with one kind of trouble if it is given; in order of seeds.

    ``further``: the programs with further kinds of trouble instead.
    """
    drawn = draw_further if further else draw
    chosen = [seed for seed in seeds if not kind or kind in drawn(seed).names]
    measured = partial(measure_seed, evidence=evidence, further=further)
    # New processes: a copy of one with threads is not safe.
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for those in pool.imap(measured, chosen):
            yield from those


def measure_seed(
    seed: int, evidence: Sequence[str] = (WHOLE,), *, further: bool = False
) -> list[Measured]:
    """Measure the program of a seed, by each kind of evidence in which anything was recorded."""
    truth = Truth.of(draw_further(seed) if further else draw(seed))
    with TemporaryDirectory() as folder:
        asked = [_asked(truth, kind, Path(folder, f"{kind}.sqlite")) for kind in evidence]
    return [one for one in asked if one is not None]


def _asked(truth: Truth, evidence: str, path: Path) -> Measured | None:
    """Measure a program by one kind of evidence; None where a cut left nothing, which the product says."""
    rows = degraded_rows(truth.result, evidence)
    rows.written(path)
    try:
        said = answer(path)
    except NothingRecorded:
        return None
    except Exception as error:
        error.add_note(f"seed {truth.result.program.seed}, {evidence}")
        raise
    if evidence == WHOLE:
        return judged(truth, said)
    first, last = known_span(rows)
    known = replace(truth, span=(first, last), states=known_states(rows), idle={})
    troubles = tuple(replace(t, about=_known(t.about, evidence)) for t in truth.troubles)
    return judged(replace(known, troubles=troubles), said, evidence)


def _known(about: About, evidence: str) -> About:
    """Return what degraded evidence tells of a trouble."""
    if evidence == "without_ranges":
        return replace(about, ops=())
    return replace(about, os_calls=()) if evidence == "without_os_calls" else about


def judged(truth: Truth, said: Answer, evidence: str = WHOLE) -> Measured:
    """Hold an answer against the truth."""
    ordinary, program = Ordinary.of(truth), truth.result.program
    known = (*truth.troubles, *truth.habits)
    about = tuple(about_which(found, known, ordinary) for found in said.findings)
    return Measured(
        program.seed,
        program.plan.base,
        evidence,
        truth.length_ns,
        said.length_ns == truth.length_ns,
        said.states == truth.states,
        tuple(_judged(trouble, said.findings, about) for trouble in truth.troubles),
        said.findings,
        about,
        tuple(_judged(habit, said.findings, about) for habit in truth.habits),
        sum((compared(truth.idle[gpu], said.causes.get(gpu, [])) for gpu in truth.idle), Counter()),
    )


def _judged(
    trouble: TroubleTruth, findings: Sequence[Found], about: Sequence[frozenset[str]]
) -> Judged:
    place = len(list(takewhile(lambda names: trouble.name not in names, about)))
    known = trouble.name, trouble.healthy, trouble.true_saving_ns, trouble.about
    if place == len(findings):
        return Judged(*known)
    return Judged(*known, place, findings[place].saving_ns, findings[place].limit_ns)


def compared(true: Sequence[Piece], said: Sequence[Piece]) -> Counter[tuple[Cause, Cause, bool]]:
    """Return the time by true cause, said cause, and whether no other name was said; both in order of time.

    What nothing is said of is unknown.
    """
    result: Counter[tuple[Cause, Cause, bool]] = Counter()
    first = 0
    for piece in true:
        left = piece.end - piece.start
        while first < len(said) and said[first].end <= piece.start:
            first += 1
        at = first
        while at < len(said) and said[at].start < piece.end:
            other, at = said[at], at + 1
            common = min(piece.end, other.end) - max(piece.start, other.start)
            result[piece.cause, other.cause, _is_named(piece, other)] += common
            left -= common
        if left:
            result[piece.cause, Cause.UNKNOWN, True] += left
    return result


def _is_named(true: Piece, said: Piece) -> bool:
    """Return whether a cause has the true name; that of a call stands for what it waits for only if it is the true one."""
    has_both = bool(true.name and said.name)
    if said.cause is Cause.HOST and true.cause is Cause.LOADING:
        return not true.name  # no range tells what the code does
    if said.cause is Cause.OS is not true.cause:
        return has_both and said.name == true.name
    return not has_both or _op(said.name) == _op(true.name)


def _op(name: str) -> str:
    """Return a name as the product has it: of a call without its version, of a step without its number."""
    return STEP_NUMBER.sub("", bare(name))

"""The processes of a run as ranks: which rank each is, on which host and GPU, and by what that is known."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bridge.analyze import names
from bridge.join.arrays import NONE, Ints, number
from bridge.join.choices import KEY
from importers import frames
from importers.report import Facts, Report

# -- What files, recordings, environments and names say of ranks, best first


OPTION, RECORDING, PROFILER, ENVIRONMENT, PROCESS, NCCL, FILE, PLACE = KNOWN_BY = (
    "--rank-from",
    "recording",
    "profiler",
    "environment",
    "process name",
    "NCCL",
    "file name",
    "place",
)
UNKNOWN = ""
OF_ALL = frozenset([OPTION, PROFILER, FILE])  # what these say is of all processes of the file
RANK = re.compile(r"(?<![a-z])rank[ _-]?(\d{1,9})(?!\d)", re.IGNORECASE)
OF_PROFILER = "PyTorch profiler"
OF_PROGRAM = "environment"  # where a report's metadata keep what a launcher set
BEGUN = "ncclCommInit"  # NCCL's ranges in which a communicator begins
NCCL_RANK, NCCL_SIZE = "Rank", "No. of ranks"


def of_file(facts: Facts, source: str) -> list[tuple[int, str]]:
    """Return what is said of a file as a whole, (rank, by what it is known), best first."""
    said = facts.metadata
    own = PROFILER if facts.product == OF_PROFILER else RECORDING
    found = (
        (_number(_part(said, KEY).get("rank")), OPTION),
        (_number(said.get("rank")), own),
        (_number(_part(said, OF_PROGRAM).get("rank")), ENVIRONMENT),
        (of_name(source), FILE),
    )
    return [(rank, known) for rank, known in found if rank != NONE]


def host_of(facts: Facts) -> str:
    """Return the host that a file is of, '' if nothing says it."""
    host = _part(facts.metadata, KEY).get("host") or facts.metadata.get("host")
    return host if isinstance(host, str) else ""


def local_rank_of(facts: Facts) -> int:
    """Return the place of the process on its host as a launcher said it, NONE if none did."""
    local = _number(facts.metadata.get("local_rank"))
    return local if local != NONE else _number(_part(facts.metadata, OF_PROGRAM).get("local_rank"))


def of_name(name: str) -> int:
    """Return the rank in a name, ``rank3`` or ``my_rank-12``, NONE if there is none."""
    found = RANK.search(name)
    return int(found[1]) if found else NONE


def of_communicators(details: Iterable[str]) -> int:
    """Return the rank that a process has in its largest communicator, by the details of NCCL's ranges; NONE if unclear."""
    ranks: dict[int, set[int]] = {}
    for text in details:
        if f'"{NCCL_RANK}"' not in text:
            continue
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and _number(found.get(NCCL_RANK)) != NONE:
            ranks.setdefault(_number(found.get(NCCL_SIZE)), set()).add(found[NCCL_RANK])
    largest = ranks[max(ranks)] if ranks else set()
    return largest.pop() if len(largest) == 1 else NONE


def _part(said: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = said.get(key)
    return found if isinstance(found, Mapping) else {}


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 10**9 else NONE


# -- The processes of a run as ranks: which rank each is, on which host and GPU, and by what that is known


PID_BITS = 0xFFFFFF
TIMED = ("activities", "launches", "ranges")
Key = tuple[int, int]
Home = tuple[int, int, str]  # rank, pid, and by what that is known
PROCESS_KEY = ("report", "process")


@dataclass(frozen=True)
class Member:
    """A process of a report; ``works`` tells whether it is what the run is about, and no helper of such a one.

    ``local`` is its place on its host, else its GPU; ``gpus`` are those that it used. NONE and '' for what is not known.
    """

    report: int
    process: int
    works: bool
    name: str = ""
    rank: int = NONE
    known_by: str = UNKNOWN
    host: str = ""
    local: int = NONE
    gpus: tuple[int, ...] = ()

    @property
    def pid(self) -> int:
        """The number that its system gave it."""
        return self.process >> 24 & PID_BITS


@dataclass(frozen=True)
class Ranks:
    """All processes of a report that did anything, by report and process."""

    report: Report
    members: list[Member] = field(default_factory=list)

    @classmethod
    def of(cls, report: Report, place: int = 0) -> Ranks:
        """Find out who is who; ``place`` is the number of the first report in the whole run.

        What is said of a report never depends on another one, but for its place.
        """
        seen = _Seen(report)
        found = [m for nth in range(len(report.facts)) for m in seen.members(nth, place + nth)]
        return cls(report, found)

    @cached_property
    def keys(self) -> tuple[Ints, Ints]:
        """Report and process of each."""
        columns = (np.array([getattr(m, c) for m in self.members], np.int64) for c in PROCESS_KEY)
        report, process = columns
        return report, process

    @cached_property
    def workers(self) -> list[int]:
        """Those that the run is about, by place in ``members``: in order of rank, what has none last."""
        known = ((m.rank == NONE, m.rank, n) for n, m in enumerate(self.members) if m.works)
        return [n for *_, n in sorted(known)]

    def place(self, report: Ints, process: Ints) -> Ints:
        """Return the place in ``members`` of each process; all must be there."""
        code, rows = number(report, process)
        of = {key: n for n, key in enumerate(zip(*(k.tolist() for k in self.keys), strict=True))}
        distinct = zip(report[rows].tolist(), process[rows].tolist(), strict=True)
        return np.array([of[key] for key in distinct], np.int64)[code]

    @cached_property
    def names(self) -> list[str]:
        """What each is called, no two alike: ``rank 3``, with file, number or place as far as that is not enough."""
        found = [f"rank {m.rank}" if m.rank != NONE else f"process {m.pid}" for m in self.members]
        files = [
            f" in {name}" if len(self.report.source) > 1 else ""
            for name in names.files(self.report)
        ]
        for more in (
            [files[m.report] for m in self.members],
            [f" ({m.pid})" if m.rank != NONE else "" for m in self.members],
            [f" #{n}" for n in self._nth],  # of several machines
        ):
            alike = Counter(found)
            found = [f"{n}{one}" if alike[n] > 1 else n for n, one in zip(found, more, strict=True)]
        return found

    @property
    def _nth(self) -> list[int]:
        """Return which process of its report each is, from 1."""
        of = [m.report for m in self.members]
        return [n - of.index(report) for n, report in enumerate(of, 1)]

    @property
    def homes(self) -> list[Home]:
        """Return rank, pid and by what that is known, of each that the run is about."""
        return [(m.rank, m.pid, m.known_by) for m in (self.members[n] for n in self.workers)]

    @property
    def warnings(self) -> list[str]:
        """Return a line if several have one rank."""
        files = names.files(self.report)
        of = [files[self.members[n].report] for n in self.workers]
        return twice(list(zip(of, self.homes, strict=True)))

    def chosen(self, ranks: tuple[int, ...]) -> list[Key]:
        """Return report and process of some ranks, with their helpers; ValueError, for the user, for one that is not there."""
        there = {m.rank for m in self.members}
        for rank in ranks:
            if rank not in there:
                known = ", ".join(map(str, sorted(there - {NONE}))) or "none is known"
                raise ValueError(f"no rank {rank} in the run; its ranks: {known}")
        return [(m.report, m.process) for m in self.members if m.rank in ranks]


def twice(homes: Sequence[tuple[str, Home]]) -> list[str]:
    """Return a line if one rank is several processes, given the file and what is known of each."""
    of: dict[int, list[str]] = {}
    for file, (rank, pid, known_by) in homes:
        of.setdefault(rank, []).append(f"process {pid} of {file}, by {known_by}")
    found = sorted((rank, both) for rank, both in of.items() if rank != NONE and both[1:])
    if not found:
        return []
    rank, (one, other, *_) = found[0]
    more = f", and so for {len(found) - 1} more" if found[1:] else ""
    return [
        f"rank {rank} is both {one} and {other}{more}: --rank-from tells ranks by the files' paths"
    ]


class _Seen:
    """What a report has of each process."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.names = _named(report)
        self.gpus: dict[Key, set[int]] = {}
        for key, gpu in _used(report):
            self.gpus.setdefault(key, set()).add(gpu)
        self.keys = sorted({key for table in TIMED for key in _keys(report, table)})

    def members(self, nth: int, place: int) -> Iterator[Member]:
        """Return the processes of a report; ``place`` is its number in the run."""
        keys = [key for key in self.keys if key[0] == nth]
        work = [key for key in keys if key in self.gpus] or keys
        facts, alone = self.report.facts[nth], len(work) == 1
        local = local_rank_of(facts) if alone else NONE
        for key in keys:
            gpus = tuple(sorted(self.gpus.get(key, ())))
            own = work[0] if alone else key  # a helper is of its only worker's rank
            rank, known = self._rank(own, work, place)
            used = gpus[0] if len(gpus) == 1 else NONE
            yield Member(
                *key, key in work, self.names.get(key, ""), rank, known,
                host_of(facts), local if local != NONE else used, gpus,
            )  # fmt: skip

    def _rank(self, key: Key, work: list[Key], place: int) -> tuple[int, str]:
        """Return the rank of a process and by what it is known."""
        nth, alone = key[0], len(work) == 1
        found = of_file(self.report.facts[nth], self.report.source[nth])
        found = [one for one in found if alone or one[1] in OF_ALL]
        own = (of_name(self.names.get(key, "")), PROCESS), (self._nccl(key), NCCL)
        found += [one for one in own if one[0] != NONE]
        if found:
            return min(found, key=lambda one: KNOWN_BY.index(one[1]))
        return self._placed(key, work, place)

    def _placed(self, key: Key, work: list[Key], place: int) -> tuple[int, str]:
        """Return the rank by the place of the file, and where several work in it by the GPU that each has for itself."""
        gpus = {one: min(self.gpus.get(one, {NONE})) for one in work}
        if key not in gpus or len(set(gpus.values())) < len(work):
            return NONE, UNKNOWN
        return place * len(work) + sorted(work, key=lambda one: gpus[one]).index(key), PLACE

    def _nccl(self, key: Key) -> int:
        return of_communicators(self.told.get(key, ()))

    @cached_property
    def told(self) -> dict[Key, list[str]]:
        """The details of the ranges in which each process began a communicator."""
        ranges = self.report.ranges
        names = ranges["name"].cat.categories
        begins = np.array([*(name.startswith(BEGUN) for name in names), False], bool)
        rows = np.flatnonzero(begins[frames.codes(ranges["name"])])
        json = ranges["json"].iloc[rows].astype(object).tolist()
        found: dict[Key, list[str]] = {}
        columns = (frames.ints(ranges, c)[rows].tolist() for c in PROCESS_KEY)
        for *key, text in zip(*columns, json, strict=True):
            found.setdefault((key[0], key[1]), []).append(str(text))
        return found


def _keys(report: Report, table: str) -> list[Key]:
    rows = getattr(report, table)
    columns = [frames.ints(rows, c) for c in PROCESS_KEY]
    _, first = number(*columns)
    return list(zip(*(c[first].tolist() for c in columns), strict=True))


def _used(report: Report) -> Iterator[tuple[Key, int]]:
    """Return each process with each GPU that it used: the GPU's number, else that by which the process calls it."""
    devices = report.devices
    ids = zip(*(devices[c].tolist() for c in (*PROCESS_KEY, "device", "gpu")), strict=True)
    known = {(nth, process, device): gpu for nth, process, device, gpu in ids}
    columns = [frames.ints(report.activities, c) for c in (*PROCESS_KEY, "device")]
    _, first = number(*columns)
    for nth, process, device in zip(*(c[first].tolist() for c in columns), strict=True):
        gpu = known.get((nth, process, device), NONE)
        yield (nth, process), gpu if gpu != NONE else device


def _named(report: Report) -> dict[Key, str]:
    rows = report.processes
    keys = zip(*(rows[c].tolist() for c in PROCESS_KEY), strict=True)
    return dict(zip(keys, rows["name"].astype(str).tolist(), strict=True))

"""Identify the rank, host and GPU of each process of a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np

from bridge.analyze.core import names
from bridge.importers import frames
from bridge.importers.capture import PROCESS_RANKS, Capture, Facts, rank_in_name
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.options import RANK_METADATA_KEY

# -- Sources of ranks, best first


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
WHOLE_FILE = frozenset([OPTION, PROFILER, FILE])  # sources for all processes of a file
PYTORCH_PROFILER = "PyTorch profiler"
ENVIRONMENT_KEY = "environment"  # key in the metadata, for variables of a launcher
INIT_RANGE = "ncclCommInit"  # prefix of NCCL's ranges that initialise a communicator
NCCL_RANK, NCCL_SIZE = "Rank", "No. of ranks"


def ranks_of_file(facts: Facts, source: str) -> list[tuple[int, str]]:
    """Return the ranks that are known of a file as a whole, (rank, source), best source first."""
    metadata = facts.metadata
    product_source = PROFILER if facts.product == PYTORCH_PROFILER else RECORDING
    result = (
        (_number(_mapping(metadata, RANK_METADATA_KEY).get("rank")), OPTION),
        (_number(metadata.get("rank")), product_source),
        (_number(_mapping(metadata, ENVIRONMENT_KEY).get("rank")), ENVIRONMENT),
        (rank_in_name(source), FILE),
    )
    return [(rank, known) for rank, known in result if rank != NONE]


def host_of(facts: Facts) -> str:
    """Return the host of a file, '' if it is unknown."""
    host = _mapping(facts.metadata, RANK_METADATA_KEY).get("host") or facts.metadata.get("host")
    return host if isinstance(host, str) else ""


def local_rank_of(facts: Facts) -> int:
    """Return the local rank that a launcher recorded, NONE if there is none."""
    local = _number(facts.metadata.get("local_rank"))
    return (
        local
        if local != NONE
        else _number(_mapping(facts.metadata, ENVIRONMENT_KEY).get("local_rank"))
    )


def rank_of_communicators(details: Iterable[str]) -> int:
    """Return the rank of a process in its largest communicator, NONE if it is unclear.

    ``details`` are those of NCCL's ranges.
    """
    ranks: dict[int, set[int]] = {}
    for text in details:
        if f'"{NCCL_RANK}"' not in text:
            continue
        try:
            result = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(result, dict) and _number(result.get(NCCL_RANK)) != NONE:
            ranks.setdefault(_number(result.get(NCCL_SIZE)), set()).add(result[NCCL_RANK])
    largest = ranks[max(ranks)] if ranks else set()
    return largest.pop() if len(largest) == 1 else NONE


def recorded_rank(facts: Facts, pid: int, key: str = "rank") -> int:
    """Return the rank, or another number by its key, that a process has recorded; NONE if it has none."""
    of_processes = _mapping(facts.metadata, PROCESS_RANKS)
    return _number(_mapping(of_processes, str(pid)).get(key))


def _mapping(metadata: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    result = metadata.get(key)
    return result if isinstance(result, Mapping) else {}


def _number(value: object) -> int:
    return value if type(value) is int and 0 <= value < 10**9 else NONE


# -- Processes and their ranks


TIMED = ("activities", "launches", "ranges")
Key = tuple[int, int]
Home = tuple[int, int, str]  # rank, pid and source of the rank
PROCESS_KEY = ("report", "process")


@record
class Member:
    """A process of a capture; ``works`` is False for helpers of working processes.

    ``local`` is the local rank, else the GPU; ``gpus`` are the GPUs that it used. NONE and '' stand
    for unknown.
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
        return frames.pid(self.process)


@dataclass(frozen=True)
class Ranks:
    """All processes of a capture that did anything, sorted by file and process."""

    capture: Capture
    members: list[Member] = field(default_factory=list)

    @classmethod
    def of(cls, capture: Capture, place: int = 0) -> Ranks:
        """Identify the ranks of a capture; ``place`` is the position of its first file in the run.

        The result for a file depends on other files only through its position.
        """
        processes = _Processes(capture)
        result = [
            m for nth in range(len(capture.facts)) for m in processes.members(nth, place + nth)
        ]
        return cls(capture, result)

    @cached_property
    def keys(self) -> tuple[Ints, Ints]:
        """File and process of each member."""
        columns = (np.array([getattr(m, c) for m in self.members], np.int64) for c in PROCESS_KEY)
        report, process = columns
        return report, process

    @cached_property
    def workers(self) -> list[int]:
        """Positions in ``members`` of the working processes, by rank; unknown ranks are last."""
        sort_keys = ((m.rank == NONE, m.rank, n) for n, m in enumerate(self.members) if m.works)
        return [n for *_, n in sorted(sort_keys)]

    def place(self, report: Ints, process: Ints) -> Ints:
        """Return the position of each process in ``members``; each must be a member."""
        code, rows = number_groups(report, process)
        position = {
            key: n for n, key in enumerate(zip(*(k.tolist() for k in self.keys), strict=True))
        }
        distinct = zip(report[rows].tolist(), process[rows].tolist(), strict=True)
        return np.array([position[key] for key in distinct], np.int64)[code]

    @cached_property
    def names(self) -> list[str]:
        """Distinct names: ``rank 3``, with the file, pid or position where needed."""
        result = [f"rank {m.rank}" if m.rank != NONE else f"process {m.pid}" for m in self.members]
        files = [
            f" in {name}" if len(self.capture.source) > 1 else ""
            for name in names.file_names(self.capture)
        ]
        for suffixes in (
            [files[m.report] for m in self.members],
            [f" ({m.pid})" if m.rank != NONE else "" for m in self.members],
            [f" #{n}" for n in self._nth],  # pids of several machines may be equal
        ):
            occurrences = Counter(result)
            result = [
                f"{n}{text}" if occurrences[n] > 1 else n
                for n, text in zip(result, suffixes, strict=True)
            ]
        return result

    @property
    def _nth(self) -> list[int]:
        """Position of each process among those of its file, from 1."""
        files = [m.report for m in self.members]
        return [n - files.index(report) for n, report in enumerate(files, 1)]

    @cached_property
    def distinct(self) -> dict[Key, int]:
        """A rank for each process, which no other has, for formats that ask for one.

        The first working process of a rank has it; other processes of this rank, and those whose
        rank is unknown, have numbers above all known ranks.
        """
        helpers = [n for n, m in enumerate(self.members) if not m.works]
        free = count(1 + max((m.rank for m in self.members), default=NONE))
        result: dict[Key, int] = {}
        taken: set[int] = {NONE}
        for member in (self.members[n] for n in (*self.workers, *helpers)):
            is_first = member.rank not in taken
            result[member.report, member.process] = member.rank if is_first else next(free)
            taken.add(member.rank)
        return result

    @property
    def homes(self) -> list[Home]:
        """Rank, pid and source of the rank of each working member."""
        return [(m.rank, m.pid, m.known_by) for m in (self.members[n] for n in self.workers)]

    @property
    def warnings(self) -> list[str]:
        """A line if several members have the same rank."""
        files = names.file_names(self.capture)
        files_of_workers = [files[self.members[n].report] for n in self.workers]
        return duplicate_rank_warnings(list(zip(files_of_workers, self.homes, strict=True)))

    def processes_of(self, ranks: tuple[int, ...]) -> list[Key]:
        """Return file and process of the members with these ranks, including helpers.

        Raises ValueError with a message for the user if there is no such rank.
        """
        ranks_known = {m.rank for m in self.members}
        for rank in ranks:
            if rank not in ranks_known:
                listing = ", ".join(map(str, sorted(ranks_known - {NONE}))) or "none is known"
                raise ValueError(f"no rank {rank} in the run; its ranks: {listing}")
        return [(m.report, m.process) for m in self.members if m.rank in ranks]


def duplicate_rank_warnings(homes: Sequence[tuple[str, Home]]) -> list[str]:
    """Return a line if a rank has several processes, given the file and home of each."""
    processes_of_rank: dict[int, list[str]] = {}
    for file, (rank, pid, known_by) in homes:
        processes_of_rank.setdefault(rank, []).append(f"process {pid} of {file}, by {known_by}")
    values = sorted(
        (rank, processes)
        for rank, processes in processes_of_rank.items()
        if rank != NONE and processes[1:]
    )
    if not values:
        return []
    rank, (name, second, *_) = values[0]
    others = f", and so for {len(values) - 1} more" if values[1:] else ""
    return [
        f"rank {rank} is both {name} and {second}{others}: --rank-from tells ranks by the files' paths"
    ]


class _Processes:
    """The data of a capture about each process."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.names = _process_names(capture)
        self.gpus: dict[Key, set[int]] = {}
        for key, gpu in _used_gpus(capture):
            self.gpus.setdefault(key, set()).add(gpu)
        self.keys = sorted({key for table in TIMED for key in _keys(capture, table)})

    def members(self, file: int, place: int) -> Iterator[Member]:
        """Yield the processes of a file; ``place`` is its position in the run."""
        keys = [key for key in self.keys if key[0] == file]
        work = self._working(keys)
        facts, is_alone = self.capture.facts[file], len(work) == 1
        for key in keys:
            local = recorded_rank(facts, frames.pid(key[1]), "local_rank")
            if local == NONE and is_alone:
                local = local_rank_of(facts)
            gpus = tuple(sorted(self.gpus.get(key, ())))
            is_helped = is_alone and self._recorded(key) == NONE
            owner = work[0] if is_helped else key  # a helper has the rank of the only worker
            rank, known_by = self._rank(owner, work, place)
            single_gpu = gpus[0] if len(gpus) == 1 else NONE
            yield Member(
                *key,
                works=key in work,
                name=self.names.get(key, ""),
                rank=rank,
                known_by=known_by,
                host=host_of(facts),
                local=local if local != NONE else single_gpu,
                gpus=gpus,
            )

    def _working(self, keys: list[Key]) -> list[Key]:
        """Return the processes that used a GPU, and of each recorded rank of which none did the first.

        Where none used a GPU, those without a recorded rank work, too.
        """
        users = [key for key in keys if key in self.gpus]
        first = {self._recorded(key): key for key in [*reversed(keys), *users]}
        firsts = {key for rank, key in first.items() if rank != NONE}
        unknown = {key for key in keys if self._recorded(key) == NONE and not users}
        return [key for key in keys if key in firsts | unknown | set(users)]

    def _recorded(self, key: Key) -> int:
        return recorded_rank(self.capture.facts[key[0]], frames.pid(key[1]))

    def _rank(self, key: Key, work: list[Key], place: int) -> tuple[int, str]:
        """Return the rank of a process and its source."""
        file, is_alone = key[0], len(work) == 1
        result = ranks_of_file(self.capture.facts[file], self.capture.source[file])
        result = [entry for entry in result if is_alone or entry[1] in WHOLE_FILE]
        by_process = (
            (self._recorded(key), RECORDING),
            (rank_in_name(self.names.get(key, "")), PROCESS),
            (self._nccl(key), NCCL),
        )
        result += [entry for entry in by_process if entry[0] != NONE]
        if result:
            return min(result, key=lambda entry: KNOWN_BY.index(entry[1]))
        return self._placed(key, work, place)

    def _placed(self, key: Key, work: list[Key], place: int) -> tuple[int, str]:
        """Return the rank by the position of the file, and by GPU if each process has its own."""
        work = [process for process in work if process in self.gpus] or work
        gpus = {process: min(self.gpus.get(process, {NONE})) for process in work}
        if key not in gpus or len(set(gpus.values())) < len(work):
            return NONE, UNKNOWN
        return place * len(work) + sorted(work, key=lambda process: gpus[process]).index(key), PLACE

    def _nccl(self, key: Key) -> int:
        return rank_of_communicators(self.communicator_details.get(key, ()))

    @cached_property
    def communicator_details(self) -> dict[Key, list[str]]:
        """The details of the ranges in which each process initialised a communicator."""
        ranges = self.capture.ranges
        rows = np.flatnonzero(ranges.name.matching(lambda name: name.startswith(INIT_RANGE)))
        json = ranges.json[rows].tolist()
        result: dict[Key, list[str]] = {}
        columns = (ranges[c][rows].tolist() for c in PROCESS_KEY)
        for *key, text in zip(*columns, json, strict=True):
            result.setdefault((key[0], key[1]), []).append(text)
        return result


def _keys(capture: Capture, table: str) -> list[Key]:
    rows = getattr(capture, table)
    columns = [rows[c] for c in PROCESS_KEY]
    _, first = number_groups(*columns)
    return list(zip(*(c[first].tolist() for c in columns), strict=True))


def _used_gpus(capture: Capture) -> Iterator[tuple[Key, int]]:
    """Yield each process with each GPU that it used, by number of the GPU, else of its device."""
    devices = capture.devices
    keys_and_gpus = zip(
        *(devices[c].tolist() for c in (*PROCESS_KEY, "device", "gpu")), strict=True
    )
    gpu_numbers = {(file, process, device): gpu for file, process, device, gpu in keys_and_gpus}
    columns = [capture.activities[c] for c in (*PROCESS_KEY, "device")]
    _, first = number_groups(*columns)
    for file, process, device in zip(*(c[first].tolist() for c in columns), strict=True):
        gpu = gpu_numbers.get((file, process, device), NONE)
        yield (file, process), gpu if gpu != NONE else device


def _process_names(capture: Capture) -> dict[Key, str]:
    rows = capture.processes
    keys = zip(*(rows[c].tolist() for c in PROCESS_KEY), strict=True)
    return dict(zip(keys, rows.name, strict=True))


def rank_of(capture: Capture, nth: int) -> int | None:
    """Return the rank of a file as a whole, see docs/ranks.md; None if it is unknown."""
    result = ranks_of_file(capture.facts[nth], capture.source[nth])
    return result[0][0] if result else None

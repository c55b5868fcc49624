"""A run of our own making: a report per rank, whose clocks are wrong by so much, and what is true of it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from made_reports import PUSH_POP, Made, process, thread

EPOCH = 1_700_000_000_000_000_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
BEGIN_NS = 20_000_000_000  # of the first step: no clock shows less than 0
STEP_NS = 5_000_000
GEMM_NS, PAUSE_NS, TRANSFER_NS = 1_000_000, 100_000, 200_000


@dataclass(frozen=True, eq=False)
class Rank:
    """A rank: when its clock is 0 in true time, by how much its host's clock is wrong, how much slower it is, what tells who it is."""

    number: int
    zero: int = 0
    wrong: int = 0
    slower: int = 0
    pid: int = 100
    file: str = ""
    epoch: bool = True
    host: str = ""
    environment: Sequence[str] = ()
    own: Sequence[str] = ()  # of the program, where exports have it apart
    name: str = "python"
    gpu: int = 0


@dataclass
class Truth:
    """When each collective began on each rank, in true time from the epoch of the run in ns."""

    arrived: list[list[int]] = field(default_factory=list)


def run(folder: Path, ranks: Sequence[Rank], *, steps: int = 20, jitter: int = 0, seed: int = 1):
    """Write the reports of ranks that compute, then meet in an all-reduce, step by step; return paths and truth."""
    draw, truth = random.Random(seed), Truth()
    made = {one: begun(one) for one in ranks}
    now = dict.fromkeys(ranks, 0)
    for step in range(steps):
        came = {
            one: max(now[one], BEGIN_NS + step * STEP_NS) + GEMM_NS + one.slower for one in ranks
        }
        over = max(came.values()) + TRANSFER_NS
        truth.arrived.append([came[one] for one in ranks])
        for one in ranks:
            end = over + draw.randint(-jitter, jitter)
            _step(made[one], one, step, came[one], end)
            now[one] = end + PAUSE_NS
    paths = []
    for n, one in enumerate(ranks):
        path = folder / (one.file or f"report-{n}.sqlite")
        path.parent.mkdir(parents=True, exist_ok=True)
        paths.append(made[one].written(path))
    return paths, truth


def begun(one: Rank) -> Made:
    """Begin the report of a rank: its names, its session, what is said of it."""
    made = Made()
    made.tables["processes"].append({"process": process(one.pid), "name": one.name})
    made.tables["devices"].append({"gpu": one.gpu, "device": 0, "pid": one.pid})
    made.tables["gpus"].append({"gpu": one.gpu, "device": one.gpu, "name": "Imaginary GPU"})
    if one.epoch:
        made.tables["epoch"].append({"epoch": EPOCH + one.zero + one.wrong})
    if one.host:
        made.tables["system"].append({"name": "Hostname", "value": one.host})
    if one.environment:
        whole = "\0".join(one.environment)
        made.tables["system"].append({"name": "DeviceEnvironment", "value": whole})
    for entry in one.own:
        made.tables["capture"].append({"name": "PROCESS_0:ENVIRONMENT_VARIABLE", "value": entry})
    return made


def _step(made: Made, one: Rank, step: int, came: int, end: int) -> None:
    start, came, end = (t - one.zero for t in (came - GEMM_NS - one.slower, came, end))
    host = {"thread": thread(one.pid)}
    made.annotation(PUSH_POP, start - 50, start + 40, text=f"step {step}", **host)
    made.annotation(PUSH_POP, start - 40, start - 20, text="gemm", **host)
    made.annotation(PUSH_POP, start - 10, start + 20, text="nccl:all_reduce", **host)
    made.kernel("gemm_kernel", start - 30, one.pid, start, came)
    made.kernel(ALL_REDUCE, start, one.pid, came, end)


def meeting(path: Path, left: Mapping[Rank, Sequence[int]], without: str = "") -> Path:
    """Write a report of ranks, a GPU each, that do nothing but all-reduce: when each leaves, by the report's clock."""
    made = begun(next(iter(left)))
    for one in [*left][1:]:
        made.tables["devices"].append({"gpu": one.gpu, "device": 0, "pid": one.pid})
    for one, ends in left.items():
        for end in ends:
            host = {"thread": thread(one.pid), "text": "nccl:all_reduce"}
            made.annotation(PUSH_POP, end - 710, end - 690, **host)
            made.kernel(ALL_REDUCE, end - 700, one.pid, end - 500, end)
    return made.written(path, without)

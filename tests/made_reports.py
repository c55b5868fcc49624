"""Small exports of our own making, with everything in them that a report can hold and a truth known by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from bridge.importers.nsys import schema
from bridge.importers.nsys.write import Row, Strings, write_export

VERSIONS = {schema.PRODUCT_VERSION: "2099.1.2.3-456v0", schema.SCHEMA_VERSION: "9.9.9"}
STEP_NS = 1_000
PUSH_POP, START_END, MARK = 59, 60, 34
KERNELS_PER_STEP = 4
ACTIVITIES_PER_STEP = 7


def process(pid: int) -> int:
    return pid << 24


def thread(pid: int, number: int = 1) -> int:
    return process(pid) | number


class Made:
    """The rows of an export in the making."""

    def __init__(self) -> None:
        self.string = Strings()
        self.tables: dict[str, list[Row]] = {name: [] for name in schema.READ}
        self.correlation = 0
        self.tables["session"].append({"duration": 10**9})

    def annotation(
        self, kind: int, start: int, end: int | None, **more: float | str | None
    ) -> None:
        self.tables["annotations"].append({"type": kind, "start": start, "end": end, **more})

    def written(self, path: Path, without: str = "") -> Path:
        """Write the export, but for the tables named in `without` and those without rows."""
        kept = {n: rows for n, rows in self.tables.items() if n not in without.split() and rows}
        write_export(path, {**kept, "strings": self.string.rows()}, VERSIONS)
        return path

    def launched(
        self, table: str, at: int, pid: int, start: int, end: int, *, by: int = 1, **more: int
    ) -> None:
        """Add an activity and, unless `at` is negative, the API call that issued it, on thread `by`."""
        self.correlation += 1
        if at >= 0:
            called = {
                "start": at,
                "end": at + 5,
                "thread": thread(pid, by),
                "correlation": self.correlation,
            }
            self.tables["launches"].append(
                {**called, "name": self.string("cudaLaunchKernel_v7000")}
            )
        where = {"device": 0, "context": 1, "stream": 7, "process": process(pid)}
        timed = {"start": start, "end": end, "correlation": self.correlation}
        self.tables[table].append({**where, **timed, **more})

    def kernel(self, name: str, at: int, pid: int, start: int, end: int, by: int = 1) -> None:
        names = {
            "name": self.string(name),
            "full_name": self.string(f"void {name}<float>(float *)"),
            "mangled": self.string(f"_Z{len(name)}{name}PfE"),
        }
        grid = {"grid_x": 8, "grid_y": 2, "grid_z": 1, "block_x": 128, "block_y": 1, "block_z": 1}
        memory = {"registers": 32, "shared_static": 1024, "shared_dynamic": 0}
        self.launched("kernels", at, pid, start, end, by=by, **names, **grid, **memory)

    def stack(self, chain: int, *entries: tuple[str, str] | tuple[str, str, int]) -> None:
        """Add a call stack of CUDA calls: symbol and module per frame, innermost first, and 1 if it is unresolved."""
        for depth, (symbol, module, *unresolved) in enumerate(entries):
            ids = {"symbol": self.string(symbol), "module": self.string(module)}
            row = {"chain": chain, "depth": depth, **ids, "unresolved": (*unresolved, None)[0]}
            self.tables["call_chains"].append(row)

    def step(self, number: int, pid: int) -> None:
        """Add one step: seven activities, of which op mm has a kernel and a copy, op gemm a kernel."""
        t = STEP_NS * (number + 1)
        host = {"thread": thread(pid)}
        per_call = f"aten::mm, seq = {number}, op_id = {number + 50}, sizes = [[2, 3]]"
        self.annotation(PUSH_POP, t, t + 900, text="step", color=0xFF00FF, payload=number, **host)
        self.annotation(PUSH_POP, t + 10, t + 300, text=per_call, **host)
        gemm = {"text_id": self.string("gemm"), "json": f'{{"m": {number}}}'}
        self.annotation(PUSH_POP, t + 50, t + 200, category=4, **gemm, **host)
        nccl = {"domain": 2, "json_id": self.string('{"ranks": 8}')}
        self.annotation(PUSH_POP, t + 55, t + 190, text="ncclAllReduce", **nccl, **host)
        self.annotation(PUSH_POP, t + 350, t + 370, text="mine | 'ü'", domain=3, number=0.5, **host)
        self.annotation(MARK, t + 5, None, text="hello", json="[1]", **host)
        self.kernel("gemm_kernel", t + 60, pid, t + 100, t + 180)
        self.kernel("mm_kernel", t + 205, pid, t + 210, t + 240)
        memory = {"copy_kind": 1, "source_kind": 1, "target_kind": 2, "migration_cause": number}
        self.launched("copies", t + 215, pid, t + 240, t + 250, bytes=4_000, **memory)
        self.launched("fills", t + 310, pid, t + 320, t + 325, bytes=64, target_kind=4)
        self.launched("graphs", t + 330, pid, t + 340, t + 345, graph=3, green_context=2)
        self.kernel("late_kernel", t + 950, pid, t + 960, t + 980)  # no range around its launch
        self.kernel("lost_kernel", -1, pid, t + 981, t + 984)  # no launch

        self.waits(t + 400, pid, kind=number % 5)
        self.memory(t + 220, pid, bytes=4_096, operation=0)
        self.memory(t + 420, pid, bytes=4_096, operation=1)

    def waits(self, at: int, pid: int, kind: int) -> None:
        """Add a synchronization of this kind, and an event recorded by the newest call."""
        where = {"device": 0, "context": 1, "process": process(pid)}
        sync = {"correlation": 900_000, "stream": schema.NONE, "event": 4, "kind": kind}
        self.tables["syncs"].append({**where, **sync, "start": at, "end": at + 20})
        event = {"correlation": self.correlation, "stream": 7, "event": schema.NONE}
        self.tables["events"].append({**where, **event})

    def memory(self, at: int, pid: int, **more: int) -> None:
        """Add an allocation or release of a pool's memory, called for by the newest call."""
        where = {"device": 0, "context": 1, "stream": 7, "process": process(pid)}
        pool = {"pool": 1 << 40, "reserved": 1 << 21, "allocated": 4_096}
        found = {"correlation": self.correlation, "address": 1 << 41, "kind": 2, "name": "of mine"}
        self.tables["memory"].append({**where, **pool, **found, "time": at, **more})

    def names_of(self, pid: int) -> None:
        """Name the process, its threads, its domains, a category and its device."""
        self.annotation(75, 1, None, text="NCCL", domain=2, thread=thread(pid))
        self.annotation(75, 1, None, text="Mine", domain=3, thread=thread(pid))
        self.annotation(33, 1, None, text="math", category=4, thread=thread(pid))
        self.tables["processes"].append({"process": process(pid), "name": f"python {pid}"})
        for name, priority in ((f"main of {pid}", 2), ("other", 1)):
            row = {"thread": thread(pid), "name": self.string(name), "priority": priority}
            self.tables["threads"].append(row)
        self.tables["devices"].append({"gpu": pid % 2, "device": 0, "pid": pid})

    def odd_ones(self) -> None:
        """Add what is rare: a phase, a range never ended, a kernel that ends before it starts."""
        self.annotation(START_END, 900, 5_000, text="epoch", thread=thread(100))
        self.annotation(PUSH_POP, 1_400, None, text="open", thread=thread(100, 2))
        self.annotation(PUSH_POP, 1_450, 1_450, thread=thread(100, 2))
        self.kernel("backwards", 1_500, 100, 1_600, 1_550)
        for node in ({"node": 5}, {"node": 6, "original": 5}):
            self.tables["graph_nodes"].append({"time": 1_300, "thread": thread(100), **node})
        own = {"thread": thread(100), "name": self.string("CUPTI Buffer flush")}
        self.tables["overhead"].append({**own, "start": 1_990, "end": 1_996, "correlation": 1})
        said = {"text": "Not all CUDA events might have been collected.", "severity": 2}
        self.tables["diagnostics"].append(
            {**said, "time": 3_000, "process": process(100), "source": 2}
        )
        for gpu in (0, 1):
            self.tables["gpus"].append({"gpu": gpu, "device": gpu, "name": f"GPU {gpu}"})


def report(
    path: Path, *, steps: int = 2, pids: Iterable[int] = (100, 101), without: str = ""
) -> Path:
    """Write an export with everything in it, but for the tables named in `without`."""
    made = Made()
    for pid in pids:
        made.names_of(pid)
        for number in range(steps):
            made.step(number, pid)
    made.odd_ones()
    return made.written(path, without)


def small(path: Path, *, steps: int = 2, without: str = "") -> Path:
    """Write an export of one process with nothing odd in it: its figures are multiples of its steps."""
    made = Made()
    made.names_of(100)
    for number in range(steps):
        made.step(number, 100)
    return made.written(path, without)


def hand_annotated(
    path: Path,
    *,
    steps: int = 3,
    engines: Iterable[int] = (2,),
    named: bool = True,
    other: str = "",
) -> Path:
    """Write a training of the idiom ``with nvtx.range("backward"): loss.backward()``.

    Of each step the first thread launches 100 ns in `forward`; each of the threads `engines` launches 300 ns while it
    waits in `backward`; and a thread that is not autograd's launches 50 ns all over the step, in a range of the name
    `other` if it has one.
    """
    made = Made()
    for pid in (100,):
        made.tables["processes"].append({"process": process(pid), "name": "python"})
        for number, by in enumerate(engines if named else ()):
            name = made.string(f"pt_autograd_{number}")
            made.tables["threads"].append({"thread": thread(pid, by), "name": name, "priority": 1})
        for number in range(steps):
            t = STEP_NS * (number + 1)
            for text, first, last in (
                ("step", 0, 950),
                ("forward", 10, 300),
                ("backward", 350, 900),
            ):
                made.annotation(PUSH_POP, t + first, t + last, text=text, thread=thread(pid))
            made.kernel("forward_kernel", t + 20, pid, t + 30, t + 130)
            for by in engines:
                made.kernel("backward_kernel", t + 400 + by, pid, t + 500, t + 800, by)
            made.kernel("worker_kernel", t + (5, 410, 940)[number % 3], pid, t + 820, t + 870, 9)
            if other:
                made.annotation(PUSH_POP, t + 1, t + 940, text=other, thread=thread(pid, 9))
    return made.written(path)


def phases_alone(path: Path) -> Path:
    """Write an export whose ranges are start/end ranges: 100 ns in `epoch`, 30 ns in `request` within it."""
    made = Made()
    made.annotation(START_END, 1_000, 9_000, text="epoch", thread=thread(100))
    made.annotation(START_END, 2_000, 5_000, text="request", thread=thread(100, 2))
    made.kernel("outer_kernel", 1_500, 100, 1_600, 1_700, 3)
    made.kernel("inner_kernel", 3_000, 100, 3_100, 3_130)
    return made.written(path)


def strings_only(path: Path) -> Path:
    """Write what `nsys export` leaves behind when it fails: readable, and not a profile."""
    write_export(path, {"strings": [{"id": 1, "value": "gemm"}]}, VERSIONS)
    return path


# What older versions did not store in a run: a store that is changed on purpose needs it.
UNSEALED = ("UPDATE runs SET checksum = NULL", "UPDATE extents SET checksums = NULL")


def changed(path: Path, *statements: str) -> Path:
    """Run SQL on an export, for what `write` cannot say."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path

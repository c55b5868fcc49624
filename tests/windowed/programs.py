"""Made programs with all that cuts may go through: ranges, calls, work that runs late, graphs, threads, processes."""

from __future__ import annotations

import random
from pathlib import Path

from made_reports import PUSH_POP, START_END, VERSIONS, process, thread

from bridge.importers.nsys import schema
from bridge.importers.nsys.write import Strings, write_export

LONG = 1_000
OPS = ("a", "b", "c", "aten::mm, seq = {}, op_id = {}, sizes = [[{}, 3]]", "nn.Module: x")
BACKWARD = "autograd::engine::evaluate_function: MmBackward0, seq = {}"
CALL_ID = 0x4E42 << 48


class Program:
    """Events at random times from 0 to `LONG`, as a seed has it."""

    def __init__(self, seed: int, *, odd: bool = True) -> None:
        self.random, self.odd = random.Random(seed), odd
        self.string = Strings()
        self.tables: dict[str, list[dict[str, object]]] = {name: [] for name in schema.READ}
        self.correlation = 0
        self.pids = (100, 101)[: self.random.randint(1, 2)]
        for pid in self.pids:
            self.tables["devices"].append({"gpu": pid % 2, "device": 0, "pid": pid})
            self.range(75, pid, 1, 1, None, text="Mine", domain=3)
        for gpu in (0, 1):
            self.tables["gpus"].append({"gpu": gpu, "device": gpu, "name": "H"})
        for _ in range(self.random.randint(5, 40)):
            self.ranges()
        for _ in range(self.random.randint(5, 60)):
            self.work()
        self.graph()

    def ranges(self) -> None:
        """Add a range on any thread: nested, crossing others, without an end, a phase."""
        start = self.random.randrange(LONG)
        length = self.random.choice([0, 1, 5, 50, 200, LONG])
        end = start + length if self.random.random() < 0.95 else None
        kind = START_END if self.random.random() < 0.1 else PUSH_POP
        number = self.random.randrange(4)
        text = self.random.choice(OPS).format(number, start, number)
        if self.random.random() < 0.2:
            text = BACKWARD.format(number)
        domain = 3 if self.random.random() < 0.2 else 0
        pid = self.random.choice(self.pids)
        if self.odd and self.random.random() < 0.05:
            start, end = start - 20, start - 30
        self.range(kind, pid, self.random.randint(1, 2), start, end, text=text, domain=domain)

    def range(
        self, kind: int, pid: int, of: int, start: int, end: int | None, **more: object
    ) -> None:
        row = {"type": kind, "start": start, "end": end, "thread": thread(pid, of)}
        self.tables["annotations"].append({**row, **more})

    def work(self) -> None:
        """Add an API call and what it issued, soon or late, on any stream; either may lack the other."""
        pid, at = self.random.choice(self.pids), self.random.randrange(LONG)
        call = self.called(pid, at)
        if self.random.random() < 0.15:
            return
        start = at + self.random.choice([1, 5, 100, 400])
        length = self.random.choice([0, 1, 10, 300])
        if self.odd and self.random.random() < 0.1:
            start, length = start - 50, self.random.choice([length, -3])
        if self.random.random() < 0.1:
            call = 900_000 + call
        self.activity(pid, start, start + length, call)

    def called(self, pid: int, at: int) -> int:
        self.correlation += 1
        name = self.string(self.random.choice(("cudaLaunchKernel_v7000", "cudaMemcpyAsync")))
        row = {"start": at, "end": at + self.random.choice([0, 5, 90]), "name": name}
        where = {"thread": thread(pid, self.random.randint(1, 3)), "correlation": self.correlation}
        self.tables["launches"].append({**row, **where})
        return self.correlation

    def activity(self, pid: int, start: int, end: int, call: int, **more: object) -> None:
        where = {"device": 0, "context": 1, "stream": self.random.randint(7, 9)}
        timed = {"start": start, "end": end, "correlation": call, "process": process(pid)}
        table = self.random.choice(("kernels", "kernels", "copies", "fills"))
        if more or table == "kernels":
            name = self.string(self.random.choice(("gemm", "add", "ncclAllReduce")))
            table, more = "kernels", {**more, "name": name, "full_name": name}
        else:
            more = {"bytes": 8} | ({"copy_kind": 1} if table == "copies" else {})
        self.tables[table].append({**where, **timed, **more})

    def graph(self) -> None:
        """Capture nodes of a graph at some time, and launch them later."""
        pid, made = self.random.choice(self.pids), self.random.randrange(LONG // 2)
        for node in range(self.random.randint(0, 3)):
            self.tables["graph_nodes"].append(
                {"time": made + node, "thread": thread(pid), "node": node + 1}
            )
        for _ in range(3):
            at = self.random.randrange(made, LONG)
            call = self.called(pid, at)
            for node in (1, 2):
                self.activity(pid, at + 3 * node, at + 40, call, graph_node=node)

    def written(self, path: Path) -> Path:
        kept = {name: rows for name, rows in self.tables.items() if rows}
        write_export(path, {**kept, "strings": self.string.rows()}, VERSIONS)
        return path

"""Small programs told event by event, as exports of Nsight Systems: times in µs, one process, one GPU unless told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from made_reports import PUSH_POP, Made, process, thread

import bridge
from bridge.annotate.recording.lines import FORMAT, encoded
from bridge.annotate.recording.sink import joined
from bridge.annotate.recording.writer import ANNOTATION_COST
from bridge.report import Report

US = 1_000
TO_DEVICE, TO_HOST = 1, 2
PAGE = 11  # copy kind of managed memory to the device
PAGEABLE, PINNED, DEVICE = 0, 1, 2
A100 = {
    "sm_count": 108,
    "compute_major": 8,
    "compute_minor": 0,
    "warp_size": 32,
    "warps_per_sm": 64,
}


class Story(Made):
    """A host that issues work: `now` is where it has come to, `done` until when the stream is busy."""

    def __init__(
        self, pid: int = 100, *, described: bool = True, gpus: int = 1, **gpu: int
    ) -> None:
        super().__init__()
        self.pid, self.now, self.done, self.device = pid, 0, 0, 0
        self.number = 1  # of the thread
        self.range_us = 0  # what a range of ours cost the process, as it recorded beside the report
        self.launch_us, self.early = (
            2,
            0,
        )  # of a launch, and by how much before its end its kernel may begin
        self.tables["processes"].append({"process": process(pid), "name": "python"})
        for number in range(gpus if described else 0):
            facts = {"gpu": number, "device": number, "name": "A100", **A100, **gpu}
            self.tables["gpus"].append(facts)

    @contextmanager
    def op(self, text: str, **more: int | str) -> Iterator[None]:
        """Be in an op, a µs at least."""
        start = self.now
        self.now += 1
        yield
        self.now += 1
        self.annotation(
            PUSH_POP,
            start * US,
            self.now * US,
            text=text,
            thread=thread(self.pid, self.number),
            **more,
        )

    def call(self, api: str, us: int = 2, result: int = 0) -> int:
        """Call the API, which returns ``result``; give the correlation id."""
        self.correlation += 1
        times = {
            "start": self.now * US,
            "end": (self.now + us) * US,
            "thread": thread(self.pid, self.number),
        }
        self.tables["launches"].append(
            {
                **times,
                "correlation": self.correlation,
                "name": self.string(api),
                "result": result,
            }
        )
        self.now += us
        return self.correlation

    def kernel(
        self,
        name: str = "relu",
        us: int = 20,
        *,
        blocks: int = 1_000,
        full: str = "",
        stream: int = 7,
    ) -> None:
        """Launch a kernel, which runs when what is before it is done."""
        self.call("cudaLaunchKernel_v7000", self.launch_us)
        self.now -= self.early
        names = {
            "name": self.string(name),
            "full_name": self.string(full or name),
            "mangled": self.string(name),
        }
        grid = {
            "grid_x": blocks,
            "grid_y": 1,
            "grid_z": 1,
            "block_x": 128,
            "block_y": 1,
            "block_z": 1,
        }
        self._ran(
            "kernels",
            us,
            stream=stream,
            registers=32,
            shared_static=0,
            shared_dynamic=0,
            **names,
            **grid,
        )
        self.now += self.early

    def copy(
        self, us: int = 20, *, way: int = TO_DEVICE, host: int = PINNED, size: int = 4_000_000,
        api: str = "cudaMemcpyAsync_v3020", held: int = 2,
    ) -> None:  # fmt: skip
        """Copy; ``held`` is how long the call takes."""
        began = self.now
        self.call(api, held)
        kinds = (host, DEVICE) if way == TO_DEVICE else (DEVICE, host)
        now, self.now = self.now, began + 2
        self._ran(
            "copies", us, bytes=size, copy_kind=way, source_kind=kinds[0], target_kind=kinds[1]
        )
        self.now = now

    def fill(self, us: int = 5, api: str = "cudaMemsetAsync_v3020", held: int = 2) -> None:
        """Fill; ``held`` is how long the call takes."""
        self.call(api, held)
        self._ran("fills", us, bytes=4_000, target_kind=DEVICE)

    def system(self, name: str, us: int) -> None:
        """Be in a call of the operating system."""
        times = {
            "start": self.now * US,
            "end": (self.now + us) * US,
            "thread": thread(self.pid, self.number),
        }
        self.tables["system_calls"].append({**times, "name": self.string(name)})
        self.now += us

    def profiled(self, us: int) -> None:
        """Let the profiler work on the thread for the next µs; what the program does meanwhile follows."""
        times = {
            "start": self.now * US,
            "end": (self.now + us) * US,
            "thread": thread(self.pid, self.number),
        }
        name = self.string("CUPTI Buffer flush")
        self.tables["overhead"].append({**times, "name": name, "correlation": 0})

    def page(self, start: int, us: int, size: int) -> None:
        """Move a page of managed memory to the device, for which nothing was called."""
        self.correlation += 1
        where = {"device": self.device, "context": 1, "stream": 1, "process": process(self.pid)}
        times = {"start": start * US, "end": (start + us) * US, "correlation": self.correlation}
        self.tables["copies"].append({**where, **times, "bytes": size, "copy_kind": PAGE})

    def graph(self, us: int = 50) -> None:
        """Launch a CUDA graph that is recorded as a whole."""
        self.call("cudaGraphLaunch_v10000")
        self._ran("graphs", us, graph=3)

    def wait(self, api: str = "cudaStreamSynchronize_v3020") -> None:
        """Wait for all work."""
        self.call(api, max(1, self.done - self.now + 1))

    @contextmanager
    def beside(self, number: int, at: int) -> Iterator[None]:
        """Be another thread from a time on; afterwards this one goes on from where it was."""
        here, self.number, self.now = (self.number, self.now), number, at
        yield
        self.number, self.now = here

    def event_wait(self, stream: int, event: int, other: int) -> None:
        """Let a stream wait for what another one has been given up to now."""
        where = {"device": self.device, "context": 1, "process": process(self.pid), "event": event}
        ids = {"correlation": self.call("cudaEventRecord_v3020"), "stream": other}
        self.tables["events"].append({**where, **ids})
        times = {"start": self.now * US, "end": (self.now + 2) * US}
        ids = {"correlation": self.call("cudaStreamWaitEvent_v3020"), "stream": stream}
        self.tables["syncs"].append({**where, **times, **ids, "kind": 2})

    def rest(self, us: int) -> None:
        """Do something else on the host."""
        self.now += us

    def load(self, folder: Path) -> Report:
        """Give it as a report."""
        if self.range_us:
            head = {"format": FORMAT, "pid": self.pid, "epoch_ns": 1, "monotonic_ns": 1}
            cost = {ANNOTATION_COST: {"ranges": 3, "ns": 3 * self.range_us * US}}
            lines = joined([encoded(head), encoded({"metadata": cost})])
            (folder / "bridge-story.jsonl").write_bytes(lines)
        return bridge.load(self.written(folder / "story.sqlite"))

    def _ran(self, table: str, us: int, stream: int = 7, **more: int) -> None:
        start = max(self.now, self.done)
        self.done = start + us
        where = {
            "device": self.device,
            "context": 1,
            "stream": stream,
            "process": process(self.pid),
        }
        times = {"start": start * US, "end": self.done * US, "correlation": self.correlation}
        self.tables[table].append({**where, **times, **more})

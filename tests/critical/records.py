"""A report in the making: records of threads and devices, as a capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bridge.importers import frames
from bridge.importers.capture import Capture, Facts
from bridge.importers.texts import Texts
from bridge.join.attributed import AttributedCapture
from bridge.join.options import AttributionOptions


def process(number: int) -> int:
    return (number + 7) << 24


def thread(number: int, nth: int = 1) -> int:
    return process(number) | (number + 7 if nth == 1 else nth)


@dataclass
class Records:
    """Rows of the frames; each is a dictionary of the columns that matter."""

    ranges: list[dict] = field(default_factory=list)
    calls: list[dict] = field(default_factory=list)
    activities: list[dict] = field(default_factory=list)
    waits: list[dict] = field(default_factory=list)
    system: list[dict] = field(default_factory=list)
    overhead: list[dict] = field(default_factory=list)
    metadata: dict = field(default_factory=dict)

    def range(self, on: int, start: int, end: int, name: str, domain: str = "", **more) -> None:
        row = {"thread": on, "start": start, "end": end, "name": name, "domain_name": domain}
        self.ranges.append({**row, "domain": len(domain), "payload": -1, "category": "", **more})

    def call(self, on: int, start: int, end: int, name: str = "cudaLaunchKernel") -> int:
        self.calls.append({"thread": on, "start": start, "end": end, "name": name})
        return len(self.calls)

    def activity(self, call: int, start: int, end: int, stream: int = 7, **more) -> None:
        """Add work of a process, 0 unless ``of`` says another."""
        of = more.pop("of", 0)
        where = {"process": process(of), "device": of, "context": 1, "stream": stream}
        row = {"correlation": call, "start": start, "end": end}
        usual = {"kind": "kernel", "name": "k", "copy_kind": -1}
        self.activities.append({**where, **row, **usual, **more})

    def wait(self, call: int, kind: str, *, stream: int = -1, event: int = -1, of: int = 0) -> None:
        called = self.calls[call - 1]
        where = {"process": process(of), "device": of, "context": 1, "stream": stream}
        row = {"correlation": call, "start": called["start"], "end": called["end"]}
        self.waits.append({**where, **row, "kind": kind, "event": event})

    @property
    def capture(self) -> Capture:
        for rows in (self.ranges, self.calls, self.system, self.overhead):
            for row in rows:
                row["process"] = row["thread"] & ~frames.ID_BITS
        calls = [{**row, "correlation": n} for n, row in enumerate(self.calls, 1)]
        names = [row["name"] for row in self.ranges]
        ranges = [{**row, "kind": "push_pop", "text": n} for n, row in enumerate(self.ranges)]
        spans = [(row["start"], row["end"]) for row in (*ranges, *calls, *self.activities)]
        span = (min(s for s, _ in spans), max(e for _, e in spans)) if spans else (0, 0)
        return Capture(
            source=("made",),
            facts=(Facts(span=span, metadata=self.metadata),),
            ranges=_frame("ranges", ranges),
            launches=_frame("launches", calls),
            activities=_frame("activities", [{**row, "full_name": row["name"]} for row in self.activities]),
            waits=_frame("waits", self.waits),
            system_calls=_frame("system_calls", self.system),
            overhead=_frame("overhead", self.overhead),
            texts=Texts.of(names),
            **{kind: frames.FRAMES[kind]() for kind in ("marks", "threads", "processes", "devices")},
        )  # fmt: skip

    def attributed(self, **how) -> AttributedCapture:
        return AttributedCapture.of(self.capture, AttributionOptions(**how))


def _frame(kind: str, rows: Sequence[dict]):
    frame, columns = frames.FRAMES[kind], {}
    for name in rows[0] if rows else ():
        values = [row[name] for row in rows]
        is_names = frame.types.get(name) == "Names"
        columns[name] = frames.Names.of(values) if is_names else np.array(values, np.int64)
    return frame(columns)

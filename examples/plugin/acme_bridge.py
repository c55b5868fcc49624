"""What a package may add to nsight-bridge: docs/plugins.md explains each part."""

import csv

import numpy as np

from bridge.analyze.checks.advice import Finding
from bridge.analyze.checks.advice.rule import activity_table
from bridge.analyze.checks.check import Check, Scale
from bridge.analyze.checks.quality import Measurement
from bridge.analyze.core.catalog import Column, TableColumns, View
from bridge.analyze.core.table import Table
from bridge.importers import Capture, Facts, Reader
from bridge.importers.frames import Names, Processes, Ranges, Threads
from bridge.importers.texts import Texts

# -- A reader: spans of a program that writes a log of its own


def is_log(path):
    return path.name.endswith(".acme")


def read_log(path, _details):
    with path.open(newline="") as file:
        spans = list(csv.DictReader(file))
    start, end, thread = (
        np.array([int(span[column]) for span in spans], np.int64)
        for column in ("start_ns", "end_ns", "thread")
    )
    name = Names.of([span["name"] for span in spans])
    return Capture(
        source=(path.name,),
        facts=(Facts("Acme log", span=(int(start.min()), int(end.max()))),),
        ranges=Ranges(
            start=start,
            end=end,
            thread=thread,
            process=np.ones_like(thread),
            name=name,
            kind=Names.of(["push_pop"] * len(spans)),
            text=name.codes,
        ),
        threads=Threads(
            thread=np.unique(thread),
            process=np.ones_like(np.unique(thread)),
            name=Names.of([f"worker {number}" for number in np.unique(thread)]),
        ),
        processes=Processes(process=np.array([1]), name=Names.of(["acme"])),
        texts=Texts.of(name.texts),
    )


LOG = Reader("acme-log", is_log, read_log)

# -- A table: how large memcpys are


def memcpy_sizes(attributed):
    activities = attributed.capture.activities
    is_memcpy = activities.kind.among("memcpy") & (activities.bytes > 0)
    rows = np.flatnonzero(is_memcpy & attributed.counted)  # what --from and --step leave
    exponent = np.log2(activities.bytes[rows]).astype(np.int64)
    sizes, group = np.unique(exponent, return_inverse=True)
    counts = np.bincount(group, minlength=len(sizes))
    time = np.zeros(len(sizes), np.int64)
    np.add.at(time, group, activities.end[rows] - activities.start[rows])
    return Table({"from_bytes": 2**sizes, "memcpys": counts, "total_ns": time})


MEMCPY_SIZES = View(
    name="memcpy-size",
    question="How large are memcpys?",
    columns=TableColumns(
        (
            Column(
                "from_bytes", "size from", "bytes", "the smallest size in the row, a power of two"
            ),
            Column("memcpys", "memcpys", "count", "number of memcpys from it to its double"),
            Column("total_ns", "time", "ns", "time of these memcpys", bar=True),
        )
    ),
    rows=memcpy_sizes,
    sorted_by=("total_ns",),
    on_gpu=True,
    nothing="no memcpys in the report",
)

# -- A rule of advice


def find_tiny_memcpys(evidence):
    size = evidence.capture.activities.bytes
    rows = np.flatnonzero(evidence.is_kind("memcpy") & (size < 4096))
    if len(rows) < 100:
        return None
    return Finding({"memcpys": len(rows)}, activity_table(evidence, rows))


TINY_MEMCPYS = Check(
    name="tiny-memcpys",
    title="Many tiny memcpys",
    when="100 memcpys or more are smaller than 4 KiB",
    text="memcpys smaller than 4 KiB: {memcpys}",
    remedy="pack them into one buffer, and copy it once",
    needs=("work",),
    find=find_tiny_memcpys,
)

# -- A reason against a capture


def count_kernels(evidence):
    kernels = int(evidence.kernels.sum())
    return Measurement(kernels, {"kernels": kernels})


FEW_KERNELS = Check(
    name="few-kernels",
    title="kernels",
    text="{kernels} kernels: too few for statistics",
    remedy="Capture more steps.",
    scale=Scale(unit="count", free=1_000, full=0, points=10),
    find=count_kernels,
)

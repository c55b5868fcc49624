"""The columns of tables that are no views: of `bridge diff` and `bridge onednn`, and the ranks beside a table."""

from __future__ import annotations

from bridge.analyze.core.catalog.column import (
    CLOCK_OFFSET,
    COUNT,
    FIGURE,
    FLOP,
    ID,
    NAME,
    NS,
    SHARE,
    Column,
    table,
)
from bridge.analyze.core.catalog.ranges import HIDDEN, KERNELS, PID, QUIET, REPORT

# The rows of a comparison are written as texts: see `bridge.render.diff`.
DIFF = table(
    Column("calls", "calls", ID, "calls before and after", **QUIET),
    Column("activities", "count", ID, "activities before and after", **QUIET),
    Column("before_ns", "before", ID, "time before; the line above says if it is per step"),
    Column("after_ns", "after", ID, "time after"),
    Column("diff_ns", "difference", ID, "after_ns less before_ns", optional=True),
    Column("change", "change", ID, "diff_ns by before_ns"),
    Column("interval", "interval", ID, "95 % interval of the change per step", quiet=True),
    Column("share", "of change", ID, "part of the change of the whole", optional=True),
    Column("p", "p", ID, "p-value of a Mann-Whitney U test over steps", **QUIET),
    Column("state", "state", ID, "new, vanished, slower, faster, same, unclear"),
)

RANKS = table(
    Column("rank", "rank", ID, "number of the rank, −1 unknown"),
    Column("host", "host", NAME, "machine", quiet=True),
    PID,
    Column("gpu", "GPU", NAME, "GPU"),
    REPORT,
    Column("known_by", "known by", NAME, "source of the number of the rank", optional=True),
    Column(
        "clock", "clock by", NAME, "source of the offset of its clock", optional=True, distinct=True
    ),
    Column("clock_offset_ns", "clock", CLOCK_OFFSET, "time added to its times", quiet=True),
    Column("clock_spread_ns", "±", NS, "uncertainty of the offset", missing=True, quiet=True),
    Column("start_ns", "start", NS, "first event, from that of all ranks", **HIDDEN),
    Column("span_ns", "span", NS, "first to last event"),
    KERNELS,
    Column("gpu_ns", "GPU", NS, "GPU time of its activities", **HIDDEN),
    Column("busy_ns", "busy", NS, "time with any activity running, over its GPUs", **HIDDEN),
    Column("run_ns", "run", NS, "length of the run, over its GPUs", **HIDDEN),
    Column(
        "busy_share",
        "GPU busy",
        SHARE,
        "busy_ns by run_ns",
        ("busy_ns", "run_ns"),
        bar=True,
    ),
    Column("attributed_share", "in ops", SHARE, "part of its GPU time that has an op"),
    Column("exposed_ns", "exposed", NS, "communication that no computation hid", quiet=True),
    terminal="rank host gpu report pid known_by clock clock_offset_ns clock_spread_ns span_ns busy_share"
    " attributed_share exposed_ns kernels",
)

ONEDNN = table(
    *(
        Column(name, name, NAME, meaning)
        for name, meaning in {
            "primitive": "kind of the primitive",
            "impl": "implementation",
            "prop": "propagation kind",
            "problem": "problem descriptor",
            "layout": "memory formats",
            "attributes": "attributes",
            "aux": "auxiliary information",
            "engine": "engine",
        }.items()
    ),
    Column("calls", "calls", COUNT, "executions"),
    Column("total_ns", "total", NS, "time of the executions", bar=True),
    Column("share", "share", SHARE, "part of the time of all primitives"),
    Column("mean_ns", "mean", NS, "mean", optional=True),
    Column("median_ns", "median", NS, "median", optional=True),
    Column("min_ns", "min", NS, "shortest", optional=True),
    Column("max_ns", "max", NS, "longest", optional=True),
    Column("flop", "FLOPs", FLOP, "floating-point operations", missing=True, **QUIET),
    Column("gflop_per_s", "GFLOP/s", FIGURE, "10**9 FLOPs per second", missing=True, quiet=True),
    Column("creations", "creations", COUNT, "times that the primitive was created", **QUIET),
    Column("creation_ns", "creating", NS, "time of creating it", quiet=True),
)

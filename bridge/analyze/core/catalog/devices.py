"""The tables of GPUs and ranks: use of devices, collectives, late ranks, rules of Nsight Compute."""

from __future__ import annotations

from bridge.analyze.core.catalog.breakdown import KERNEL, OP
from bridge.analyze.core.catalog.column import (
    BYTES,
    CHANGE,
    COUNT,
    GB_PER_S,
    NAME,
    NS,
    NUMBER,
    PERCENT,
    SHARE,
    Column,
    table,
)
from bridge.analyze.core.catalog.ranges import HIDDEN, QUIET
from bridge.analyze.core.catalog.view import GEOMETRY, View

RULE = View(
    "rule",
    "What did Nsight Compute's rules find?",
    table(
        Column("rule", "rule", NAME, "name of the rule"),
        KERNEL,
        Column("kind", "kind", NAME, "optimization or information"),
        Column("saves_ns", "saves", NS, "time that it estimates to save", bar=True),
        Column("speedup", "estimate", PERCENT, "estimated speed-up", missing=True),
        Column("scope", "scope", NAME, "what the estimate is for: the kernel or a part"),
        Column("count", "count", COUNT, "kernels", optional=True),
        Column("total_ns", "GPU total", NS, "time of these kernels", optional=True),
        Column("text", "message", NAME, "message of the rule"),
    ),
    rows="tables.metrics:by_rule",
    takes=("kernel_names",),
    sorted_by=("saves_ns", "total_ns"),
    details=("metrics",),
    timeline=False,
    nothing="no rules of Nsight Compute apply to a kernel",
    page="ncu.md",
)

DEVICE = View(
    "device",
    "How busy is each GPU?",
    table(
        Column("device", "device", NAME, "GPU"),
        Column("processes", "processes", COUNT, "processes with work on it", **HIDDEN),
        Column("streams", "streams", COUNT, "streams with work on it", **HIDDEN),
        Column("activities", "activities", COUNT, "activities", **HIDDEN),
        Column("kernels", "kernels", COUNT, "kernels", **HIDDEN),
        Column("gpu_ns", "GPU", NS, "sum of the times of its activities", **HIDDEN),
        Column("run_ns", "run", NS, "length of the run, or of its selected part", **HIDDEN),
        Column("busy_ns", "busy", NS, "time with any activity running", bar=True),
        Column(
            "elsewhere_ns", "others", NS, "time with other work, not selected, alone", quiet=True
        ),
        Column("idle_ns", "idle", NS, "time without any work", optional=True),
        Column("busy_share", "of run", SHARE, "busy_ns by run_ns", ("busy_ns", "run_ns")),
        Column("span_ns", "span", NS, "first start to last end", **HIDDEN),
        Column(
            "concurrency",
            "at once",
            NUMBER,
            "activities running at the same time, on average while busy",
        ),
        Column(
            "max_concurrent",
            "most",
            COUNT,
            "activities running at the same time, at most",
            optional=True,
        ),
        Column("compute_ns", "compute", NS, "time with a compute kernel running", optional=True),
        Column(
            "communication_ns",
            "communication",
            NS,
            "time with a communication kernel running",
            **QUIET,
        ),
        Column("memops_ns", "memops", NS, "time with a memcpy or memset running", **QUIET),
        Column("overlap_ns", "overlap", NS, "communication that computation hid", **HIDDEN),
        Column("exposed_ns", "exposed", NS, "communication that no computation hid", **QUIET),
        Column(
            "sm_efficiency",
            "SMs used",
            SHARE,
            "part of the SMs that kernels had blocks for",
            missing=True,
            **QUIET,
        ),
        Column(
            "occupancy",
            "occupancy",
            SHARE,
            "theoretical occupancy of the kernels",
            missing=True,
            **QUIET,
        ),
        terminal="device busy_ns busy_share idle_ns concurrency max_concurrent compute_ns communication_ns exposed_ns"
        " memops_ns sm_efficiency occupancy",
    ),
    rows="tables.devices:by_device",
    sorted_by=("busy_ns",),
    details=GEOMETRY,
    on_gpu=True,
    page="communication.md",
)

COLLECTIVE = View(
    "collective",
    "How long are collectives, and how much of them is hidden?",
    table(
        Column("collective", "collective", NAME, "kind of the collective"),
        Column("op", "op", NAME, "op that called it", optional=True),
        Column("dtype", "type", NAME, "type of the elements", **QUIET),
        Column("algorithm", "algorithm", NAME, "algorithm of the library", **HIDDEN),
        Column(
            "message_bytes",
            "message",
            BYTES,
            "size of one message in NCCL's payload",
            missing=True,
            **QUIET,
        ),
        Column(
            "comm_ranks",
            "of ranks",
            COUNT,
            "ranks of the communicator in NCCL's payload",
            missing=True,
            **QUIET,
        ),
        Column("ranks", "ranks", COUNT, "ranks with it", optional=True),
        Column("count", "count", COUNT, "kernels"),
        Column("total_ns", "GPU total", NS, "sum of their times", bar=True),
        Column("mean_ns", "mean", NS, "mean of their times", optional=True),
        Column("min_ns", "min", NS, "shortest", **HIDDEN),
        Column("max_ns", "max", NS, "longest", **HIDDEN),
        Column("exposed_ns", "exposed", NS, "time that no computation hid"),
        Column(
            "bytes",
            "bytes",
            BYTES,
            "size of the data, as nccl-tests count it",
            missing=True,
            **QUIET,
        ),
        Column("gb_per_s", "speed", GB_PER_S, "bytes by the GPU total", missing=True, **QUIET),
        Column(
            "bus_gb_per_s",
            "on the bus",
            GB_PER_S,
            "bus bandwidth, as nccl-tests define it",
            missing=True,
            **QUIET,
        ),
        Column(
            "link_gb_per_s",
            "link",
            GB_PER_S,
            "bandwidth of the GPUs' link in one direction, from their data sheet",
            missing=True,
            **QUIET,
        ),
        Column(
            "link_share",
            "of link",
            SHARE,
            "bus_gb_per_s by link_gb_per_s",
            missing=True,
            **QUIET,
        ),
        Column(
            "transfer_ns", "transfer", NS, "time after the last rank arrived", missing=True, **QUIET
        ),
        Column(
            "wait_ns", "waiting", NS, "time before the last rank arrived", missing=True, **QUIET
        ),
        Column("straggler", "straggler", NAME, "rank that the others waited for most", **QUIET),
        Column(
            "arrival_mean_ns",
            "apart",
            NS,
            "mean time between first and last arrival",
            missing=True,
            **QUIET,
        ),
        Column(
            "arrival_max_ns",
            "most apart",
            NS,
            "longest time between first and last arrival",
            missing=True,
            **HIDDEN,
        ),
        Column("last", "comes last", NAME, "rank that arrives last most often", **QUIET),
        terminal="collective op dtype message_bytes comm_ranks ranks count total_ns mean_ns exposed_ns wait_ns"
        " transfer_ns straggler arrival_mean_ns last bytes gb_per_s bus_gb_per_s link_gb_per_s link_share",
    ),
    rows="run.concurrency.collectives:by_collective",
    sorted_by=("total_ns",),
    details=("json", "nccl_calls"),
    on_gpu=True,
    nothing="no kernels of a communication library in the report",
    page="communication.md",
)

SKEW = View(
    "skew",
    "Which rank is late?",
    table(
        OP,
        Column("ranks", "ranks", COUNT, "ranks with the op", optional=True),
        Column("total_ns", "GPU self", NS, "GPU time of all ranks", optional=True),
        Column("mean_ns", "mean", NS, "mean per rank", **HIDDEN),
        Column("median_ns", "median", NS, "median per rank"),
        Column("slowest", "slowest", NAME, "slowest rank"),
        Column("slowest_ns", "took", NS, "time of the slowest rank"),
        Column("fastest", "fastest", NAME, "fastest rank", **HIDDEN),
        Column("fastest_ns", "fastest took", NS, "time of the fastest rank", **HIDDEN),
        Column("skew", "more", CHANGE, "slowest_ns against the median"),
        Column("lost_ns", "lost", NS, "slowest_ns less the median", bar=True),
        Column("communication_ns", "communication", NS, "communication among it", **QUIET),
    ),
    rows="run.ranks.table:by_skew",
    sorted_by=("lost_ns", "total_ns"),
    details=("json",),
    on_gpu=True,
    timeline=False,
    nothing="no op with work on a GPU in the report",
    page="ranks.md",
)

VIEWS = (DEVICE, COLLECTIVE, SKEW, RULE)

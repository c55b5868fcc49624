"""The columns of the tables of `bridge memory`."""

from __future__ import annotations

from bridge.analyze.core.catalog.column import (
    ADDRESS,
    BYTES,
    BYTES_CHANGE,
    COUNT,
    ID,
    NAME,
    NS,
    PATH,
    SHARE,
    Column,
    table,
)
from bridge.analyze.core.catalog.column import (
    STEP as STEP_NUMBER,
)

OP = Column("op", "op", NAME, "innermost op that allocated")
PLACE = (
    Column("report", "report", ID, "file, where there are several", distinct=True),
    Column("pid", "pid", ID, "id of the process", optional=True, distinct=True),
    Column("device", "GPU", ID, "number of the GPU", distinct=True),
    Column("memory", "memory", NAME, "kind of memory", distinct=True),
)
COUNTS = (
    Column("allocations", "allocations", COUNT, "allocations"),
    Column("releases", "releases", COUNT, "releases", optional=True),
    Column("allocated_bytes", "allocated", BYTES, "bytes allocated", bar=True),
    Column("released_bytes", "released", BYTES, "bytes released", optional=True),
)
UNDER_IT = tuple(  # in JSON and CSV alone
    Column(f"total_{name}", f"{heading}, total", unit, meaning, terminal=False)
    for name, heading, unit, meaning in (
        ("allocations", "allocations", COUNT, "allocations of it and everything under it"),
        ("releases", "releases", COUNT, "releases of it and everything under it"),
        ("released_bytes", "released", BYTES, "bytes that it and everything under it released"),
    )
)
SAMPLED_PLACE = (
    Column("pid", "pid", ID, "id of the process", optional=True, distinct=True),
    Column("device", "device", NAME, "GPU, or the host", distinct=True),
)
STEP = Column("step", "step", STEP_NUMBER, "step, −1 outside of all", quiet=True)
PEAK_RESERVED = Column(
    "peak_reserved_bytes",
    "most reserved",
    BYTES,
    "most reserved by the allocator",
    missing=True,
    quiet=True,
)
FRAGMENTATION = Column(
    "fragmentation",
    "unused",
    SHARE,
    "part of the reserved bytes that was not used",
    missing=True,
    quiet=True,
)
DRIVER = Column(
    "driver_bytes",
    "driver, libraries",
    BYTES,
    "memory of the process on the GPU by NVML, less what its allocator holds",
    missing=True,
    quiet=True,
)
MEMORY = {
    "memory sampled op": table(
        OP,
        *SAMPLED_PLACE,
        Column("samples", "samples", COUNT, "samples"),
        Column("peak_bytes", "most used", BYTES, "most used in a sample", bar=True),
        PEAK_RESERVED,
    ),
    "memory sampled trace": table(
        Column("trace", "#", ID, "number of the sample"),
        Column("time_ns", "time", NS, "when it was taken", optional=True),
        *SAMPLED_PLACE,
        OP,
        STEP,
        Column("used_bytes", "used", BYTES, "bytes in use"),
        Column(
            "reserved_bytes",
            "reserved",
            BYTES,
            "bytes reserved by the allocator",
            missing=True,
            quiet=True,
        ),
        DRIVER,
    ),
    "memory sampled summary": table(
        *SAMPLED_PLACE,
        Column("samples", "samples", COUNT, "samples"),
        Column("peak_bytes", "most used", BYTES, "most used in a sample", bar=True),
        Column("peak_op", "in", NAME, "op of that sample", quiet=True),
        Column("peak_step", "step", ID, "step of that sample", missing=True, quiet=True),
        PEAK_RESERVED,
        FRAGMENTATION,
        DRIVER,
    ),
    "memory op": table(
        OP,
        Column("memory", "memory", NAME, "kind of memory", distinct=True),
        *COUNTS,
        Column("net_bytes", "net", BYTES_CHANGE, "allocated less released"),
        Column(
            "total_allocated_bytes",
            "allocated, total",
            BYTES,
            "by it and everything under it",
            optional=True,
        ),
        Column(
            "total_net_bytes",
            "net, total",
            BYTES_CHANGE,
            "by it and everything under it",
            optional=True,
        ),
        *UNDER_IT,
        Column("peak_bytes", "rise in a call", BYTES, "largest rise within a call"),
        Column(
            "workspace_bytes",
            "workspace",
            BYTES,
            "most in use at a time of what a call allocated and released itself",
            optional=True,
            quiet=True,
        ),
        Column("left_bytes", "left", BYTES, "never released", quiet=True),
        Column("largest_bytes", "largest", BYTES, "largest allocation", optional=True),
    ),
    "memory summary": table(
        *PLACE,
        Column("peak_bytes", "peak", BYTES, "most in use at a time"),
        Column("peak_ns", "at", NS, "when", missing=True),
        Column("peak_op", "in", NAME, "op that was open then", quiet=True),
        Column("peak_step", "step", ID, "step then", quiet=True),
        Column(
            "peak_reserved_bytes",
            "peak reserved",
            BYTES,
            "most reserved at a time",
            missing=True,
            quiet=True,
        ),
        Column("reserved_ns", "reserved at", NS, "when", missing=True, quiet=True, optional=True),
        Column(
            "reserved_op", "reserved in", NAME, "op that was open then", quiet=True, optional=True
        ),
        Column("reserved_step", "reserved, step", ID, "step then", quiet=True, optional=True),
        FRAGMENTATION.but(heading="unused of it"),
        Column("before_bytes", "from before", BYTES, "allocated before the capture", quiet=True),
        Column("end_bytes", "at the end", BYTES, "in use at the end"),
        *COUNTS,
    ),
    "memory allocation": table(
        OP,
        *PLACE,
        Column("bytes", "bytes", BYTES, "size", bar=True),
        Column("start_ns", "from", NS, "when it was allocated", missing=True),
        Column("end_ns", "to", NS, "when it was released", missing=True, optional=True),
        Column("lifetime_ns", "lifetime", NS, "end_ns less start_ns", missing=True),
        STEP,
        Column("state", "state", NAME, "released, left, or from before"),
        Column(
            "released_by", "released by", NAME, "op that released it", optional=True, quiet=True
        ),
        Column("address", "address", ADDRESS, "address", optional=True),
        Column("name", "name", NAME, "name of the variable", optional=True, quiet=True),
    ),
    "memory alive": table(
        OP,
        *PLACE,
        Column("count", "allocations", COUNT, "allocations alive at the peak", missing=True),
        Column("bytes", "bytes", BYTES, "their bytes", bar=True),
        Column("share", "of peak", SHARE, "part of the peak"),
    ),
    "memory category": table(
        Column("category", "category", NAME, "parameters, gradients, activations …"),
        *PLACE,
        Column("at_peak_bytes", "at the peak", BYTES, "in use at the peak of all", bar=True),
        Column("share", "of peak", SHARE, "part of that peak"),
        Column("peak_bytes", "own peak", BYTES, "most of this category at a time"),
        Column("end_bytes", "at the end", BYTES, "in use at the end", optional=True),
        Column("allocations", "allocations", COUNT, "allocations", optional=True),
        Column("allocated_bytes", "allocated", BYTES, "bytes allocated", optional=True),
    ),
    "memory scope": table(
        Column("path", "path", PATH, "ops around the allocation"),
        *PLACE,
        Column("count", "allocations", COUNT, "allocations alive at the peak", missing=True),
        Column("bytes", "bytes", BYTES, "their bytes", bar=True),
        Column(
            "total_count",
            "allocations, total",
            COUNT,
            "with those of paths below",
            missing=True,
            optional=True,
        ),
        Column("total_bytes", "bytes, total", BYTES, "with those of paths below"),
        Column("share", "of peak, total", SHARE, "total_bytes by the peak"),
    ),
    "memory step": table(
        Column("step", "step", STEP_NUMBER, "number of the step"),
        *PLACE,
        *COUNTS,
        Column("net_bytes", "net", BYTES_CHANGE, "allocated less released"),
        Column("peak_bytes", "peak", BYTES, "most in use during the step"),
        Column("end_bytes", "at its end", BYTES, "in use at its end"),
        Column("kept_bytes", "kept", BYTES, "allocated in the step and in use at its end"),
        Column(
            "later_bytes",
            "kept later",
            BYTES,
            "allocated in the step and in use at the end of all",
            missing=True,
        ),
    ),
    "memory trace": table(
        Column("trace", "#", ID, "number of the event"),
        Column("time_ns", "time", NS, "when"),
        Column("event", "event", NAME, "allocation, release …"),
        OP,
        *PLACE,
        Column("bytes", "bytes", BYTES, "size"),
        Column("used_bytes", "used", BYTES, "in use after it"),
        Column("reserved_bytes", "reserved", BYTES, "reserved after it", missing=True, quiet=True),
        STEP.but(optional=True),
        Column("address", "address", ADDRESS, "address", optional=True),
    ),
}

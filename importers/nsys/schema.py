"""The only place that names tables and columns of Nsight Systems' SQLite exports.

What differs between versions 2021 to 2026 is said beside the column.
"""

from __future__ import annotations

from importers.nsys.table import Column, Table, detail, maybe, needed, text

NONE = 2**32 - 1  # what CUPTI writes where a record has no stream or no event
NO_END = -(2**63 - 1)  # stands for an end that is NULL: before any start, so never a valid one
THREAD_BITS = 0xFFFFFF  # globalTid = hardware (8 bits) | vm (8) | process (24) | thread (24)

MARK = (34, 65)  # ENUM_NSYS_EVENT_TYPE; the exports' own ENUM tables may be absent or empty
PUSH_POP = (59, 70)
START_END = (60, 71)
CATEGORY_NAME = 33
DOMAIN_NAME = 75

COPY_KINDS = {  # ENUM_CUDA_MEMCPY_OPER, with the labels that nsys prints
    0: "Unknown",
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
DECOMPRESSION = "[CUDA mem decompress]"
FILL = "[CUDA memset]"
GRAPH = "[CUDA graph {}]"

_WHEN = {"start": needed("start"), "end": maybe("end", missing=NO_END)}
_WHERE = {  # columns of everything that runs on a device
    "device": maybe("deviceId"),
    "context": maybe("contextId"),
    "stream": maybe("streamId"),
    "process": maybe("globalPid"),
    "correlation": maybe("correlationId"),
}
_GREEN = {"green_context": detail("greenContextId", none=0)}  # from 3.7 on

STRINGS = Table("StringIds", {"id": needed("id"), "value": text("value")}, core=True)
KERNELS = Table(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    {
        **_WHEN,
        **_WHERE,
        "name": maybe("shortName", "demangledName"),
        "full_name": maybe("demangledName", "shortName"),
        "mangled": detail("mangledName", "demangledName"),  # not in exports up to 2021
        "grid_x": detail("gridX"),
        "grid_y": detail("gridY"),
        "grid_z": detail("gridZ"),
        "block_x": detail("blockX"),
        "block_y": detail("blockY"),
        "block_z": detail("blockZ"),
        "registers": detail("registersPerThread"),
        "shared_static": detail("staticSharedMemory"),
        "shared_dynamic": detail("dynamicSharedMemory"),
        **_GREEN,
        "graph": detail("graphId"),  # from 3.2x on
        "graph_node": maybe("graphNodeId"),
    },
    core=True,
)
COPIES = Table(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    {
        **_WHEN,
        **_WHERE,
        "bytes": maybe("bytes"),
        "copy_kind": maybe("copyKind", missing=0),
        "source_kind": detail("srcKind"),
        "target_kind": detail("dstKind"),
        "migration_cause": detail("migrationCause"),
        **_GREEN,
        "graph_node": maybe("graphNodeId"),
    },
)
FILLS = Table(
    "CUPTI_ACTIVITY_KIND_MEMSET",
    {
        **_WHEN,
        **_WHERE,
        "bytes": maybe("bytes"),
        "target_kind": detail("memKind"),
        **_GREEN,
        "graph_node": maybe("graphNodeId"),
    },
)
DECOMPRESSIONS = Table(  # documented for 3.28; no export with one was seen
    "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS", {**_WHEN, **_WHERE, "bytes": maybe("sourceBytes")}
)
GRAPHS = Table(
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    {**_WHEN, **_WHERE, **_GREEN, "graph": maybe("graphId")},
)
_WAITS = {
    **_WHERE,
    "stream": Column(("streamId",), none=NONE),
    "event": Column(("eventId",), none=NONE),
}
SYNCS = Table(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    {**_WHEN, **_WAITS, "kind": maybe("syncType", missing=0)},
    detail="waits",
)
EVENTS = Table("CUPTI_ACTIVITY_KIND_CUDA_EVENT", _WAITS, detail="waits")
MEMORY = Table(  # with --cuda-memory-usage=true; the stream and the pool not in all versions
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    {
        "time": needed("start"),
        **_WHERE,
        "address": maybe("address"),
        "bytes": needed("bytes"),
        "kind": maybe("memKind"),
        "operation": needed("memoryOperationType"),  # ENUM_CUDA_DEV_MEM_EVENT_OPER
        "name": Column(("name",), text=True, mixed=True),
        "pool": Column(("localMemoryPoolAddress",), none=0),
        "reserved": maybe("localMemoryPoolSize"),
        "allocated": maybe("localMemoryPoolUtilizedSize"),
    },
    detail="memory",
)
LAUNCHES = Table(  # runtime and driver calls alike
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    {
        **_WHEN,
        "thread": maybe("globalTid"),
        "correlation": maybe("correlationId"),
        "name": maybe("nameId"),
    },
    core=True,
)
_JSON, _NUMBERS = ("jsonText", "jsonTextId"), ("doubleValue", "floatValue")
ANNOTATIONS = Table(
    "NVTX_EVENTS",
    {
        **_WHEN,
        "type": Column(("eventType",), needed=True, flags=(*_JSON, *_NUMBERS)),
        "thread": maybe("globalTid"),
        "domain": maybe("domainId", missing=0),
        "category": detail("category", missing=0),
        "color": detail("color"),
        "payload": maybe("int64Value", "uint64Value", "int32Value", "uint32Value"),
        # Some writers put the name itself where its id belongs; SQLite lets them.
        "text_id": Column(("textId",), mixed=True),
        "text": Column(("text", "textId"), text=True, mixed=True),
        "json": Column(_JSON[:1], text=True, mixed=True, rare=True),
        "json_id": Column(_JSON[1:], mixed=True, rare=True),
        "number": Column(_NUMBERS, text=True, real=True, rare=True),
    },
    core=True,
)
_NODE = {
    "time": needed("start"),
    "thread": maybe("globalTid"),
    "node": maybe("graphNodeId"),
    "original": maybe("originalGraphNodeId"),
}
GRAPH_NODES = (  # creations of graph nodes; the older name has come to stand for creations of graphs
    Table("CUDA_GRAPH_NODE_EVENTS", _NODE),
    Table("CUDA_GRAPH_EVENTS", _NODE),
)
OVERHEAD = Table(  # the profiler's own work; the type and the call not in all versions
    "PROFILER_OVERHEAD",
    {
        **_WHEN,
        "thread": maybe("globalTid"),
        "correlation": maybe("correlationId"),
        "name": maybe("nameId"),
    },
    detail="overhead",
)
DIAGNOSTICS = Table(  # what the profiler says of the capture; an id of a string in some versions
    "DIAGNOSTIC_EVENT",
    {
        "time": needed("timestamp"),
        "process": maybe("globalPid"),
        "source": maybe("source"),  # ENUM_DIAGNOSTIC_SOURCE_TYPE
        "severity": maybe("severity"),  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL
        "text_id": Column(("textId",), mixed=True),
        "text": Column(("text", "textId"), text=True, mixed=True),
    },
    detail="diagnostics",
)
BESIDE = {  # what else may be recorded, at a cost: it is known how much of it there is, nothing more
    "calls of the OS runtime": Table("OSRT_API", {}),
    "samples of the CPU": Table("COMPOSITE_EVENTS", {}),
    "context switches of threads": Table("SCHED_EVENTS", {}),
}
PROCESSES = Table("PROCESSES", {"process": maybe("globalPid"), "name": text("name")})
THREADS = Table(
    "ThreadNames",
    {"thread": maybe("globalTid"), "name": maybe("nameId"), "priority": maybe("priority")},
)
GPUS = Table(
    "TARGET_INFO_GPU",
    {
        "gpu": maybe("id"),
        "device": maybe("cuDevice", "id"),
        "name": text("name"),
        "memory_bytes": maybe("totalMemory"),
        "memory_bandwidth": maybe("memoryBandwidth"),
        "clock_hz": maybe("clockRate"),
        "l2_bytes": maybe("l2CacheSize"),
        "compute_major": maybe("computeMajor"),
        "compute_minor": maybe("computeMinor"),
        "sm_count": maybe("smCount"),
        "warp_size": maybe("threadsPerWarp"),
        "warps_per_sm": maybe("maxWarpsPerSm"),
        "blocks_per_sm": maybe("maxBlocksPerSm"),
        "threads_per_block": maybe("maxThreadsPerBlock"),
        "registers_per_sm": maybe("maxRegistersPerSm"),
        "registers_per_block": maybe("maxRegistersPerBlock"),
        "shared_per_sm": maybe("maxShmemPerSm"),
        "shared_per_block": maybe("maxShmemPerBlock"),
        "shared_per_block_optin": maybe("maxShmemPerBlockOptin"),
    },
)
DEVICES = Table(  # from 3.20 on: which GPU a process calls device 0
    "TARGET_INFO_CUDA_DEVICE",
    {"gpu": maybe("gpuId"), "device": maybe("cudaId"), "pid": maybe("pid")},
)
SESSION = Table("ANALYSIS_DETAILS", {"duration": Column(("duration",), mixed=True)})
EPOCH = Table("TARGET_INFO_SESSION_START_TIME", {"epoch": maybe("utcEpochNs")})
_SAID = {"name": text("name"), "value": text("value")}
SYSTEM = Table("TARGET_INFO_SYSTEM_ENV", _SAID)
HOST, ENVIRONMENT = "Hostname", "DeviceEnvironment"  # rows of it; NAME=value with NULs between
CAPTURE = Table("META_DATA_CAPTURE", _SAID)  # in newer exports
OF_PROGRAM = "PROCESS_0:ENVIRONMENT_VARIABLE"  # rows of it, the program's own: NAME="value"
VERSIONS = (  # renamed after 3.1
    Table("META_DATA_EXPORT", _SAID),
    Table("EXPORT_META_DATA", _SAID),
)
PRODUCT_VERSION, SCHEMA_VERSION = "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"

READ = {  # everything that a report is made of, by the name it is read under
    "strings": STRINGS,
    "kernels": KERNELS,
    "copies": COPIES,
    "decompressions": DECOMPRESSIONS,
    "fills": FILLS,
    "graphs": GRAPHS,
    "syncs": SYNCS,
    "events": EVENTS,
    "memory": MEMORY,
    "launches": LAUNCHES,
    "annotations": ANNOTATIONS,
    "graph_nodes": GRAPH_NODES[0],
    "graph_nodes_old": GRAPH_NODES[1],
    "overhead": OVERHEAD,
    "diagnostics": DIAGNOSTICS,
    "processes": PROCESSES,
    "threads": THREADS,
    "gpus": GPUS,
    "devices": DEVICES,
    "session": SESSION,
    "epoch": EPOCH,
    "system": SYSTEM,
    "capture": CAPTURE,
    "versions": VERSIONS[0],
    "versions_old": VERSIONS[1],
}

# What `scrub` leaves of an export. Of every table all numbers but for those that are emptied; of texts these alone.
EMPTIED = {  # table: what it holds
    "TARGET_INFO_SYSTEM_ENV": "facts of the machine and its environment variables",
    "META_DATA_CAPTURE": "settings of the capture: command line, environment, paths",
    "ProcessStreams": "what processes printed",
    "DIAGNOSTIC_EVENT": "what the profiler said, with paths and names of processes",
}
SAYING = {  # texts that stay; a prefix of a table's name ends in *
    "ENUM_*": ("name", "label"),
    "NVTX_EVENTS": ("text", "jsonText", "textId", "jsonTextId"),  # texts where ids belong, too
    "CUPTI_ACTIVITY_KIND_*": ("shortName", "demangledName", "mangledName", "nameId"),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": ("name",),
    "NVTX_PAYLOAD_*": ("name", "description"),
    "TARGET_INFO_GPU": ("name", "chipName"),
    "TARGET_INFO_GPU_METRICS": ("metricName", "typeName"),
    "TARGET_INFO_SESSION_START_TIME": ("utcTime", "localTime"),
    "UnwindMethodType": ("name",),
}
# Columns of any table whose numbers are ids of texts that stay: names of kernels, calls, ranges, functions.
NAMING = frozenset(
    "shortName demangledName mangledName nameId textId jsonTextId name symbol".split()
)
# Columns of hardware, in lower case.
IDENTIFYING = frozenset("guid uuid serial mac macaddress nodeguid portguid".split())

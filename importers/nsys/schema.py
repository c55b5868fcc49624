"""The tables and columns of Nsight Systems' SQLite exports. Only this module names them.

A column says what NULL means in it. In an optional one NULL is ``missing``: -1, nothing known, where it says
nothing else. In a required one NULL is ``null``; without that NVIDIA declares the column NOT NULL, and NULL is
damage. nsys leaves out many values that are 0, so NULL is 0 in enumerations, offsets and flags.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from bridge.importers.arrays import MISSING
from bridge.importers.nsys.tables import (
    GPU_SIDE,
    HOST_SIDE,
    JSON,
    NCCL_CALLS,
    Column,
    Table,
    detail,
    optional,
    required,
    text,
)

# -- The tables


NONE = 2**32 - 1  # written by CUPTI for a record without a stream or an event
NO_TIME = -(2**63 - 1)  # replaces a time that is NULL; before any other
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
PEER_COPY = 10
UNKNOWN_MEMORY = 7  # ENUM_CUDA_MEM_KIND, which begins with pageable memory as 0
TARGET = 2  # ENUM_DIAGNOSTIC_SOURCE_TYPE: a message of the profiler in the program
DECOMPRESSION = "[CUDA mem decompress]"
FILL = "[CUDA memset]"
GRAPH = "[CUDA graph {}]"

_TIMES = {
    "start": required("start"),
    "end": optional("end", missing=NO_TIME),
}
_PLACE = {  # columns of all device activities
    "device": optional("deviceId"),
    "context": optional("contextId"),
    "stream": optional("streamId"),
    "process": optional("globalPid"),
    "correlation": optional("correlationId"),
}
_GREEN = {"green_context": detail("greenContextId", none=0)}  # from 3.7 on

STRINGS = Table("StringIds", {"id": required("id"), "value": text("value")}, core=True)
KERNELS = Table(
    "CUPTI_ACTIVITY_KIND_KERNEL",
    {
        **_TIMES,
        **_PLACE,
        "name": optional("shortName", "demangledName"),
        "full_name": optional("demangledName", "shortName"),
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
        "graph_node": optional("graphNodeId"),
    },
    core=True,
)
COPIES = Table(
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    {
        **_TIMES,
        **_PLACE,
        "bytes": optional("bytes"),
        "copy_kind": optional("copyKind", missing=0),
        "source_kind": detail("srcKind"),
        "target_kind": detail("dstKind"),
        "migration_cause": detail("migrationCause"),
        **_GREEN,
        "graph_node": optional("graphNodeId"),
    },
)
FILLS = Table(
    "CUPTI_ACTIVITY_KIND_MEMSET",
    {
        **_TIMES,
        **_PLACE,
        "bytes": optional("bytes"),
        "target_kind": detail("memKind"),
        **_GREEN,
        "graph_node": optional("graphNodeId"),
    },
)
DECOMPRESSIONS = Table(  # documented for 3.28; not seen in an export so far
    "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS", {**_TIMES, **_PLACE, "bytes": optional("sourceBytes")}
)
GRAPHS = Table(
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    {**_TIMES, **_PLACE, **_GREEN, "graph": optional("graphId")},
)
_WAITS = {
    **_PLACE,
    "stream": Column(("streamId",), none=NONE),
    "event": Column(("eventId",), none=NONE),
}
SYNCS = Table(
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    {**_TIMES, **_WAITS, "kind": optional("syncType", missing=0)},
    detail="waits",
)
EVENTS = Table("CUPTI_ACTIVITY_KIND_CUDA_EVENT", _WAITS, detail="waits")
MEMORY = Table(  # with --cuda-memory-usage=true; stream and pool are absent in some versions
    "CUDA_GPU_MEMORY_USAGE_EVENTS",
    {
        "time": required("start"),
        **_PLACE,
        "address": optional("address"),
        "bytes": required("bytes", null=0),
        "kind": optional("memKind"),
        "operation": required("memoryOperationType"),  # ENUM_CUDA_DEV_MEM_EVENT_OPER
        "name": Column(("name",), text=True, mixed=True),
        "pool": Column(("localMemoryPoolAddress",), none=0),
        "reserved": optional("localMemoryPoolSize"),
        "allocated": optional("localMemoryPoolUtilizedSize"),
    },
    detail="memory",
)
LAUNCHES = Table(  # calls of the runtime and of the driver
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    {
        **_TIMES,
        "thread": optional("globalTid"),
        "correlation": optional("correlationId"),
        "name": optional("nameId"),
        "result": detail("returnValue"),  # a cudaError_t or a CUresult
        "chain": detail("callchainId"),
    },
    core=True,
)
_JSON, _NUMBERS = ("jsonText", "jsonTextId"), ("doubleValue", "floatValue")
_PAYLOAD = "binaryData"  # with nsys export --include-blobs=true
ANNOTATIONS = Table(
    "NVTX_EVENTS",
    {
        **_TIMES,
        "type": Column(
            ("eventType",),
            required=True,
            flags={JSON: (*_JSON, *_NUMBERS), NCCL_CALLS: (_PAYLOAD,)},
        ),
        "thread": optional("globalTid"),
        "domain": optional("domainId", missing=0),
        "category": detail("category", missing=0),
        "color": detail("color"),
        "payload": optional("int64Value", "uint64Value", "int32Value", "uint32Value"),
        # Some writers store the name itself in the column of its id; SQLite allows it.
        "text_id": Column(("textId",), mixed=True),
        "text": Column(("text", "textId"), text=True, mixed=True),
        "json": Column(_JSON[:1], text=True, mixed=True, rare=JSON),
        "json_id": Column(_JSON[1:], mixed=True, rare=JSON),
        "number": Column(_NUMBERS, text=True, real=True, rare=JSON),
        "blob": Column((_PAYLOAD,), text=True, binary=True, rare=NCCL_CALLS),
    },
    core=True,
)
# The layout of the blobs, as libraries register it; lists may hold the same schema once per process.
PAYLOAD_SCHEMAS = Table(
    "NVTX_PAYLOAD_SCHEMAS",
    {
        "domain": optional("domainId", missing=0),
        "schema": required("schemaId", null=MISSING),
        "bytes": optional("payloadSize"),
    },
    detail=NCCL_CALLS,
)
PAYLOAD_ENTRIES = Table(
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    {
        "domain": optional("domainId", missing=0),
        "schema": required("schemaId"),
        "flags": optional("flags", missing=0),
        "type": optional("type"),
        "name": text("name"),
        "offset": optional("offset", missing=0),
    },
    detail=NCCL_CALLS,
)
PAYLOAD_ENUMS = Table(
    "NVTX_PAYLOAD_ENUM_ENTRIES",
    {
        "domain": optional("domainId", missing=0),
        "schema": required("schemaId"),
        "name": text("name"),
        "value": required("value", null=0),  # of NCCL's sum, for example
    },
    detail=NCCL_CALLS,
)
_GRAPH_NODE = {
    "time": required("start"),
    "thread": optional("globalTid"),
    "node": optional("graphNodeId"),
    "original": optional("originalGraphNodeId"),
}
GRAPH_NODES = (  # graph nodes; the second table is of creations of graphs in newer exports
    Table("CUDA_GRAPH_NODE_EVENTS", _GRAPH_NODE),
    Table("CUDA_GRAPH_EVENTS", _GRAPH_NODE),
)
OVERHEAD = Table(  # the profiler's own work; type and call are absent in some versions
    "PROFILER_OVERHEAD",
    {
        **_TIMES,
        "thread": optional("globalTid"),
        "correlation": optional("correlationId"),
        "name": optional("nameId"),
    },
    detail="overhead",
)
OVERHEAD_NAMES = Table(OVERHEAD.name, {"name": OVERHEAD.columns["name"]})
SYSTEM_CALLS = Table(  # calls of the operating system's runtime: read, poll, pthread_cond_wait …
    "OSRT_API",
    {
        **_TIMES,
        "thread": optional("globalTid"),
        "name": optional("nameId"),
        "chain": detail("callchainId"),
        "event": optional("eventClass"),
    },
    detail="system_calls",
)
TRACING_EVENTS = (31, 32)  # of OSRT_API: the tracing of a process begins, or ends; not calls
SYSTEM_SPANS = (
    Table(  # when each process was seen at all: of these calls and events, the first and the last
        SYSTEM_CALLS.name,
        {name: SYSTEM_CALLS.columns[name] for name in ("start", "end", "thread")},
    )
)
CONTEXT_SWITCHES = Table(  # when threads begin and cease to run on a CPU
    "SCHED_EVENTS",
    {
        "time": required("start"),
        "cpu": optional("cpu"),
        "thread": optional("globalTid"),
        "on_cpu": required("isSchedIn", null=0),
    },
    detail="context_switches",
)
# Call stacks: a row per frame; depth 0 is the innermost. Symbols are ids of strings, escaped as in HTML, and of a
# frame that was not resolved its address. An id is unique in the export, over all processes.
_CHAIN = {
    "chain": required("id"),
    "depth": required("stackDepth", null=0),
    "symbol": required("symbol"),
    "module": optional("module"),
    "unresolved": optional("unresolved", missing=0),
}
CALL_CHAINS = Table("CUDA_CALLCHAINS", _CHAIN, detail="call_chains")  # --cudabacktrace
SYSTEM_CALL_CHAINS = Table("OSRT_CALLCHAINS", _CHAIN, detail="system_call_chains")
SAMPLES = Table(  # samples of the CPU; a sample's id is that of its call chain
    "COMPOSITE_EVENTS",
    {
        "time": required("start"),
        "thread": optional("globalTid"),
        "chain": required("id"),
    },
    detail="samples",
)
SAMPLE_CHAINS = Table("SAMPLING_CALLCHAINS", _CHAIN, detail="samples")
# Marks of this domain hold the Python stack of a CUDA call (--python-backtrace=cuda) as a binary payload: 16 bytes,
# then per frame, the innermost first, the ids of the function and of its file, and the line, in 8 bytes each.
PYTHON_STACKS = "Python Backtrace"
PYTHON_PAYLOAD, PYTHON_HEAD, PYTHON_FRAME = _PAYLOAD, 16, 24
GPU_METRICS = (
    Table(  # samples of hardware counters; exports before this table have JSON, which is not read
        "GPU_METRICS",
        {
            "time": required("timestamp", null=NO_TIME),
            "type": required("typeId"),
            "metric": required("metricId"),
            "value": Column(("value",), mixed=True),
        },
        detail="gpu_metrics",
    )
)
GPU_METRIC_NAMES = Table(  # the id of a metric differs from type to type
    "TARGET_INFO_GPU_METRICS",
    {"type": required("typeId"), "metric": required("metricId"), "name": text("metricName")},
    detail="gpu_metrics",
)
GPU_BITS = 0xFF  # of typeId: the GPU's id, as in TARGET_INFO_GPU
DIAGNOSTICS = Table(  # messages of the profiler; ids of strings in some versions
    "DIAGNOSTIC_EVENT",
    {
        "time": required("timestamp", null=0),
        "process": optional("globalPid"),
        "source": optional("source"),  # ENUM_DIAGNOSTIC_SOURCE_TYPE
        "severity": optional("severity"),  # ENUM_DIAGNOSTIC_SEVERITY_LEVEL
        "text_id": Column(("textId",), mixed=True),
        "text": Column(("text", "textId"), text=True, mixed=True),
    },
)
CUDA_STREAMS = Table(  # the streams of each context; nsys lists the driver's own, too
    "TARGET_INFO_CUDA_STREAM",
    {
        "pid": required("processId", null=MISSING),
        "context": required("contextId", null=MISSING),
        "stream": required("streamId", null=MISSING),
        "kind": optional(
            "flag", missing=0
        ),  # ENUM_CUPTI_STREAM_TYPE; the order of frames.STREAM_KINDS
    },
    detail="cuda_streams",
)
STREAMS = (
    Table(  # what processes printed: ids of the strings that hold a file's name and all of its text
        "ProcessStreams",
        {
            "process": optional("globalPid"),
            "file": optional("filenameId"),
            "content": required("contentId"),
        },
    )
)
COUNTED_TABLES = {  # other records, which cost time in the program; only counted
    "calls of the OS runtime": Table("OSRT_API", {}),
    "samples of the CPU": Table("COMPOSITE_EVENTS", {}),
    "context switches of threads": Table("SCHED_EVENTS", {}),
}
PROCESSES = Table("PROCESSES", {"process": optional("globalPid"), "name": text("name")})
THREADS = Table(
    "ThreadNames",
    {"thread": optional("globalTid"), "name": optional("nameId"), "priority": optional("priority")},
)
GPUS = Table(
    "TARGET_INFO_GPU",
    {
        "gpu": optional("id"),
        "device": optional("cuDevice", "id"),
        "name": text("name"),
        "memory_bytes": optional("totalMemory"),
        "memory_bandwidth": optional("memoryBandwidth"),
        "clock_hz": optional("clockRate"),
        "l2_bytes": optional("l2CacheSize"),
        "compute_major": optional("computeMajor"),
        "compute_minor": optional("computeMinor"),
        "sm_count": optional("smCount"),
        "warp_size": optional("threadsPerWarp"),
        "warps_per_sm": optional("maxWarpsPerSm"),
        "blocks_per_sm": optional("maxBlocksPerSm"),
        "threads_per_block": optional("maxThreadsPerBlock"),
        "registers_per_sm": optional("maxRegistersPerSm"),
        "registers_per_block": optional("maxRegistersPerBlock"),
        "shared_per_sm": optional("maxShmemPerSm"),
        "shared_per_block": optional("maxShmemPerBlock"),
        "shared_per_block_optin": optional("maxShmemPerBlockOptin"),
    },
)
DEVICES = Table(  # from 3.20 on: which GPU a process calls device 0
    "TARGET_INFO_CUDA_DEVICE",
    {"gpu": optional("gpuId"), "device": optional("cudaId"), "pid": optional("pid")},
)
SESSION = Table("ANALYSIS_DETAILS", {"duration": Column(("duration",), mixed=True)})
EPOCH = Table("TARGET_INFO_SESSION_START_TIME", {"epoch": optional("utcEpochNs")})
_NAME_VALUE = {"name": text("name"), "value": text("value")}
SYSTEM = Table("TARGET_INFO_SYSTEM_ENV", _NAME_VALUE)
HOST, ENVIRONMENT = "Hostname", "DeviceEnvironment"  # rows of SYSTEM; NAME=value, separated by NUL
DRIVER, DISCRETE_GPU = "NvDriverVersion", "HasDiscreteGpu"  # rows of SYSTEM; "0" without a GPU
CAPTURE = Table("META_DATA_CAPTURE", _NAME_VALUE)  # in newer exports
PROGRAM_ENVIRONMENT = (
    "PROCESS_0:ENVIRONMENT_VARIABLE"  # rows of CAPTURE, of the program: NAME="value"
)
CUDA_TRACE, NVTX_TRACE = (  # rows of CAPTURE, after PROCESS_0: and the like
    "COLLECT_CUDA_TRACE",
    "COLLECT_NVTX_TRACE",
)
NO_GPU = "no GPU on the recorded machine, so CPU times of ops are shown"
VERSIONS = (  # renamed after 3.1
    Table("META_DATA_EXPORT", _NAME_VALUE),
    Table("EXPORT_META_DATA", _NAME_VALUE),
)
# Other rows of VERSIONS. Their names begin with EXPORT_ or EXPORT_PARAM_, by the version.
EXPORT_PREFIX = re.compile("^EXPORT_(PARAM_)?")
EXPORT_SECONDS, EXPORT_INPUT = "TIME", "INPUT_FILE"
WHOLE_EXPORT = {  # what those say that leave nothing out and shift no times
    "TABLES_TO_EXPORT": "",
    "TIMES_TO_EXPORT": "",
    "TIME_NORMALIZE": "false",
    "TIME_SHIFT": "0",
}
PRODUCT_VERSION, SCHEMA_VERSION = "EXPORT_PRODUCT_VERSION", "EXPORT_SCHEMA_VERSION"

READ = {  # every table that is read, by our name
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
    "payload_schemas": PAYLOAD_SCHEMAS,
    "payload_entries": PAYLOAD_ENTRIES,
    "payload_enums": PAYLOAD_ENUMS,
    "graph_nodes": GRAPH_NODES[0],
    "graph_nodes_old": GRAPH_NODES[1],
    "overhead": OVERHEAD,
    "system_calls": SYSTEM_CALLS,
    "system_spans": SYSTEM_SPANS,
    "context_switches": CONTEXT_SWITCHES,
    "call_chains": CALL_CHAINS,
    "system_call_chains": SYSTEM_CALL_CHAINS,
    "samples": SAMPLES,
    "sample_chains": SAMPLE_CHAINS,
    "gpu_metrics": GPU_METRICS,
    "gpu_metric_names": GPU_METRIC_NAMES,
    "diagnostics": DIAGNOSTICS,
    "cuda_streams": CUDA_STREAMS,
    "streams": STREAMS,
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
DEVICE_TABLES = ("kernels", "copies", "decompressions", "fills", "graphs")
SKIPPED: Mapping[
    str, frozenset[str]
] = {  # tables that are not read, by the side that is read alone
    "": frozenset(),
    HOST_SIDE: frozenset(
        (
            *DEVICE_TABLES,
            *"syncs events memory graph_nodes graph_nodes_old gpu_metrics gpu_metric_names cuda_streams".split(),
        )
    ),
    GPU_SIDE: frozenset(
        "launches annotations payload_schemas payload_entries payload_enums graph_nodes graph_nodes_old overhead"
        " system_calls system_spans context_switches call_chains system_call_chains samples sample_chains".split()
    ),
}

# Rows of `SYSTEM`, `CAPTURE` and `VERSIONS` that tell who ran the program where. A name that starts with `:`
# stands after the number of a process: PROCESS_0:ARGUMENT_2.
HOST_ROWS = (HOST, "EXPORT_HOST", "DEVICE_DISPLAY_NAME")
USER_ROWS = ("EXPORT_USER", ":USER_NAME")
ARGUMENT_ROW = re.compile(r"(?P<process>.*):ARGUMENT_(?P<number>\d+)")
COMMAND_ROWS = ("COMMAND", ":COMMAND")  # a path, or a whole command line

# What `scrub` keeps: all numbers of every table that is not emptied, and the texts in KEPT_TEXTS; of the emptied
# ones the rows in KEPT_FACTS.
EMPTIED_TABLES = {  # table: its contents
    "TARGET_INFO_SYSTEM_ENV": "facts of the machine and its environment variables",
    "META_DATA_CAPTURE": "settings of the capture: command line, environment, paths",
    STREAMS.name: "what processes printed",
    "DIAGNOSTIC_EVENT": "what the profiler said, with paths and names of processes",
}
KEPT_FACTS = {  # rows of emptied tables, where they hold numbers or a switch; [0-9] stands for a digit
    SYSTEM.name: (DRIVER, DISCRETE_GPU),
    CAPTURE.name: (f"PROCESS_[0-9]:{CUDA_TRACE}", f"PROCESS_[0-9]:{NVTX_TRACE}"),
}
KEPT_TEXTS = {  # columns by table; a name that ends in * is a prefix
    "ENUM_*": ("name", "label"),
    "NVTX_EVENTS": ("text", "jsonText", "textId", "jsonTextId"),  # ids, or texts in their place
    "CUPTI_ACTIVITY_KIND_*": ("shortName", "demangledName", "mangledName", "nameId"),
    "CUDA_GPU_MEMORY_USAGE_EVENTS": ("name",),
    "NVTX_PAYLOAD_*": ("name", "description"),
    "TARGET_INFO_GPU": ("name", "chipName"),
    "TARGET_INFO_GPU_METRICS": ("metricName", "typeName"),
    "TARGET_INFO_SESSION_START_TIME": ("utcTime", "localTime"),
    "UnwindMethodType": ("name",),
}
# Columns of any table that hold ids of kept strings: names of kernels, calls, ranges, functions.
STRING_ID_COLUMNS = frozenset(
    "shortName demangledName mangledName nameId textId jsonTextId name symbol".split()
)
# Columns that identify hardware, in lower case.
HARDWARE_ID_COLUMNS = frozenset("guid uuid serial mac macaddress nodeguid portguid".split())

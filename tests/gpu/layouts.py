"""Where CUPTI's headers put the fields that `bridge.capture.cupti.records` reads, version by version.

    python tests/gpu/layouts.py INCLUDE… > tests/gpu/layouts.json

INCLUDE is a folder with cupti_activity.h, as in the wheels nvidia-cuda-cupti and nvidia-cuda-cupti-cu12; cuda.h must be
on the compiler's path or in the folder that $CUDA_INCLUDE names. The newest struct of each record counts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Our fields by record: the struct's name without its number, and CUPTI's names where they differ from ours.
PLACE = {
    "device": "deviceId",
    "context": "contextId",
    "stream": "streamId",
    "correlation": "correlationId",
}
SPAN = {"start": "start", "end": "end"}
COPY = {
    **SPAN, **PLACE, "bytes": "bytes", "copy_kind": "copyKind", "source_kind": "srcKind", "target_kind": "dstKind",
    "graph_node": "graphNodeId",
}  # fmt: skip
CALL = {
    **SPAN,
    "cbid": "cbid",
    "pid": "processId",
    "thread": "threadId",
    "correlation": "correlationId",
    "result": "returnValue",
}
FIELDS = {
    10: ("Kernel", {
        **SPAN, **PLACE, "registers": "registersPerThread", "grid_x": "gridX", "grid_y": "gridY", "grid_z": "gridZ",
        "block_x": "blockX", "block_y": "blockY", "block_z": "blockZ", "shared_static": "staticSharedMemory",
        "shared_dynamic": "dynamicSharedMemory", "name": "name", "graph_node": "graphNodeId", "graph": "graphId",
    }),
    1: ("Memcpy", COPY),
    22: ("MemcpyPtoP", COPY),
    2: ("Memset", {**SPAN, **PLACE, "bytes": "bytes", "target_kind": "memoryKind", "graph_node": "graphNodeId"}),
    4: ("API", CALL),
    5: ("API", CALL),
    38: ("Synchronization", {
        **SPAN, "kind": "type", "correlation": "correlationId", "context": "contextId", "stream": "streamId",
        "event": "cudaEventId",
    }),
    36: ("CudaEvent", {
        "correlation": "correlationId", "context": "contextId", "stream": "streamId", "event": "eventId",
    }),
    51: ("GraphTrace", {**SPAN, **PLACE, "graph": "graphId"}),
    49: ("Memory", {
        **PLACE, "operation": "memoryOperationType", "kind": "memoryKind", "address": "address", "bytes": "bytes",
        "time": "timestamp", "is_async": "isAsync", "pool": "memoryPoolConfig.address",
        "reserved": "memoryPoolConfig.pool.size", "allocated": "memoryPoolConfig.utilizedSize",
    }),
    17: ("Overhead", {
        **SPAN, "kind": "overheadKind", "object_kind": "objectKind", "thread": "objectId.pt.threadId",
    }),
    39: ("ExternalCorrelation", {"kind": "externalKind", "id": "externalId", "correlation": "correlationId"}),
    9: ("Context", {"context": "contextId", "device": "deviceId", "null_stream": "nullStreamId"}),
    8: ("Device", {
        "memory_bandwidth": "globalMemoryBandwidth", "memory_bytes": "globalMemorySize", "l2_bytes": "l2CacheSize",
        "warp_size": "numThreadsPerWarp", "clock_khz": "coreClockRate", "sm_count": "numMultiprocessors",
        "warps_per_sm": "maxWarpsPerMultiprocessor", "blocks_per_sm": "maxBlocksPerMultiprocessor",
        "shared_per_sm": "maxSharedMemoryPerMultiprocessor", "registers_per_sm": "maxRegistersPerMultiprocessor",
        "registers_per_block": "maxRegistersPerBlock", "shared_per_block": "maxSharedMemoryPerBlock",
        "threads_per_block": "maxThreadsPerBlock", "compute_major": "computeCapabilityMajor",
        "compute_minor": "computeCapabilityMinor", "gpu": "id", "name": "name",
    }),
}  # fmt: skip
BEGINNING = "#include <stdio.h>\n#include <stddef.h>\n#include <cupti_activity.h>\n#include <cupti_version.h>\nint main(void) {"


def layouts(include: Path) -> dict[str, object]:
    """Return version, sizes and (offset, size) of fields, as the compiler has them with these headers."""
    text = (include / "cupti_activity.h").read_text(encoding="utf-8")
    lines = [BEGINNING, 'printf("version %d\\n", CUPTI_API_VERSION);']
    for kind, (name, fields) in FIELDS.items():
        struct = _newest(name, text)
        lines.append(f'printf("{kind} size %zu\\n", sizeof({struct}));')
        lines += [
            f'printf("{kind} {ours} %zu %zu\\n", offsetof({struct}, {theirs}), sizeof((({struct} *)0)->{theirs}));'
            for ours, theirs in fields.items()
        ]
    words = [line.split() for line in _run("\n".join([*lines, "return 0; }"]), include)]
    result: dict[str, object] = {"version": int(words[0][1])}
    for kind, field, *numbers in words[1:]:
        result.setdefault(kind, {})[field] = [*map(int, numbers)]  # type: ignore[index]
    return result


def _newest(name: str, text: str) -> str:
    numbers = re.findall(rf"}} CUpti_Activity{name}(\d*);", text)
    return f"CUpti_Activity{name}{max(numbers, key=lambda number: int(number or 1))}"


def _run(source: str, include: Path) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        file, program = Path(folder, "layouts.c"), Path(folder, "layouts")
        file.write_text(source, encoding="utf-8")
        folders = [f"-I{include}", f"-I{os.environ.get('CUDA_INCLUDE', '/usr/local/cuda/include')}"]
        subprocess.run(["cc", "-w", *folders, str(file), "-o", str(program)], check=True)
        return subprocess.run(
            [program], capture_output=True, text=True, check=True
        ).stdout.splitlines()


if __name__ == "__main__":
    every = [layouts(Path(folder)) for folder in sys.argv[1:]]
    rows = ",\n".join(json.dumps(one) for one in sorted(every, key=lambda one: one["version"]))  # type: ignore[arg-type,return-value]
    print(f"[\n{rows}\n]")

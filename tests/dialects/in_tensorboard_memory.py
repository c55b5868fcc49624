"""Run by the Python that has TensorBoard's PyTorch plugin: what the plugin makes of the memory in a trace, as JSON."""

import json
import sys

from torch_tb_profiler.profiler.data import RunProfileData

found = RunProfileData.parse("worker", None, sys.argv[1], None)
memory = found.memory_snapshot
print(
    json.dumps(
        {
            "peaks": {f"{getattr(kind, 'name', kind)} {number}": peak for (kind, number), peak in memory.get_peak_memory().items()},
            "ops": memory.get_memory_statistics(found.tid2tree),
            "curve": [[r.total_allocated, r.total_reserved, r.bytes] for r in memory.memory_records],
        }
    )
)  # fmt: skip

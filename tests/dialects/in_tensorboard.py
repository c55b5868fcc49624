"""Run by the Python that has TensorBoard's PyTorch plugin: what the plugin makes of a trace, as JSON."""

import json
import sys

from torch_tb_profiler.profiler.data import RunProfileData

found = RunProfileData.parse("worker", None, sys.argv[1], None)
print(
    json.dumps(
        {
            "steps": found.steps_names,
            "ops": {
                op.name: [op.calls, op.self_device_duration, op.device_duration]
                for op in found.op_list_groupby_name
            },
            "kernels": {} if found.kernel_stat is None else {
                name: [int(row["count"]), float(row["sum"])] for name, row in found.kernel_stat.iterrows()
            },
            "has": [found.has_kernel, found.has_runtime, found.has_memcpy_or_memset],
        }
    )
)  # fmt: skip

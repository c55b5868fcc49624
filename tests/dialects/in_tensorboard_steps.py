"""Run by the Python that has TensorBoard's PyTorch plugin: what it says of the steps of a trace, as JSON."""

import json
import sys

from torch_tb_profiler.profiler.data import RunProfileData

found = RunProfileData.parse("worker", None, sys.argv[1], None)
gpu = found.gpu_metrics_parser
print(
    json.dumps(
        {
            "steps": dict(zip(found.steps_names, [one.costs for one in found.steps_costs], strict=True)),
            "overlap": [vars(one) for one in found.comm_overlap_costs],
            "utilisation": {n: gpu.gpu_utilization[n] for n in gpu.gpu_ids},
            "sm_efficiency": {n: gpu.avg_approximated_sm_efficiency_per_device[n] for n in gpu.gpu_ids},
            "occupancy": {n: gpu.avg_occupancy_per_device[n] for n in gpu.gpu_ids},
        }
    )
)  # fmt: skip

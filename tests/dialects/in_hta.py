"""Run by the Python that has HolisticTraceAnalysis: what it makes of a folder of traces, as JSON."""

import json
import logging
import sys

logging.disable(logging.CRITICAL)

from hta.trace_analysis import TraceAnalysis  # noqa: E402 - it logs while it is imported

found = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
breakdown = found.get_temporal_breakdown(visualize=False)
kinds, kernels = found.get_gpu_kernel_breakdown(visualize=False)
launches = found.get_cuda_kernel_launch_stats(visualize=False)
print(
    json.dumps(
        {
            "breakdown": breakdown.to_dict("records"),
            "kinds": dict(zip(kinds["kernel_type"], kinds["sum"].astype(float), strict=True)),
            "kernels": len(kernels),
            "launches": {str(rank): len(table) for rank, table in launches.items()},
        },
        default=float,
    )
)

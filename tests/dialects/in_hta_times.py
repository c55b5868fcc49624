"""Run by the Python that has HolisticTraceAnalysis: idle time and overlap of a folder of traces, as JSON."""

import json
import logging
import sys

logging.disable(logging.CRITICAL)

from hta.trace_analysis import TraceAnalysis  # noqa: E402 - it logs while it is imported

found = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
breakdown = found.get_temporal_breakdown(visualize=False)
try:
    overlap = found.get_comm_comp_overlap(visualize=False).to_dict("records")
except (KeyError, ValueError, ZeroDivisionError):  # without communication
    overlap = []
print(json.dumps({"breakdown": breakdown.to_dict("records"), "overlap": overlap}, default=float))

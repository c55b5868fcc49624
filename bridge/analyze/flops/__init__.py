"""FLOPs and bytes of calls, and what they reach of what the GPUs can do: per group of ranges, and per step.

docs/flops.md defines every figure.
"""

from bridge.analyze.flops.calls import Known
from bridge.analyze.flops.costs import Costs
from bridge.analyze.flops.steps import of_steps
from bridge.analyze.flops.throughput import BYTES, FLOPS, FORMULA, INTENSITY, PEAK, Limits, Reached

__all__ = [
    "BYTES",
    "FLOPS",
    "FORMULA",
    "INTENSITY",
    "PEAK",
    "Costs",
    "Known",
    "Limits",
    "Reached",
    "of_steps",
]

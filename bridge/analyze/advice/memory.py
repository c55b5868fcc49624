"""Rules on the memory of GPUs."""

from __future__ import annotations

import re

from bridge.analyze.advice.rule import NOT_ESTIMATED, TENSORBOARD, Finding, Rule
from bridge.analyze.advice.seen import Seen
from importers import frames

FULL = 0.9  # of the GPU's memory
ALLOCATED = re.compile(r"allocated|(?<!un)used", re.IGNORECASE)


def nearly_full(seen: Seen) -> Finding | None:
    """A GPU whose allocated memory comes near to all that it has."""
    size = frames.ints(seen.report.devices, "memory_bytes")
    size = size[size > 0]
    table = seen.allocated
    allocated = [ALLOCATED.search(name) is not None for name in table["name"]]
    table = table[allocated]
    peaks = table.groupby(["name", "process"], as_index=False, observed=True)["value"].max()
    peaks = peaks[peaks["value"] > FULL * size.min()]
    if peaks.empty:
        return None
    peaks = peaks.sort_values("value", ascending=False, ignore_index=True)
    most = peaks.iloc[0]
    figures = {
        "counter": str(most["name"]),
        "peak_bytes": int(most["value"]),
        "memory_share": most["value"] / int(size.min()),
    }
    return Finding(figures, peaks.rename(columns={"value": "bytes"}))


RULES = (
    Rule(
        "memory-nearly-full",
        "The GPU's memory is nearly full",
        f"allocated memory exceeds {FULL:.0%} of the GPU's",
        "{counter} reaches {peak_bytes}, {memory_share} of the GPU's memory",
        "activation checkpointing, mixed precision, smaller batches; beyond it the allocator waits and frees",
        NOT_ESTIMATED,
        TENSORBOARD,
        ("memory", "device memory"),
        nearly_full,
    ),
)

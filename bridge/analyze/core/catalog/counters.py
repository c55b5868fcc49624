"""The columns of hardware counters, as docs/counters.md defines them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bridge.analyze.core.catalog.column import (
    COUNT,
    FIGURE,
    NAME,
    NS,
    NUMBER,
    PERCENT,
    SHARE,
    Column,
    table,
)
from bridge.analyze.core.catalog.view import View

NO_ENERGY = "no samples of the energy of GPUs; record them with bridge.power.start() in the program"
NO_COUNTERS = (
    "no samples of hardware counters; record them with nsys profile --gpu-metrics-devices=all"
)
MHZ = "gpc_clock"  # the counter in MHz; all others are in per cent of the most that is possible
_DATA = ("requests protocol", "requests user", "responses protocol", "responses user")
# Columns, with the names of nsys for the metric in lower case and without the unit; several that occur add up.
METRICS: Mapping[str, tuple[str, ...]] = {
    "sm_active": ("sms active", "sm active"),
    "tensor_active": ("tensor active",),
    "dram_read": ("dram read bandwidth", "dram read throughput"),
    "dram_write": ("dram write bandwidth", "dram write throughput"),
    "pcie_rx": ("pcie rx throughput",),
    "pcie_tx": ("pcie tx throughput",),
    "nvlink_rx": tuple(f"nvlink rx {kind} data" for kind in _DATA),
    "nvlink_tx": tuple(f"nvlink tx {kind} data" for kind in _DATA),
    MHZ: ("gpc clock frequency",),
    "sm_issue": ("sm issue",),
    "warps_in_flight": ("compute warps in flight",),
}
HEADINGS = {
    "sm_active": ("SM active", "time in which SMs had a warp, mean over SMs"),
    "tensor_active": ("Tensor", "cycles in which the Tensor Cores worked"),
    "dram_read": ("DRAM read", "bandwidth of the GPU's memory used by reads"),
    "dram_write": ("DRAM write", "bandwidth of the GPU's memory used by writes"),
    "pcie_rx": ("PCIe in", "bandwidth of PCIe used by received data"),
    "pcie_tx": ("PCIe out", "bandwidth of PCIe used by sent data"),
    "nvlink_rx": ("NVLink in", "bandwidth of NVLink used by received data, with its protocol"),
    "nvlink_tx": ("NVLink out", "bandwidth of NVLink used by sent data, with its protocol"),
    MHZ: ("SM clock (MHz)", "clock of the SMs"),
    "sm_issue": ("SM issue", "cycles in which SMs issued an instruction"),
    "warps_in_flight": ("warps", "warps in flight, of those that fit"),
}
PEAK = "_peak"
SAMPLED = ("sampled_ns", "sample_share")


def _on_request(name: str, heading: str, unit: str, meaning: str, **more: Any) -> Column:
    return Column(name, heading, unit, meaning, default=False, terminal=False, quiet=True, **more)


_sampled = partial(_on_request, details=("gpu_metrics",))


def _means_and_peaks() -> tuple[Column, ...]:
    result = []
    for suffix, heading, meaning in (("", "{}", "{}: mean"), (PEAK, "{}, peak", "{}: peak")):
        for name, (title, said) in HEADINGS.items():
            unit = NUMBER if name == MHZ else PERCENT
            texts = heading.format(title), f"{meaning.format(said)} while the row's work ran"
            result.append(_sampled(name + suffix, texts[0], unit, texts[1], missing=True))
    return tuple(result)


COUNTERS = (
    *_means_and_peaks(),
    _sampled(
        SAMPLED[0], "sampled", NS, "time of the row's work, united per GPU, that samples describe"
    ),
    _sampled(
        SAMPLED[1],
        "of samples",
        SHARE,
        "sampled_ns by the length of these samples, the rest of which is other work or idle time",
        missing=True,
    ),
)
ENERGY = (
    _on_request(
        "energy_j",
        "energy (J)",
        FIGURE,
        "energy of the GPU while the row's work ran, divided among what ran at once",
        missing=True,
    ),
)
ENERGY_NAMES = tuple(column.name for column in ENERGY)
COUNTER_NAMES = tuple(column.name for column in COUNTERS)
MEANS = tuple(METRICS)
PEAKS = tuple(name + PEAK for name in METRICS)
MAIN = 4  # counters that stand before the time that was sampled
COUNTER_SETS: Mapping[str, tuple[str, ...]] = {
    "counters": (*MEANS[:MAIN], *SAMPLED[::-1], *MEANS[MAIN:]),
    "counter-peaks": (*PEAKS[:MAIN], *SAMPLED[::-1], *PEAKS[MAIN:]),
    "energy": ENERGY_NAMES,
}

COUNTER = View(
    "counter",
    "What did the hardware counters of each GPU show?",
    table(
        Column("device", "device", NAME, "GPU", distinct=True),
        Column("counter", "counter", NAME, "metric of nsys, with its unit"),
        Column("samples", "samples", COUNT, "samples from the GPU's first work to its last"),
        Column("interval_ns", "every", NS, "median time between two samples", optional=True),
        Column(
            "sampled_ns", "sampled", NS, "part of that time that samples describe", optional=True
        ),
        Column("mean", "mean", NUMBER, "mean of that time", missing=True),
        Column(
            "busy_mean",
            "while busy",
            NUMBER,
            "mean while any work ran on the GPU",
            missing=True,
            bar=True,
        ),
        Column("peak", "peak", NUMBER, "largest sample", missing=True),
    ),
    rows="cost.counters:by_counter",
    details=("gpu_metrics",),
    on_gpu=True,
    nothing=NO_COUNTERS,
    page="counters.md",
)

VIEWS = (COUNTER,)

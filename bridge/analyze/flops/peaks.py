"""What the GPUs of each process can do at most, by dtype, for what its ranges compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bridge.analyze.flops.asked import Costs
from bridge.analyze.groups import Floats
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints
from bridge.knowledge.hardware import DTYPES, Peaks
from importers import frames

FP32, TF32 = DTYPES.index("fp32"), DTYPES.index("tf32")
Key = tuple[int, int]  # report and process


@dataclass(frozen=True)
class Limits:
    """What the GPUs can do that each (report, process) used: those of one process that differ say nothing."""

    by_process: dict[Key, Peaks]
    costs: Costs

    @classmethod
    def of(cls, joined: Attributed, costs: Costs) -> Limits:
        """Look up every device that the report lists."""
        found: dict[Key, list[Peaks]] = {}
        for key, name, facts in _devices(joined):  # a turn per device of a process
            found.setdefault(key, []).append(costs.peaks(name, facts))
        if costs.peak_tflops is not None or costs.peak_gbs is not None:
            for key in _processes(joined):
                found.setdefault(key, [costs.peaks("", {})])
        alike = {key: peaks for key, peaks in found.items() if all(p == peaks[0] for p in peaks)}
        return cls({key: peaks[0] for key, peaks in alike.items()}, costs)

    def dtypes(self, dtype: Ints) -> Ints:
        """Return the dtype that is computed in, of those that calls say (codes of `DTYPES`, or NONE)."""
        if not self.costs.dtype:
            return dtype
        asked = DTYPES.index(self.costs.dtype)
        instead = (dtype == NONE) | ((dtype == FP32) & (asked == TF32))
        return np.where(instead, asked, dtype)

    def tflops(self, joined: Attributed, dtype: Ints) -> Floats:
        """Return the peak for each range in its dtype, in TFLOP/s; NaN where not known."""
        codes, peaks = self._of_ranges(joined)
        table = np.array([[*(p.of(d) or np.nan for d in DTYPES), np.nan] for p in peaks])
        if self.costs.peak_tflops is not None:
            table[:-1, -1] = self.costs.peak_tflops  # whatever the dtype
        found: Floats = table[codes, self.dtypes(dtype)]
        return found

    def gb_per_s(self, joined: Attributed) -> Floats:
        """Return the memory bandwidth for each range in GB/s; NaN where not known."""
        codes, peaks = self._of_ranges(joined)
        found: Floats = np.array([p.gb_per_s or np.nan for p in peaks])[codes]
        return found

    def _of_ranges(self, joined: Attributed) -> tuple[Ints, list[Peaks]]:
        """Return a code per range and the peaks; the last are of those without."""
        ranges = joined.report.ranges
        report, process = (frames.ints(ranges, c) for c in ("report", "process"))
        peaks = [*self.by_process.values(), Peaks()]
        code = np.full(len(ranges), len(peaks) - 1)
        for n, (of, pid) in enumerate(self.by_process):  # a turn per process
            code[(report == of) & (process == pid)] = n
        return code, peaks


def _devices(joined: Attributed) -> Iterator[tuple[Key, str, dict[str, int]]]:
    """Give (report, process), name and facts of each device that the report lists."""
    devices = joined.report.devices
    facts = {name: frames.ints(devices, name).tolist() for name in frames.DEVICE_FACTS}
    keys = zip(*(frames.ints(devices, c).tolist() for c in ("report", "process")), strict=True)
    for row, (key, name) in enumerate(zip(keys, devices["name"].astype(str).tolist(), strict=True)):
        yield key, name, {fact: values[row] for fact, values in facts.items()}


def _processes(joined: Attributed) -> list[Key]:
    ranges = joined.report.ranges[["report", "process"]].drop_duplicates()
    columns = (frames.ints(ranges, c).tolist() for c in ("report", "process"))
    return list(zip(*columns, strict=True))

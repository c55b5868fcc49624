"""Judge the quality of a capture: a score from 0 to 100, and the reasons for deductions.

docs/doctor.md lists the reasons. The same capture gives the same score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bridge.analyze.checks.advice.needs import Recorded
from bridge.analyze.checks.failures import Failure, failures
from bridge.analyze.checks.quality import amount, content
from bridge.analyze.checks.quality.amount import (
    CaptureEvidence,
    Deduction,
    Measurement,
    ReasonCheck,
)
from bridge.analyze.core.device_work import NoDeviceWork, printed
from bridge.analyze.core.groups import counts, sums
from bridge.analyze.core.table import Table
from bridge.analyze.run.gpu_use import no_device_work
from bridge.join.attributed import AttributedCapture

BEST = 100
REASONS: tuple[ReasonCheck, ...] = (
    *content.PROFILER_REASONS,
    *content.CONTENT_REASONS,
    *amount.REASONS,
)


@dataclass(frozen=True)
class Quality:
    """The quality of a capture: ``score`` is 100 less the costs of ``reasons``, at least 0.

    ``reasons`` are sorted by cost, largest first; ``judged`` are the names of all reasons that were
    checked. There is no score where next to nothing ran on a device: ``nothing`` says why. ``messages`` are warnings
    and errors of the profiler, ``printed`` what the program says of an error or of the GPU. ``failures`` are
    what failed and what was lost.
    ``overhead`` has a row per kind of the profiler's work: name, count, total_ns and
    inside_ns, the part that counts.
    """

    source: tuple[str, ...]
    score: int | None
    reasons: tuple[Deduction, ...]
    judged: tuple[str, ...]
    overhead: Table
    nothing: NoDeviceWork | None = None
    messages: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()

    @property
    def on_gpu(self) -> bool:
        return self.nothing is None or self.nothing.activities > 0


def quality(attributed: AttributedCapture, reasons: Sequence[ReasonCheck] = REASONS) -> Quality:
    """Measure what stands against a capture; reasons whose data it lacks are left out."""
    evidence = CaptureEvidence(attributed)
    recorded = Recorded(evidence)
    judged: list[str] = []
    result: list[Deduction] = []
    for reason in reasons:
        measured = None if recorded.lacks(reason) else reason.find(evidence)
        if measured is None or reason.scale is None:
            continue
        judged.append(reason.name)
        if cost := reason.scale.cost(measured.value):
            remedy = reason.remedy_in(pytorch=evidence.uses_pytorch)
            result.append(
                Deduction(
                    reason=reason,
                    measured=measured,
                    unit=reason.scale.unit,
                    cost=cost,
                    remedy=remedy,
                )
            )
    result.sort(key=lambda deduction: -deduction.cost)  # equal costs stay in the order of reasons
    nothing = no_device_work(attributed)
    score = max(0, BEST - sum(deduction.cost for deduction in result))
    return Quality(
        source=attributed.capture.source,
        score=None if nothing else score,
        reasons=tuple(result),
        judged=tuple(judged),
        overhead=_overhead(evidence),
        nothing=nothing,
        messages=content.messages(evidence),
        printed=printed(attributed.capture),
        failures=failures(attributed),
    )


def _overhead(evidence: CaptureEvidence) -> Table:
    """Return the work of the profiler by name, longest first."""
    table = evidence.capture.overhead
    names = table.name.used
    code = table.name.recoded(names).codes
    result = Table(
        {
            "name": names,
            "count": counts(code, len(names)),
            "total_ns": sums(code, np.maximum(table.end - table.start, 0), len(names)),
            "inside_ns": sums(code, evidence.overhead.inside, len(names)),
        }
    )
    return result.sort_values(["total_ns", "name"], [False, True])


__all__ = ["BEST", "REASONS", "Deduction", "Measurement", "Quality", "ReasonCheck", "quality"]

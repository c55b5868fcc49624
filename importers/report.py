"""What every importer gives: a `Report`, a file's facts and its frames.

Frames share their arrays with whoever made them: read, never write into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.errors import ReportError
from importers.ncu.metrics import Metrics
from importers.ncu.metrics import concat as concat_metrics
from importers.texts import Texts

NSIGHT_COMPUTE = "Nsight Compute"
LONGEST_NS = 1 << 62  # 146 years: sums and differences of times stay within 64 bits


@dataclass(frozen=True)
class Facts:
    """What is known of a capture as a whole; ``span`` is (first start, last end) in ns.

    ``epoch_ns`` is when the times are 0, in ns of the epoch, -1 if unknown; ``metadata`` what recordings
    say of the program: host, rank, and what it said of itself; ``recordings`` are the files with details
    of its calls, not kept in a store; ``beside`` is what else was recorded, by its name, and how many of it.
    ``path`` is the file's as it was given, not kept either, and never shown.
    """

    product: str = ""
    schema: str = ""
    span: tuple[int, int] = (0, 0)
    warnings: tuple[str, ...] = ()
    epoch_ns: int = frames.MISSING
    metadata: Mapping[str, Any] = field(default_factory=dict)
    recordings: tuple[Path, ...] = ()
    beside: Mapping[str, int] = field(default_factory=dict)
    path: str = field(default="", compare=False)

    @property
    def timeline(self) -> bool:
        """Whether the times say when something ran, and not only how long."""
        return self.product != NSIGHT_COMPUTE


@dataclass(frozen=True)
class Report:
    """One or more captures as frames; columns and meanings are listed in docs/frames.md.

    ``source`` holds the files' base names, ``facts`` one entry per file, and the frames' column
    ``report`` says which of them a row is from. ``texts`` holds the ranges' whole texts, of which
    ``ranges.name`` is the part that does not change from call to call (``ranges.text`` is the row).
    ``metrics`` are those of kernels that Nsight Compute measured.
    """

    source: tuple[str, ...]
    facts: tuple[Facts, ...]
    ranges: pd.DataFrame
    launches: pd.DataFrame
    activities: pd.DataFrame
    marks: pd.DataFrame
    threads: pd.DataFrame
    processes: pd.DataFrame
    devices: pd.DataFrame
    graph_nodes: pd.DataFrame = field(default_factory=lambda: frames.frame("graph_nodes", {}))
    waits: pd.DataFrame = field(default_factory=lambda: frames.frame("waits", {}))
    memory: pd.DataFrame = field(default_factory=lambda: frames.frame("memory", {}))
    overhead: pd.DataFrame = field(default_factory=lambda: frames.frame("overhead", {}))
    diagnostics: pd.DataFrame = field(default_factory=lambda: frames.frame("diagnostics", {}))
    texts: Texts = field(default_factory=lambda: Texts.of([]))
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def began(self) -> int:
        """When the first event of all captures was, in ns."""
        return min(facts.span[0] for facts in self.facts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know before trusting the figures, one line each."""
        return tuple(w for facts in self.facts for w in facts.warnings)


def concat(reports: Sequence[Report]) -> Report:
    """Make one report of several; processes and threads stay apart by the column ``report``."""
    if len(reports) == 1:
        return reports[0]
    spans = [facts.span for r in reports for facts in r.facts]
    if max(last for _, last in spans) - min(first for first, _ in spans) > LONGEST_NS:
        raise ReportError("the reports' clocks are centuries apart: load them one by one")
    starts = np.cumsum([0, *(len(r.source) for r in reports)])
    texts = np.cumsum([0, *(len(r.texts) for r in reports)])
    together = {
        kind: frames.concat(
            [_moved(getattr(r, kind), "report", n) for r, n in zip(reports, starts, strict=False)]
        )
        for kind in frames.FRAMES
    }
    together["ranges"] = frames.concat(
        [
            _moved(_moved(r.ranges, "report", n), "text", t)
            for r, n, t in zip(reports, starts, texts, strict=False)
        ]
    )
    return replace(
        reports[0],
        source=tuple(name for r in reports for name in r.source),
        facts=tuple(f for r in reports for f in r.facts),
        texts=Texts.concat([r.texts for r in reports]),
        metrics=concat_metrics([r.metrics for r in reports], [len(r.activities) for r in reports]),
        **together,
    )


def _moved(table: pd.DataFrame, column: str, by: int) -> pd.DataFrame:
    return table.assign(**{column: frames.ints(table, column) + by}) if by else table

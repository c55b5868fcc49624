"""Which renderer writes a trace, told by the name of its file and the dialect."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.analyze.dialects import NATIVE
from bridge.analyze.timeline import Timeline
from bridge.render import chrome as dialects
from bridge.render.chrome import chrome
from bridge.render.pftrace import pftrace
from importers.report import Report

JSON = (".json", ".json.gz")
PERFETTO = ".pftrace"


def check(name: str, dialect: str = NATIVE) -> None:
    """Raise ValueError, in words for the user, for a file that nothing writes."""
    suffixes = (*JSON, PERFETTO) if dialect == NATIVE else JSON
    if not name.endswith(suffixes):
        of = "" if dialect == NATIVE else f" of dialect {dialect}"
        raise ValueError(f"{name}: a trace{of} is written as {', '.join(suffixes)}")


def printed(
    timeline: Timeline, report: Report, name: str, dialect: str = NATIVE, **how: bool
) -> Iterator[bytes]:
    """Yield a trace in pieces."""
    about = [facts.metadata for facts in report.facts]
    if dialect != NATIVE:
        return dialects.RENDERERS[dialect](timeline, report, **how)
    return (pftrace if name.endswith(PERFETTO) else chrome)(timeline, report.source, about)

"""The kernels of real profiles."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_kernels(corpus: Path) -> dict[tuple[str, str], set[str]]:
    """Read (short name, demangled name) of every kernel of the corpus, and the files that it is in."""
    from bridge import importers
    from bridge.importers import ReportError, frames

    found: dict[tuple[str, str], set[str]] = {}
    for path in sorted([*(corpus / "nsys").glob("*.sqlite"), *(corpus / "kineto").iterdir()]):
        try:
            activities = importers.load(path).activities
        except ReportError:  # a failed export, or nothing of CUDA in it: other tests say which
            continue
        ran = activities.take(activities.kind.among(frames.KERNEL))
        for names in set(zip(ran.name, ran.full_name, strict=True)):
            found.setdefault(names, set()).add(path.name)
    return found

"""Small reports that differ: the made ones, with names and times of their own."""

from __future__ import annotations

from pathlib import Path

from made_reports import report


def several(folder: Path, count: int) -> list[Path]:
    """Write some reports: each with other processes and more steps than the one before, two of one name."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for number in range(count):
        inner = folder / f"node{number % 2}"
        inner.mkdir(exist_ok=True)
        name = f"rank{number // 2 if number < 2 else number}.sqlite"
        pids = (100, 101 + number) if number % 3 else (100,)
        made.append(report(inner / name, steps=2 + number % 4, pids=pids))
    return made

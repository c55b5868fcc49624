"""Measures what the tests catch: ``python -m tests.mutants --suite quick --suite whole``.

400 small changes of the product, 40 in each of ten rooms, are tried one by one. Each suite is tried on what
survived the suite before it. Survivors that change nothing a user can see are listed, with the reason, in
``equivalent.toml``; every other survivor is a test that is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from .coverage_map import CoverageMap, record
from .source import Mutant, mutants
from .trial import BROKEN, SURVIVED, Copies, Verdict, try_all

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "mutants"
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
ROOMS = {
    "importers": "importers/*", "join": "bridge/join/*", "analyze": "bridge/analyze/*", "render": "bridge/render/*",
    "store": "bridge/store/*", "scale": "bridge/scale/*", "windows": "bridge/scale/windows/*", "annotate": "bridge/annotate/*",
    "session": "bridge/capture/session/*", "capture": "bridge/capture/*",
}  # fmt: skip
SUITES = {
    "quick": ["-m", "quick and not racy"],
    "whole": ["-m", "not racy"],
}
PER_FUNCTION = 2  # so that a sample is not all of one long function


def main() -> int:
    """Try a sample; print a line per survivor and a table of rooms; fail where over 5 % survive without a reason."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--suite", action="append", choices=SUITES, help="default: quick, then whole"
    )
    parser.add_argument("--per-room", type=int, default=40)
    parser.add_argument("--room", action="append", choices=ROOMS, help="default: all")
    parser.add_argument("--only", default="*", help="a pattern of mutants' names")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=300, help="seconds a mutant may take")
    parser.add_argument(
        "--record", action="store_true", help="record anew which test runs which line"
    )
    given = parser.parse_args()
    os.environ.update(CI="true", PYTHONHASHSEED="0")
    chosen = sample(given.room or ROOMS, given.per_room, given.only)
    outcomes: dict[Mutant, tuple[str, Verdict]] = {}
    left = [mutant for room in chosen.values() for mutant in room]
    survived_by: dict[Mutant, set[str]] = defaultdict(set)
    for suite in given.suite or SUITES:
        known = KEPT / f"{suite}.coverage"
        if given.record or not known.exists():
            record(SUITES[suite], known, ROOT)
        tests = CoverageMap(known, ROOT).tests
        jobs = {one: [test for test in tests(one) if test not in survived_by[one]] for one in left}
        verdicts = tried(jobs, given.workers, given.limit)
        outcomes |= {one.mutant: (suite, one) for one in verdicts}
        left = [one.mutant for one in verdicts if one.outcome == SURVIVED]
        for mutant in left:
            survived_by[mutant].update(jobs[mutant])
    return told(chosen, outcomes)


def sample(rooms: Iterable[str], count: int, pattern: str) -> dict[str, list[Mutant]]:
    """Draw the mutants of each room: the same ones as long as their functions and texts are the same."""
    every = defaultdict(list)
    for path in sorted([*ROOT.glob("bridge/**/*.py"), *ROOT.glob("importers/**/*.py")]):
        name = path.relative_to(ROOT).as_posix()
        room = next((room for room in rooms if fnmatch(name, ROOMS[room])), None)
        if room:
            every[room] += mutants(name, path.read_text(encoding="utf-8"))
    return {room: drawn(every[room], count, pattern) for room in rooms}


def drawn(every: list[Mutant], count: int, pattern: str) -> list[Mutant]:
    """Draw some mutants by lot, no more than two of a function."""
    taken: Counter[tuple[str, str]] = Counter()
    result = []
    for mutant in sorted(every, key=lambda one: one.lot):
        place = mutant.path, mutant.function
        if len(result) < count and taken[place] < PER_FUNCTION and fnmatch(mutant.name, pattern):
            taken[place] += 1
            result.append(mutant)
    return result


def tried(jobs: dict[Mutant, list[str]], workers: int, limit_s: float) -> list[Verdict]:
    """Try mutants against tests; print each verdict."""
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        for verdict in try_all([*jobs.items()], Copies(ROOT, Path(folder), workers), limit_s):
            verdicts.append(verdict)
            mutant = verdict.mutant
            print(
                f"{verdict.outcome:8} {verdict.seconds:5.1f} s {len(jobs[mutant]):4} tests  {mutant.path}:{mutant.span[0]} {mutant.name}  {verdict.by}",
                flush=True,
            )
    return verdicts


def told(chosen: dict[str, list[Mutant]], outcomes: dict[Mutant, tuple[str, Verdict]]) -> int:
    """Print the survivors and the table; return 1 where more than one in twenty survives without a reason."""
    reasons = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    suites = sorted({suite for suite, _ in outcomes.values()})
    missing = []
    print(
        f"\n{'room':10} {'mutants':>8} "
        + " ".join(f"{suite + ' killed':>14}" for suite in suites)
        + f"{'no change':>12} {'survived':>9}"
    )
    total: Counter[str] = Counter()
    for room, those in chosen.items():
        row: Counter[str] = Counter()
        for mutant in those:
            suite, verdict = outcomes[mutant]
            if verdict.outcome == BROKEN:
                sys.exit(
                    f"pytest itself failed on {mutant.path} {mutant.name}: no figure of this run can be trusted"
                )
            alive = "no change" if mutant.name in reasons else SURVIVED
            kind = alive if verdict.outcome == SURVIVED else suite
            row[kind] += 1
            missing += [mutant] if kind == SURVIVED else []
        total += row
        _row(room, row, suites)
    _row("all", total, suites)
    print("\nSurvived:")
    for mutant in missing:
        print(f"  {mutant.path}:{mutant.span[0]} {mutant.name}")
    return int(len(missing) > 0.05 * sum(total.values()))


def _row(name: str, row: Counter[str], suites: list[str]) -> None:
    print(
        f"{name:10} {sum(row.values()):8} "
        + " ".join(f"{row[suite]:14}" for suite in suites)
        + f"{row['no change']:12} {row[SURVIVED]:9}"
    )


if __name__ == "__main__":
    sys.exit(main())

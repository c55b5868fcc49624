"""Measures how well the advice fits simulated programs, whose truth is known: ``python -m tests.simulated --seeds 0:200``.

The program of each seed is run, its export is analysed, and what is said is held against what is true.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from simulated.degraded import DEGRADED
from simulated.further import FURTHER
from simulated.measure import BINDING, FLOORS, GOALS, WHOLE, Measured, failed, measure_all, share
from simulated.tables import into_page, shown, tables
from simulated.troubles import KINDS

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


def main() -> int:
    """Measure, print tables; return 1 where a goal is missed by programs of whole evidence."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=_seeds, default=range(200), metavar="FIRST:END")
    parser.add_argument(
        "--kind", choices=KINDS | FURTHER, default="", help="programs with this trouble alone"
    )
    parser.add_argument(
        "--further", action="store_true", help="programs with further kinds of trouble instead"
    )
    parser.add_argument("--degraded", action="store_true", help="degraded evidence, too")
    parser.add_argument("--show", action="store_true", help="the programs that fail")
    parser.add_argument("--only", choices=GOALS, help="with --show: that fail in this respect")
    parser.add_argument("--write", action="store_true", help=f"the tables into docs/{PAGE.name}")
    parser.add_argument(
        "--floors",
        action="store_true",
        help="return 1 below what was reached, not below what is aimed at",
    )
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    if given.further and given.write:
        parser.error("--write is for programs without --further")
    evidence = list(DEGRADED) if given.degraded else [WHOLE]
    measured: list[Measured] = []
    began = time.monotonic()
    those = measure_all(
        given.seeds,
        evidence,
        kind=given.kind,
        further=given.further,
        processes=given.processes,
    )
    for one in those:
        measured.append(one)
        if given.show and (given.only in failed(one) if given.only else failed(one)):
            print("\n".join(shown(one)), flush=True)
    lines = tables(measured)
    print("\n".join(lines))
    print(f"{time.monotonic() - began:.0f} s", file=sys.stderr)
    if given.write:
        into_page(PAGE, lines, _command(given))
    whole = [one for one in measured if one.evidence == WHOLE]
    least = FLOORS if given.floors else GOALS
    return int(any(share(respect, whole) < least[respect] for respect in BINDING))


def _seeds(text: str) -> range:
    """Read `3:9`, or one seed."""
    first, _, end = text.partition(":")
    return range(int(first), int(end) if end else int(first) + 1)


def _command(given: argparse.Namespace) -> str:
    seeds = f"{given.seeds.start}:{given.seeds.stop}"
    degraded = " --degraded" * given.degraded
    kind = f" --kind {given.kind}" if given.kind else ""
    return f"python -m tests.simulated --seeds {seeds}{degraded}{kind} --write"


if __name__ == "__main__":
    sys.exit(main())

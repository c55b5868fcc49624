"""Runs programs of libraries plain and watched by bridge, and tells what differs: ``python -m tests.wild``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from wild.harness import Compared, Program, compare, programs, version
from wild.tables import details, page, row
from wild.ways import QUICK, WAYS


def main() -> int:
    """Run, print a row for each program, and return 1 if anything differs."""
    given = _arguments()
    ways = [(QUICK if given.quick else WAYS)[name] for name in given.ways.split(",")]
    counted = (given.ways if given.counted is None else given.counted).split(",")
    done: list[Compared] = []
    skipped: dict[str, str] = {}
    for program in map(Program.named, given.names or programs()):
        if program.missing:
            skipped[program.name] = f"no {', '.join(program.missing)}"
            print(f"| {program.name} | | skipped: {skipped[program.name]} | |", flush=True)
            continue
        done.append(compare(program, ways, counted, rounds=given.rounds if given.costs else 0))
        times = ", ".join(f"{name} {took:.1f} s" for name, took in done[-1].seconds.items())
        print(row(done[-1], ways), f"({times})", flush=True)
        if given.show and (text := details(done[-1], ways)):
            print(f"\n{text}\n", flush=True)
        if given.write:
            given.write.write_text(page(done, skipped, ways, f"torch {version('torch')}"))
    return any(one.unsteady or any(one.found.values()) for one in done)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.wild", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs; else all")
    parser.add_argument("--ways", default=",".join(WAYS), help=f"default: {','.join(WAYS)}")
    parser.add_argument(
        "--counted", metavar="WAYS", help="in which ops are counted, too; default: all of --ways"
    )
    parser.add_argument(
        "--quick", action="store_true", help="run-auto and auto without nsys, which takes seconds"
    )
    parser.add_argument("--costs", action="store_true", help="measure the length of steps, too")
    parser.add_argument("--rounds", type=int, default=5, help="of costs; default: 5")
    parser.add_argument("--show", action="store_true", help="print each difference in full")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the table as a page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

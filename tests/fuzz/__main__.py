"""A long run over one importer: ``PYTHONPATH=tests python -m fuzz nsys --seconds 300``; mutants that misbehave are kept."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from time import monotonic

import click

from fuzz.inputs import IMPORTERS
from fuzz.judge import Verdict
from fuzz.mutants import Mutants


def main() -> None:
    """Run cases until the time is over; print a line per bug, the last line of its traceback once each, and figures."""
    parser = argparse.ArgumentParser(prog="fuzz")
    parser.add_argument("importer", choices=IMPORTERS)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=1 << 60, help="how many seeds")
    parser.add_argument("--largest", type=int, default=1 << 22, help="bytes of the inputs")
    parser.add_argument("--keep", type=Path, help="a folder for the mutants that misbehave")
    given = parser.parse_args()
    began, counts, peak, seen = monotonic(), Counter[str](), 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        mutants = Mutants(given.importer, Path(folder), largest=given.largest)
        seed = given.first
        while monotonic() - began < given.seconds and seed < given.first + given.count:
            verdict = mutants.judged(seed)
            counts[verdict.what] += 1
            peak = max(peak, verdict.peak_mib)
            if verdict.wrong:
                key = _last(verdict)
                seen[key] += 1
                if seen[key] <= 2:
                    click.echo(f"seed {seed}: {verdict.what}\n{verdict.said[-1800:]}")
                    if given.keep:
                        given.keep.mkdir(parents=True, exist_ok=True)
                        shutil.copy(
                            mutants.path,
                            given.keep / f"{given.importer}-{seed}{mutants.path.suffix}",
                        )
            seed += 1
    took = monotonic() - began
    click.echo(
        f"{given.importer}: {seed - given.first} cases in {took:.0f} s: {dict(counts)}, peak {peak} MiB"
    )
    for key, times in seen.most_common():
        click.echo(f"  {times} x {key}")


def _last(verdict: Verdict) -> str:
    """Return what tells bugs apart: the last place in the code, and the exception."""
    lines = verdict.said.strip().splitlines()
    places = [line.strip() for line in lines if line.lstrip().startswith("File ")]
    ours = [line for line in places if "site-packages" not in line]
    return f"{verdict.what} {(ours or [''])[-1]} {(lines or [''])[-1][:150]}"


if __name__ == "__main__":
    main()

"""Keep the ratios of the main commands from change to change, and fail where one grew.

    python benchmarks/history.py --check              compare with the newest rows of each job in history.csv
    python benchmarks/history.py --record "WHAT"      append what is measured, with what changed

A ratio is CPU time (of all threads) over that of the bare column read of the same round, the least of some rounds:
what other programs take of the machine lengthens both, where wall-clock time doubles. Where a job is
over its limit all are measured on, for up to five times as many rounds, before it fails.
"""

import argparse
import csv
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from main_job import measured_jobs

HISTORY = Path(__file__).with_name("history.csv")
COLUMNS = ["date", "kernels", "job", "ratio", "peak_mb", "what"]
BARE = "bare column read"
GROWTH = 0.25  # on one virtual machine, within an hour, the least ratios of five rounds differ by as much
NEWEST = 2  # rows of each job, of which the larger counts: machines differ in what SQLite takes beside Python
PATIENCE = 5  # times as many rounds before a job fails


def one_round(report, folder):
    """Run every command once; return the ratio of its CPU seconds to those of the bare read, and its peak in bytes."""
    used = {job: (cpu, peak) for job, (_, cpu, peak) in measured_jobs(report, folder)}
    bare, _ = used.pop(BARE)
    return {job: (cpu / bare, peak) for job, (cpu, peak) in used.items()}


def newest(history, kernels):
    """Return the largest ratio that each job had in its newest rows, of reports of this size."""
    ratios = {}
    with history.open(newline="") as file:
        for row in csv.DictReader(file):
            if int(row["kernels"]) == kernels:
                ratios.setdefault(row["job"], []).append(float(row["ratio"]))
    return {job: max(of_job[-NEWEST:]) for job, of_job in ratios.items()}


def grown(found, before):
    """Return a line for each job whose ratio grew beyond the limit, or that is not known."""
    lines = []
    for job, (ratio, _) in found.items():
        if job not in before:
            lines.append(f"{job}: not in the history; record it")
        elif ratio > before[job] * (1 + GROWTH):
            lines.append(f"{job}: {ratio:.2f} × the bare read, {before[job]:.2f} × before")
    return lines


def measure(kernels, rounds, enough):
    """Return the ratios of some rounds; of up to five times as many while they are not good enough."""
    from make_report import make

    with tempfile.TemporaryDirectory(prefix="bridge-history-") as name:
        folder = Path(name)
        report = folder / "report.sqlite"
        make(report, kernels, per_call_text=True, threads=2, processes=2)
        least = one_round(report, folder)
        for turn in range(1, PATIENCE * rounds):
            if turn >= rounds and enough(least):
                break
            found = one_round(report, folder)  # a machine may be slower now, for all of it
            least = {job: tuple(map(min, least[job], found[job])) for job in least}
        return least


def record(history, kernels, found, what):
    """Append a row for each job."""
    new = not history.exists()
    with history.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(COLUMNS)
        today = datetime.now(UTC).date().isoformat()
        for job, (ratio, peak) in found.items():
            writer.writerow([today, kernels, job, f"{ratio:.2f}", round(peak / 1e6), what])


def main():
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--kernels", type=int, default=300_000)
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--history", type=Path, default=HISTORY)
    does = args.add_mutually_exclusive_group(required=True)
    does.add_argument("--check", action="store_true")
    does.add_argument("--record", metavar="WHAT")
    a = args.parse_args()
    if a.record is not None:
        found = measure(a.kernels, 2 * a.rounds, enough=bool)
        record(a.history, a.kernels, found, a.record)
    before = newest(a.history, a.kernels)
    if a.check:
        found = measure(a.kernels, a.rounds, enough=lambda found: not grown(found, before))
    print("| command | CPU, × bare read | before | peak MB |\n|---|---:|---:|---:|")
    for job, (ratio, peak) in found.items():
        print(f"| {job} | {ratio:.2f} | {before.get(job, float('nan')):.2f} | {peak / 1e6:.0f} |")
    wrong = grown(found, before)
    for line in wrong:
        print(f"GREW  {line}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()

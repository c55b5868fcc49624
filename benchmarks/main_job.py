"""Time the main job on a million kernels, as ratios to the bare column read of the same run.

    python benchmarks/main_job.py [--kernels 1000000] [--rounds 3] [--report REPORT.sqlite ...] [--check]

Whole processes, taken in turn, the medians compared: machines are noisy, ratios within one run are less so.
Beside the wall-clock time stands the CPU time of all threads. ``--check`` ends with status 1 where a target
is missed. nsys stats runs once per report, where an nsys of 2022.4 is installed. ``$BRIDGE_COMMAND`` is the
command to measure: that of an install without extras, as users have it.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
BRIDGE = os.environ.get("BRIDGE_COMMAND") or str(Path(sys.executable).with_name("bridge"))
TARGETS = {  # times the bare read: by the clock, in CPU seconds
    "report --by op-kernel": (1.0, 1.3),
    "report --by op, all columns": (2.0, None),
    "import": (2.5, 3.5),
    "report from the store": (1.2, None),
    "report from the store, all columns": (2.0, None),
    "trace .json.gz": (2.0, None),
    "trace .pftrace": (2.0, None),
    "page": (3.0, None),
    "advice": (2.0, None),
    "diff with itself": (None, 3.0),
}
CSV_TO_JSON = 1.5  # a table of all ranges
MEMORY_PER_KERNEL = 0.8e3
TRACE_MEMORY = 1e9
FASTER_THAN_NSYS = 10


def measured(command):
    """Run a command; return wall-clock seconds, CPU seconds and peak bytes."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    if status:
        raise SystemExit(f"{command} failed with status {os.waitstatus_to_exitcode(status)}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def jobs(report, folder):
    """The commands to compare, the bare read first."""
    db, trace = folder / "bridge.db", [BRIDGE, "trace", str(report), "--force", "-o"]
    read = [BRIDGE, "report", str(report), "--format", "json", "--by"]
    stored = [BRIDGE, "report", "--db", str(db), "--format", "json", "--by"]
    return {
        "bare column read": [sys.executable, str(HERE / "read_columns.py"), str(report)],
        "report --by op-kernel": [*read, "op-kernel"],
        "report --by op, all columns": [*read, "op", "--columns", "all"],
        "import": [BRIDGE, "import", "--quiet", "--db", str(db), str(report)],
        "report from the store": [*stored, "op-kernel"],
        "report from the store, all columns": [*stored, "op", "--columns", "all"],
        "trace .json.gz": [*trace, str(folder / "trace.json.gz")],
        "trace .pftrace": [*trace, str(folder / "trace.pftrace")],
        "page": [BRIDGE, "html", str(report), "--force", "-o", str(folder / "page.html")],
        "advice": [BRIDGE, "advise", str(report)],
        "diff with itself": [BRIDGE, "diff", str(report), str(report)],
    }


def tables(report):
    """The commands that write all ranges, a row each."""
    every = [BRIDGE, "report", str(report), "--by", "range", "--format"]
    return {f"report --by range as {form}": [*every, form] for form in ("json", "csv")}


def measured_jobs(report, folder):
    """Yield the name of each job, and what it took; an import makes a new store, which the jobs after it read."""
    for name, command in jobs(report, folder).items():
        if name == "import":
            (folder / "bridge.db").unlink(missing_ok=True)
        yield name, measured(command)


def one_round(report, folder, found):
    for name, used in measured_jobs(report, folder):
        found.setdefault(name, []).append(used)
    for name, command in tables(report).items():
        found.setdefault(name, []).append(measured(command))


def nsys_stats(report, folder):
    """Seconds that NVIDIA's own join takes, or None without an nsys that takes these reports."""
    nsys = shutil.which("nsys")
    version = (
        subprocess.run([nsys, "--version"], capture_output=True, text=True).stdout if nsys else ""
    )
    if "2022.4" not in version:
        return None
    copy = shutil.copy(report, folder / "for-nsys.sqlite")  # it writes beside its input
    return measured([nsys, "stats", "--report", "nvtxkernsum", str(copy)])[0]


def ratios(name, used, bare):
    """Return the cells of a job (seconds, ratio and target, by the clock and of the CPU), and what misses a target."""
    cells, missed = [], []
    targets = TARGETS.get(name, (None, None))
    for seconds, read, target in zip(used, bare, targets, strict=False):
        ratio = seconds / read
        cells += [f"{seconds:.2f}", f"{ratio:.2f}", f"≤ {target}" if target else ""]
        if target and ratio > target:
            missed.append(f"{name} {ratio:.2f} × the bare read, target {target}")
    return cells, missed


def compare(title, report, kernels, rounds, folder):
    """Print the table for one report; return what misses its target."""
    found = {}
    for _ in range(rounds):
        one_round(report, folder, found)
    middle = {name: [statistics.median(x) for x in zip(*runs)] for name, runs in found.items()}
    bare = middle["bare column read"]
    print(f"\n**{title}**: {kernels:,} kernels, {report.stat().st_size / 1e6:.0f} MB\n")
    print("| command | seconds | × bare read | target | CPU s | × bare read | target | peak MB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    missed = []
    for name, used in middle.items():
        cells, over = ratios(name, used, bare)
        print(f"| {' | '.join([name, *cells])} | {used[2] / 1e6:.0f} |")
        missed += [f"{title}: {line}" for line in over]
    as_csv, as_json = (middle[f"report --by range as {form}"][0] for form in ("csv", "json"))
    if as_csv > CSV_TO_JSON * as_json:
        missed.append(f"{title}: CSV takes {as_csv / as_json:.2f} times as long as JSON")
    ours, theirs = middle["report --by op-kernel"], nsys_stats(report, folder)
    if ours[2] > MEMORY_PER_KERNEL * kernels:
        missed.append(f"{title}: report takes {ours[2] / kernels:.0f} bytes per kernel")
    most = max(middle[job][2] for job in middle if job.startswith("trace"))
    if most > TRACE_MEMORY:
        missed.append(f"{title}: trace takes {most / 1e6:.0f} MB")
    if theirs:
        print(
            f"| nsys stats nvtxkernsum (2022.4) | {theirs:.1f} | {theirs / bare[0]:.1f} | | | | | |"
        )
        print(f"\nbridge report is {theirs / ours[0]:.1f} times as fast as nsys stats.")
        if theirs / ours[0] < FASTER_THAN_NSYS:
            missed.append(f"{title}: only {theirs / ours[0]:.1f} times as fast as nsys stats")
    return missed


def main():
    from make_report import make

    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--kernels", type=int, default=1_000_000)
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument(
        "--report", type=Path, action="append", default=[], help="measure these instead"
    )
    args.add_argument("--check", action="store_true")
    a = args.parse_args()
    missed = []
    with tempfile.TemporaryDirectory(prefix="bridge-benchmark-") as name:
        folder = Path(name)
        for report in a.report:
            missed += compare(report.name, report, a.kernels, a.rounds, folder)
        if not a.report:
            plain, hard = folder / "plain.sqlite", folder / "hard.sqlite"
            made = make(plain, a.kernels)
            missed += compare("constant names", plain, made, a.rounds, folder)
            made = make(hard, a.kernels, per_call_text=True, threads=2, processes=2)
            missed += compare(
                "a text of its own per call, 2 × 2 threads", hard, made, a.rounds, folder
            )
    for line in missed:
        print(f"MISSED  {line}")
    sys.exit(bool(missed and a.check))


if __name__ == "__main__":
    main()

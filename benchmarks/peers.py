"""Run other tools and bridge on the same report; compare time, memory and figures.

    python benchmarks/peers.py [--report REPORT.sqlite] [--kernels 100000] [--rounds 3] [--nsys2json nsys2json.py]
    python benchmarks/peers.py --report TRACE.pt.trace.json.gz

nsys-ai, HolisticTraceAnalysis (HTA) and TensorBoard's plugin (TB) are installed from the package index, each into a
temporary environment of its own. nsys2json is one file of its repository: give its path. nsys stats runs where nsys
is on the PATH. HTA reads no report of nsys, but the trace that `bridge trace --dialect torch` writes of it. A trace
of PyTorch is read by bridge, HTA and TB.

All run in turn, each time on a new copy of the report, because some write into it; medians are printed. The figures
of each are held beside a count in plain loops over the report's rows; for a report of the corpus that count is first
held beside what NVIDIA's own scripts print (--expected, by default ../expected/NAME beside the report).
"""

import argparse
import csv
import gzip
import json
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from pathlib import Path

from bridge.importers.nsys import schema

ROOT = Path(__file__).resolve().parents[1]
RENAMED = "2023"  # the year in which the reports of nsys stats got other names
ALL = "10000000"  # rows: no limit
HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="", include_last_profiler_step=True)
found = analysis.get_gpu_kernel_breakdown(visualize=False, duration_ratio=1.0, num_kernels=10**7)
found[1].to_csv(sys.argv[2], index=False)
"""
WHOLE_NS = {"HTA_DISABLE_NS_ROUNDING": "1"}  # HTA cuts times to whole µs otherwise
# DuckDB's reader of SQLite, which nsys-ai otherwise downloads when it first runs, is of one version of DuckDB.
NSYS_AI = ("nsys-ai", "duckdb==1.4.4", "duckdb-ext-sqlite==1.4.4.20260205")
TENSORBOARD = ("torch-tb-profiler", "tensorboard", "setuptools<81")
PLUGIN = ROOT / "tests" / "dialects" / "in_tensorboard.py"
KERNEL = "kernel"  # the category in traces, which older ones write with a capital
# Peak memory counts what a process is before it becomes the command: a small one starts it.
START = """
import json, os, sys, time
began = time.perf_counter()
child = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - began
used = seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
open(sys.argv[1], "w").write(json.dumps([os.waitstatus_to_exitcode(status), *used]))
"""
KERNELS, PER_RANGE = "kernels", "kernels per range"
US, MS = 1_000, 1_000_000


# -- The truth, by plain loops


@dataclass
class Truth:
    """Count and ns by kernel, and by (range, kernel); the keys are short names of kernels, or full ones."""

    kernels: dict = field(default_factory=lambda: {"short": {}, "full": {}})
    per_range: dict = field(default_factory=lambda: {"short": {}, "full": {}})

    def of(self, job):
        return list((self.kernels if job == KERNELS else self.per_range).values())


def truth_of(report):
    """Count a report's kernels, alone and under each push/pop range that was open when their API call began."""
    with closing(sqlite3.connect(f"{report.absolute().as_uri()}?mode=ro", uri=True)) as file:
        strings = dict(file.execute(f"SELECT id, value FROM {schema.STRINGS.name}"))
        kernels = file.execute(
            f"SELECT start, end, globalPid, correlationId, shortName, demangledName FROM {schema.KERNELS.name}"
        ).fetchall()
        calls = file.execute(
            f"SELECT globalTid, correlationId, start FROM {schema.LAUNCHES.name}"
        ).fetchall()
        ranges = ranges_of(file, strings)
    launch = {(thread & ~schema.THREAD_BITS, number): (thread, at) for thread, number, at in calls}
    under, truth = names_under(ranges, set(launch.values())), Truth()
    for start, end, process, correlation, *names in kernels:
        for kind, number in zip(("short", "full"), names):
            add(truth.kernels[kind], strings[number], end - start)
            for name in under.get(launch.get((process, correlation)), ()):
                add(truth.per_range[kind], (name, strings[number]), end - start)
    return truth


def ranges_of(file, strings):
    """Return thread, start, end and text of the closed push/pop ranges; none without the table."""
    try:
        rows = file.execute(
            f"SELECT globalTid, start, end, text, textId FROM {schema.ANNOTATIONS.name}"
            f" WHERE eventType IN {schema.PUSH_POP} AND end IS NOT NULL"
        ).fetchall()
    except sqlite3.OperationalError:
        return []
    return [
        (t, a, b, strings.get(number) if text is None else text) for t, a, b, text, number in rows
    ]


def truth_of_trace(trace):
    """Count the kernels of a trace of PyTorch; it writes full names, and µs."""
    truth = Truth()
    with gzip.open(trace, "rt", encoding="utf-8", errors="replace") as file:
        events = json.load(file, parse_float=Decimal)["traceEvents"]
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat")).lower() == KERNEL:
            add(truth.kernels["full"], event["name"], int(event["dur"] * US))
    return truth


def names_under(ranges, places):
    """Return the distinct texts of the ranges that are open at each place, a thread and a time."""
    opened, times, found = defaultdict(list), defaultdict(set), {}
    for thread, start, end, text in ranges:
        opened[thread].append((start, end, text))
    for thread, at in places:
        times[thread].add(at)
    for thread, of_thread in times.items():
        waiting, stack = sorted(opened[thread], key=lambda one: one[0], reverse=True), []
        for at in sorted(of_thread):
            while waiting and waiting[-1][0] <= at:
                stack.append(waiting.pop())
            stack = [one for one in stack if one[1] > at]
            found[thread, at] = {text for *_, text in stack}
    return found


def add(figures, name, ns, count=1):
    had = figures.get(name, (0, 0))
    figures[name] = (had[0] + count, None if ns is None else had[1] + ns)


def same_as_nvidia(truth, folder):
    """Tell whether the counts equal what NVIDIA's script printed of the report; None where that is not there."""
    path = folder / "cuda_gpu_kern_sum.csv.gz"
    if not path.exists():
        return None
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return of_nsys_stats(file.read()) == truth.kernels["full"]


# -- What each tool prints, as {name: (count, ns)}; the ns are None where it tells none


def of_bridge(text):
    """Read the JSON of bridge report: by kernel, or by op and kernel."""
    return {
        (row["op"], row["kernel"]) if "op" in row else row["kernel"]: (
            row["count"],
            row["total_ns"],
        )
        for row in json.loads(text)["rows"]
    }


def of_nsys_stats(text):
    """Read a CSV of nsys stats: of kernels (by grid in 2022), or of kernels under ranges (by thread and style)."""
    figures = {}
    for row in csv.DictReader(text.splitlines()):
        total = next(int(value) for name, value in row.items() if name.startswith("Total Time"))
        if "NVTX Range" not in row:
            add(figures, row["Name"], total, int(row["Instances"]))
        elif row["NVTX Range"] and row["Style"] == "PushPop":
            name = row["NVTX Range"], row["Kernel Name"]
            add(figures, name, total, int(row["Kern Inst"]))
    return figures


def of_nsys_ai(text):
    """Read the JSON of nsys-ai: kernels with ms of two decimals, or a row per kernel with the path of its ranges."""
    figures = {}
    for row in json.loads(text):
        if "invocations" in row:
            add(figures, row["kernel_name"], round(row["total_ms"] * MS), row["invocations"])
        for name in set(row["nvtx_path"].split(" > ")) if "nvtx_path" in row else ():
            add(figures, (name, row["kernel_name"]), None)
    return figures


def of_nsys2json(text, job):
    """Read a trace of nsys2json: its kernels name the ranges around them."""
    figures = {}
    for event in json.loads(text):
        if event["cat"] == "cuda":
            names = {KERNELS: [None], PER_RANGE: set(event["args"].get("NVTXRegions", ()))}[job]
            for name in names:
                key = event["name"] if job == KERNELS else (name, event["name"])
                add(figures, key, round(event["dur"] * US))
    return figures


def of_hta(text):
    """Read the kernels of HTA, in µs; it tells the mean in place of the count."""
    return {
        row["name"]: (
            round(float(row["sum (us)"]) / float(row["mean (us)"])),
            round(float(row["sum (us)"]) * US),
        )
        for row in csv.DictReader(text.splitlines())
        if float(row["mean (us)"])
    }


def of_tensorboard(text):
    """Read what TensorBoard's plugin found, in µs."""
    kernels = json.loads(text.splitlines()[-1])["kernels"]
    return {name: (count, round(time * US)) for name, (count, time) in kernels.items()}


def agreement(figures, truths):
    """Return how many names of the truth have the right count, how many the right ns, and how many there are.

    Tools name kernels differently: the naming with most agreement counts.
    """
    best = (-1, -1, 0)
    for truth in truths:
        pairs = [(figures.get(name), known) for name, known in truth.items()]
        counts = sum(found is not None and found[0] == known[0] for found, known in pairs)
        times = sum(found is not None and found[1] == known[1] for found, known in pairs)
        best = max(best, (counts, times, len(truth)))
    return best


# -- The tools


@dataclass
class Job:
    """One command: {report} is a new copy of the report, {out} a file that it writes; without {out} its stdout is read."""

    tool: str
    kind: str
    command: list
    read: object
    environ: dict = field(default_factory=dict)
    used: list = field(default_factory=list)
    text: str = ""
    failure: str = ""


def bridge_jobs(command):
    raw = ["--format", "json", "--kernel-names", "demangled"]
    yield Job("bridge", KERNELS, [command, "report", "{report}", "--by", "kernel", *raw], of_bridge)
    under = ["--by", "op-kernel", "--inclusive", "--names", "raw", *raw]
    yield Job("bridge", PER_RANGE, [command, "report", "{report}", *under], of_bridge)


def nsys_jobs(nsys, version):
    is_old = re.search(r"20\d\d", version)[0] < RENAMED
    names = ("gpukernsum", "nvtxkernsum") if is_old else ("cuda_gpu_kern_sum", "nvtx_kern_sum")
    for kind, name in zip((KERNELS, PER_RANGE), names):
        command = [nsys, "stats", "--report", name, "--format", "csv", "--output", "-", "{report}"]
        yield Job("nsys stats", kind, command, lambda text: of_nsys_stats(csv_in(text)))


def csv_in(text):
    """Return the table that nsys stats prints, without the lines on its progress."""
    lines = text.splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith(("Time", "NVTX Range"))), 0)
    return "\n".join(line for line in lines[first:] if line)


def nsys_ai_jobs(python):
    skill = [str(python.with_name("nsys-ai")), "skill", "run"]
    home = {"HOME": str(with_extensions(python))}
    for kind, name in ((KERNELS, "top_kernels"), (PER_RANGE, "nvtx_kernel_map")):
        words = [name, "{report}", "--format", "json", "-p", f"limit={ALL}"]
        yield Job("nsys-ai", kind, [*skill, *words], of_nsys_ai, home)


def with_extensions(python):
    """Return a home in which DuckDB finds the extensions that are installed beside it."""
    home = python.parents[1] / "home"
    [installed] = python.parents[1].glob("lib/python*/site-packages/duckdb_ext/extensions")
    shutil.copytree(installed, home / ".duckdb" / "extensions")
    return home


def nsys2json_jobs(script):
    command = [sys.executable, str(script), "-f", "{report}", "-o", "{out}"]
    for kind in (KERNELS, PER_RANGE):
        words = [*command, *(["-t", "kernel"] if kind == KERNELS else [])]
        yield Job("nsys2json", kind, words, lambda text, kind=kind: of_nsys2json(text, kind))


def hta_jobs(python, trace="{report}"):
    tool = "HTA" if trace == "{report}" else "HTA, of bridge's trace"
    yield Job(tool, KERNELS, [str(python), "-c", HTA, str(trace), "{out}"], of_hta)


def tensorboard_jobs(python):
    yield Job("TB", KERNELS, [str(python), str(PLUGIN), "{report}"], of_tensorboard)


def installed(package, folder, *requirements):
    """Install a package into an environment of its own; return its Python and version, or None and why not.

    Without extras, as users have it: pandas alone takes three times as long to import beside pyarrow.
    """
    place = folder / package
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    make = [uv, "venv", "-q"] if uv else [sys.executable, "-m", "venv"]
    python = place / "bin" / "python"
    pip = (
        [uv, "pip", "install", "-q", "-p", str(python)]
        if uv
        else [str(python), "-m", "pip", "install", "-q"]
    )
    for command in ([*make, str(place)], [*pip, *map(str, requirements or (package,))]):
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode:
            return None, last_line(ran.stderr)
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return python, subprocess.run(
        [python, "-c", code], capture_output=True, text=True
    ).stdout.strip()


def last_line(text):
    return next(
        (line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message"
    )


# -- Runs


def run(job, report, folder):
    """Run a job on a new copy; keep its time, CPU time and peak memory, and what it printed."""
    place = Path(tempfile.mkdtemp(dir=folder))
    copy, out, log = Path(shutil.copy(report, place)), place / "out", place / "log"
    command = [
        word.replace("{report}", str(copy)).replace("{out}", str(out)) for word in job.command
    ]
    start = [sys.executable, "-I", "-S", "-c", START, str(place / "used")]
    with log.open("wb") as stdout, (place / "errors").open("wb") as stderr:
        environment = os.environ | WHOLE_NS | job.environ
        subprocess.run(
            [*start, *command], stdout=stdout, stderr=stderr, cwd=place, env=environment, check=True
        )
    status, *used = json.loads((place / "used").read_text())
    if status:
        job.failure = last_line((place / "errors").read_text(errors="replace"))
    else:
        job.used.append(used)
        job.text = (out if out.exists() else log).read_text(encoding="utf-8")
    shutil.rmtree(place)


def row_of(job, truth):
    """Return the line of a job in the table."""
    if job.failure:
        return f"| {job.tool} | {job.kind} | failed: {job.failure} | | | | |"
    wall, cpu, memory = (statistics.median(values) for values in zip(*job.used))
    figures = job.read(job.text)
    counts, times, names = agreement(figures, truth.of(job.kind))
    is_told = any(ns is not None for _, ns in figures.values())
    ns = f"{times} of {names}" if is_told else "not told"
    return f"| {job.tool} | {job.kind} | {wall:.1f} | {cpu:.1f} | {memory:.0f} | {counts} of {names} | {ns} |"


def report_lines(jobs, truth, missing):
    """Yield the table of all jobs, and the tools that did not run."""
    yield "| tool | figures | seconds | CPU s | peak MB | counts agree | ns agree |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    yield from (row_of(job, truth) for job in jobs)
    yield from (f"not run: {tool}: {reason}" for tool, reason in missing.items())


def peers(report, folder, nsys2json):
    """Return the jobs of all tools, their versions, and why others are missing."""
    python, said = installed("nsight-bridge", folder, ROOT)
    if python is None:
        raise SystemExit(f"bridge could not be installed: {said}")
    bridge = str(python.with_name("bridge"))
    if report.name.endswith(".gz"):
        jobs, versions, missing = [next(bridge_jobs(bridge))], {}, {}
        packages = {
            "HolisticTraceAnalysis": ((), hta_jobs),
            TENSORBOARD[0]: (TENSORBOARD, tensorboard_jobs),
        }
    else:
        jobs, versions, missing = beside_nsys(bridge, nsys2json)
        of_trace = partial(hta_jobs, trace=trace_of(bridge, report, folder))
        packages = {NSYS_AI[0]: (NSYS_AI, nsys_ai_jobs), "HolisticTraceAnalysis": ((), of_trace)}
    for package, (requirements, jobs_of) in packages.items():
        python, said = installed(package, folder, *requirements)
        if python is None:
            missing[package] = said
        else:
            versions[package] = said
            jobs += jobs_of(python)
    return jobs, versions, missing


def beside_nsys(bridge, nsys2json):
    """Return the jobs of bridge and of what needs no environment, with versions, and why others are missing."""
    jobs, versions, missing = list(bridge_jobs(bridge)), {}, {}
    if nsys := shutil.which("nsys"):
        said = subprocess.run([nsys, "--version"], capture_output=True, text=True).stdout
        versions["nsys"] = said.split()[-1]
        jobs += nsys_jobs(nsys, versions["nsys"])
    else:
        missing["nsys stats"] = "no nsys on the PATH"
    if nsys2json:
        jobs += nsys2json_jobs(nsys2json.absolute())
    else:
        missing["nsys2json"] = "its file was not given: --nsys2json"
    return jobs, versions, missing


def trace_of(bridge, report, folder):
    """Write the report as PyTorch's profiler would, for tools that read no report of nsys."""
    path = folder / "report.pt.trace.json.gz"
    words = ["trace", str(report), "--dialect", "torch", "-o", str(path)]
    subprocess.run([bridge, *words], check=True, capture_output=True)
    return path


def main():
    from make_report import make

    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("--report", type=Path)
    args.add_argument("--kernels", type=int, default=100_000, help="of the report that is made")
    args.add_argument("--rounds", type=int, default=3)
    args.add_argument("--nsys2json", type=Path, help="nsys2json.py of its repository")
    args.add_argument(
        "--expected", type=Path, help="folder of what NVIDIA's scripts print of the report"
    )
    a = args.parse_args()
    with tempfile.TemporaryDirectory(prefix="bridge-peers-") as name:
        folder = Path(name)
        report = a.report or folder / "made.sqlite"
        if a.report is None:
            make(report, a.kernels, per_call_text=False)
        jobs, versions, missing = peers(report, folder, a.nsys2json)
        truth = (truth_of_trace if report.name.endswith(".gz") else truth_of)(report)
        for _ in range(a.rounds):
            for job in jobs:
                if not job.failure:
                    run(job, report, folder)
        expected = a.expected or report.absolute().parents[1] / "expected" / report.stem
        print(f"{report.name}: {', '.join(f'{tool} {said}' for tool, said in versions.items())}")
        if (same := same_as_nvidia(truth, expected)) is not None:
            print(f"the count in plain loops equals NVIDIA's cuda_gpu_kern_sum: {same}")
        print("\n".join(report_lines(jobs, truth, missing)))


if __name__ == "__main__":
    main()

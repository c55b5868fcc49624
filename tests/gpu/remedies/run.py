"""Hold the savings that advice estimates against those that remedies have: `python -m tests.gpu.remedies.run OUT`.

    … [--tool nsys|cupti] [--nsys PATH] [--repeats 3] [--seconds 170] [--only PAIR,…] [--stand-in]

Each pair is timed without a profiler, then its program with the trouble runs under the tool, and `bridge advise` is asked.
OUT/remedies.txt has a line per pair, OUT/remedies.json the same as data. Exits 1 where a program did not run, or gave another
result without the trouble, or left no report; what advice says is measured, and passes or fails nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

from remedies.pairs import PAIRS, US, Pair, Program

MS = 1e6
KERNELS = ("k_forward", "k_inner", "k_graph_a", "k_graph_b")
OF_RUN, OF_SAVING = 0.005, 0.1  # an estimate may differ by the larger of these
AFTERWARDS = 25  # seconds that are left for exports and advice
NO_TIME = "no time was left"
ME = "tests.gpu.remedies.run"


class Failed(RuntimeError):
    """A program or tool ended badly."""


# --- one pair, in a process of its own -----------------------------------------------------------


def timed(gpu: Any, make: Callable[[Any], Program]) -> tuple[int, list]:
    """Run a program; return its time up to the end of all work, and its result with the number of kernels that ran."""
    before = kernels_run(gpu)
    program = make(gpu)
    next(program)
    gpu.wait()
    began = time.perf_counter_ns()
    result = next(program)
    gpu.wait()
    taken = time.perf_counter_ns() - began
    next(program, None)
    return taken, [result, kernels_run(gpu) - before]


def kernels_run(gpu: Any) -> int:
    """Return how many kernels have run."""
    import ctypes

    from program import ask, driver

    number = ctypes.c_uint32()
    ask(driver.cuMemcpyDtoH(ctypes.addressof(number), gpu.counter, 4))
    return number.value


def warm_gpu() -> Any:
    """Return the GPU, with all kernels loaded."""
    from program import HERE, Gpu

    gpu = Gpu(HERE / "kernels.ptx")
    for name in KERNELS:
        gpu.launch(name, ns=US)
    gpu.wait()
    return gpu


def time_both(pair: Pair, repeats: int) -> None:
    """Print the times of both programs in turn, after one run of each that is not counted, and their results."""
    gpu = warm_gpu()
    times: dict[str, list[int]] = {"trouble": [], "remedied": []}
    results = {"trouble": [], "remedied": []}
    for number in range(repeats + 1):
        for name, program in (("trouble", pair.trouble), ("remedied", pair.remedied)):
            taken, result = timed(gpu, program)
            times[name] += [taken] if number else []
            results[name].append(result)
    print(json.dumps({"times": times, "results": results}))


def run_once(pair: Pair, report: Path | None) -> None:
    """Run the program with the trouble in a session, so that a capture has nothing else: that of nsys, or the session's own."""
    import bridge

    gpu = warm_gpu()
    program = pair.trouble(gpu)
    next(program)
    gpu.wait()
    how = {"device": "cupti", "path": report} if report else {"capture": "cudaProfilerApi"}
    with bridge.profile(**how):
        next(program)
        with bridge.nvtx_op("end"):
            gpu.wait()
    next(program, None)


# --- all pairs -----------------------------------------------------------------------------------


@dataclass
class Row:
    """What was measured of a pair; times are ns, -1 where there is none."""

    name: str
    on: str
    with_ns: int = -1
    without_ns: int = -1
    spread_ns: int = 0  # between the fastest and the slowest run of either program
    captured_ns: int = -1  # the run in the report
    first_rule: str = ""  # of all advice with an estimate or a limit
    rule: str = ""  # whose estimate is held against the saving
    estimate_ns: int = -1
    ceiling_ns: int = -1
    right_rules: tuple[str, ...] = ()
    problem: str = ""

    @property
    def saving_ns(self) -> int:
        return self.with_ns - self.without_ns

    @property
    def tolerance_ns(self) -> float:
        return max(OF_RUN * self.with_ns, OF_SAVING * abs(self.saving_ns))

    @property
    def first_is_right(self) -> bool:
        return self.first_rule in self.right_rules if self.right_rules else self.within

    @property
    def within(self) -> bool:
        """Whether the estimate is as good as it should be; where no advice is right, whether there is none."""
        if not self.right_rules:
            return self.estimate_ns <= self.tolerance_ns
        return self.estimate_ns >= 0 and abs(self.estimate_ns - self.saving_ns) <= self.tolerance_ns

    @property
    def above_ceiling(self) -> bool:
        """Whether the remedy saves more than the advice says is possible."""
        limit = self.ceiling_ns if self.right_rules else -1
        return 0 <= limit < self.saving_ns - self.tolerance_ns

    def judge(self, advice: list[dict[str, Any]]) -> None:
        """Take in what is advised: the first that is right counts; where none would be right, the largest estimate."""
        told = [one for one in advice if max(one["saving_ns"], one["ceiling_ns"]) >= 0]
        self.first_rule = told[0]["rule"] if told else ""
        held = [one for one in told if one["rule"] in self.right_rules]
        if not self.right_rules:
            held = sorted(told, key=lambda one: -one["saving_ns"])
        if held:
            self.rule = held[0]["rule"]
            self.estimate_ns, self.ceiling_ns = held[0]["saving_ns"], held[0]["ceiling_ns"]


def output_of(*command: str | Path, **variables: str) -> str:
    """Run a command; return what it prints."""
    done = subprocess.run(
        [*map(str, command)], env={**os.environ, "BRIDGE_SIDECAR": "off", **variables}, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Failed(f"{Path(str(command[0])).name} ended with {done.returncode}: {last}")
    return done.stdout


def measured(pair: Pair, row: Row, options: argparse.Namespace) -> None:
    """Time both programs, and compare their results."""
    command = (sys.executable, "-m", ME, options.out, "--time", pair.name)
    said = json.loads(output_of(*command, "--repeats", str(options.repeats)).splitlines()[-1])
    trouble, remedied = (said["times"][name] for name in ("trouble", "remedied"))
    row.with_ns, row.without_ns = map(round, map(statistics.median, (trouble, remedied)))
    row.spread_ns = max(max(times) - min(times) for times in (trouble, remedied))
    first = said["results"]["trouble"][0]
    if any(result != first for results in said["results"].values() for result in results):
        raise Failed(f"the results differ: {said['results']}")


def captured(pair: Pair, options: argparse.Namespace) -> Path:
    """Run the program with the trouble under the tool; return the report, or what nsys makes it of."""
    path = options.out / f"{pair.name}.sqlite"
    once = ("-m", ME, str(options.out), "--once", pair.name)
    path.unlink(missing_ok=True)
    if options.tool == "cupti":
        output_of(sys.executable, *once, "--report", path)
        if not path.exists():
            raise Failed("the session left no report")
        return path
    made = path.with_suffix(".nsys-rep")
    made.unlink(missing_ok=True)
    record = (options.nsys, "profile", "--trace=cuda,nvtx,osrt", "--sample=none", "--cpuctxsw=none")
    to = ("--force-overwrite=true", "-o", path.with_suffix(""), sys.executable, *once)
    session = ("--capture-range=cudaProfilerApi", "--capture-range-end=stop")
    # Without the session the report has the set-up too; some versions fail now and then as they start.
    for with_session in (session, session, ()):
        try:
            said = output_of(*record, *with_session, *to)
        except Failed as problem:
            said = str(problem)
        if made.exists():
            return made
    raise Failed(f"nsys made no report: {' '.join(said.split())[-200:]}")


def simulated(pair: Pair, row: Row, folder: Path) -> Path:
    """Take the times from the simulator, from the first program of one GPU with ranges that fits; return its export."""
    from simulated import KINDS, Plan, Truth, program, write

    kind = KINDS[pair.simulated]
    plans = ((seed, Plan.draw(seed)) for seed in count(1))
    seed, plan = next(
        (seed, plan)
        for seed, plan in plans
        if plan.ranks == plan.stages == 1 and plan.annotated and kind.fits(plan)
    )
    truth = Truth.of(program(seed, plan, pair.simulated))
    row.on = f"simulator {seed}"
    row.spread_ns = 0
    row.with_ns = truth.length_ns
    row.without_ns = truth.troubles[0].remedied_length_ns
    return write(truth.result, folder / f"{pair.name}.sqlite")[0]


def run_pair(pair: Pair, options: argparse.Namespace) -> tuple[Row, Path | None]:
    """Time a pair and capture it; where that fails, the row says how."""
    row = Row(pair.name, "stand-in" if options.stand_in else "GPU", right_rules=pair.rules)
    try:
        measured(pair, row, options)
        if options.stand_in and pair.simulated:
            return row, simulated(pair, row, options.out)
        report = captured(pair, options)
    except (Failed, subprocess.TimeoutExpired, ValueError, KeyError) as problem:
        row.problem = str(problem)
        return row, None
    return row, report


def advised(row: Row, report: Path | None, nsys: str) -> None:
    """Ask for advice about the report of a row."""
    if report is None:
        return
    path = report.with_suffix(".sqlite")
    command = (sys.executable, "-m", "bridge", "advise", path, "--format", "json", "--rows", "0")
    try:
        if report != path:
            output_of(
                nsys, "export", "--type", "sqlite", "--force-overwrite=true", "-o", path, report
            )
            report.unlink()
        said = json.loads(output_of(*command))
        row.captured_ns = said["wall_ns"]
        row.judge(said["advice"])
    except (Failed, subprocess.TimeoutExpired, ValueError) as problem:
        row.problem = str(problem)


def table(rows: list[Row]) -> list[str]:
    """Return a line per pair, and what they say together."""
    head = (
        "pair",
        "on",
        "with",
        "without",
        "saves",
        "spread",
        "captured",
        "estimate",
        "at most",
        "first rule",
        "rule",
        "within",
    )
    lines = [
        [
            row.name, row.on, *(_ms(ns) for ns in (row.with_ns, row.without_ns, row.saving_ns, row.spread_ns)),
            _ms(row.captured_ns), _ms(row.estimate_ns), _ms(row.ceiling_ns), row.first_rule or "none", row.rule or "none",
            row.problem or ("yes" if row.within else "no"),
        ] if row.with_ns >= 0 else [row.name, row.on, *[""] * 9, row.problem]
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[column]) for line in [list(head), *lines]) for column in range(11)]
    texts = []
    for line in (head, *lines):
        cells = [
            text.rjust(width) if 2 <= column < 9 else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=False))
        ]
        texts.append("  ".join([*cells, line[11]]).rstrip())
    good = [row for row in rows if not row.problem]
    sums = (
        f"{len(good)} of {len(rows)} pairs ran; {sum(row.within for row in good)} estimates within"
        f" {OF_RUN:.1%} of the run or {OF_SAVING:.0%} of the saving, {sum(row.first_is_right for row in good)} first rules right,"
        f" {sum(row.above_ceiling for row in good)} savings above what is said to be possible"
    )
    return [*texts, f"{'FAIL' if any(map(failed, rows)) else 'PASS'} {sums}"]


def failed(row: Row) -> bool:
    """Return whether a pair ran and something went wrong."""
    return row.problem not in ("", NO_TIME)


def _ms(ns: int) -> str:
    return "-" if ns == -1 else f"{ns / MS:.1f} ms"


def main() -> int:
    """Run all pairs, or be the process of one."""
    options = _options()
    by_name = {pair.name: pair for pair in PAIRS}
    if options.time or options.once:
        pair = by_name[options.time or options.once]
        if options.time:
            time_both(pair, options.repeats)
        else:
            run_once(pair, options.report)
        return 0
    began = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[tuple[Row, Path | None]] = []
    for pair in (by_name[name] for name in options.only or by_name):
        if time.monotonic() - began > options.seconds - AFTERWARDS:
            results.append((Row(pair.name, "", problem=NO_TIME), None))
        else:
            results.append(run_pair(pair, options))
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda result: advised(*result, options.nsys), results))
    rows = [row for row, _ in results]
    lines = table(rows)
    said = [
        {**asdict(row), "saving_ns": row.saving_ns, "within": row.within, "above_ceiling": row.above_ceiling}
        for row in rows
    ]  # fmt: skip
    (options.out / "remedies.json").write_text(json.dumps(said, indent=1), encoding="utf-8")
    (options.out / "remedies.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(*lines, sep="\n")
    return int(any(map(failed, rows)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {ME}")
    parser.add_argument("out", type=lambda text: Path(text).absolute())
    parser.add_argument("--tool", choices=("nsys", "cupti"), default="nsys")
    parser.add_argument("--nsys", default="nsys")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=170)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--stand-in", action="store_true", help="the driver is the stand-in")
    parser.add_argument("--time", help=argparse.SUPPRESS)
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

"""One quantity has one value in all that is printed: every output of a report, to the nanosecond or to the digits shown.

Each output is read by a function that returns the quantities that it shows, by name; a quantity is compared in all outputs
that have it. The plain loops of `witness/account.py` over the rows of the export are one of the "outputs".
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import click
import pytest
from command import bridge as run_bridge
from command import done
from mcp_server.answers import asked
from read_once import reading_once
from real_parts import corpus_reports, few, skip_what_holds_no_profile
from windowed.equal import both
from witness.account import IDLE
from witness.account import run as run_of

import bridge
from account.exports import events_of, swept
from account.true import told
from bridge.analyze.draw.overview import overview
from bridge.analyze.run.account import Run
from bridge.cli.mcp import mcp
from bridge.importers.errors import ReportError
from bridge.render import units
from bridge.scale.windows.window import WindowsError
from bridge.source import ReportInput, load_report

pytestmark = pytest.mark.slow

# The quantities that have one value each. A new one is named here, and returned by each output below that shows it.
QUANTITIES = (
    "run",  # its length
    "part",  # the length of what is selected of it; the run where nothing is selected
    "busy",  # by GPU
    "idle",  # by GPU
    "share",  # by GPU: busy of the part
    "exposed",  # communication, by GPU
    "idle of all",
    "causes",  # idle time of all GPUs by cause
    "loops",  # of iterations: how many each has, and how many of these are warm-up
    "iteration",  # the time of one in each loop
    "longest",  # that of the loop that takes longest
    "parts",  # the lengths of start-up, iterations, what is between, and the end
)
Found = dict[str, Any]


@dataclass
class Asked:
    """A report and what is selected of it; what several outputs need is made once."""

    path: Path
    options: tuple[str, ...] = ()
    selected: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def report(self) -> bridge.Report:
        report = bridge.load(self.path)
        return report.within(**self.selected) if self.selected else report

    def said(self, command: str, *words: str) -> str:
        return done(command, self.path, *words, *self.options)

    def document(self, command: str, *words: str) -> dict[str, Any]:
        return json.loads(self.said(command, *words, "--format", "json"))


# -- What each output shows


def of_library(one: Asked) -> Found:
    """`bridge.load`, and the properties of what it returns."""
    use, summary = one.report.use, one.report.summary
    loops = [asdict(loop) for loop in summary.iterations]
    longest = [round(loop.iteration_ns) for loop in summary.by_iteration[-1:]]
    if not one.selected:
        assert sum(summary.parts.values()) == use.runs[0].length_ns
    return (
        of_runs(use.runs)
        | of_loops(loops)
        | {
            "idle of all": use.idle_ns,
            "causes": {cause.cause: cause.idle_ns for cause in use.causes},
            "longest": longest[0] if longest else None,
            "parts": dict(summary.parts),
        }
    )


def of_loops(loops: Iterable[dict[str, Any]]) -> Found:
    """Return what entries of loops of iterations say."""
    entries = sorted((one["count"], one["warm_up"], round(one["iteration_ns"])) for one in loops)
    return {
        "loops": [(count, warm_up) for count, warm_up, _ in entries],
        "iteration": [ns for *_, ns in entries],
    }


def of_runs(runs: tuple[Run, ...]) -> Found:
    [run] = runs
    return {
        "run": run.length_ns,
        "part": run.part.length,
        "busy": {gpu.device: gpu.busy_ns for gpu in run.gpus},
        "idle": {gpu.device: gpu.idle_ns for gpu in run.gpus},
        "share": {gpu.device: gpu.share for gpu in run.gpus},
        "exposed": {gpu.device: gpu.exposed_ns for gpu in run.gpus},
        "idle of all": sum(gpu.idle_ns for gpu in run.gpus),
    }


def of_witness(one: Asked) -> Found:
    """The rows of the export, of whole reports; GPUs go by their numbers."""
    if one.selected:
        return {}
    events = events_of(one.path)
    session = one.report.capture.facts[0].session_ns
    whole = run_of(events, told(events, (0, session) if session > 0 else None))
    assert whole
    found: Found = {"run": whole[1] - whole[0], "part": whole[1] - whole[0]}
    work = defaultdict(list)
    for activity in events.activities:
        work[activity.gpu].append(activity)
    names = {int(name.split()[1]): name for name in (gpu.device for gpu in one.report.use.gpus)}
    if set(names) != set(work):  # the numbers of GPUs are not recorded
        return found
    by_gpu = {names[gpu]: swept(of, whole) for gpu, of in work.items()}
    idle = {gpu: states[IDLE] for gpu, (states, _) in by_gpu.items()}
    return found | {
        "busy": {gpu: found["run"] - ns for gpu, ns in idle.items()},
        "idle": idle,
        "exposed": {gpu: exposed for gpu, (_, exposed) in by_gpu.items()},
        "idle of all": sum(idle.values()),
    }


def of_summary(one: Asked) -> Found:
    """`bridge summary --format json`."""
    return of_summary_document(one.document("summary"))


def of_summary_document(told: dict[str, Any]) -> Found:
    run, gpus = told["run"], told.get("gpus", [])
    for gpu in gpus:
        assert sum(gpu["states"].values()) == gpu["length_ns"]
    return of_loops(told.get("iterations", [])) | {
        "run": run["length_ns"],
        "part": run.get("selected", run)["length_ns"],
        "parts": told.get("parts", {}),
        "busy": {gpu["device"]: gpu["busy_ns"] for gpu in gpus},
        "idle": {gpu["device"]: gpu["idle_ns"] for gpu in gpus},
        "share": {gpu["device"]: gpu["busy_share"] for gpu in gpus},
        "exposed": {gpu["device"]: gpu["exposed_ns"] for gpu in gpus},
        "idle of all": told["idle_ns"],
        "causes": {cause["cause"]: cause["idle_ns"] for cause in told.get("causes", [])},
    }


def of_devices(one: Asked) -> Found:
    """`--by device`."""
    rows = one.document("report", "--by", "device")["rows"]
    return {
        **alike("part", {row["run_ns"] for row in rows}),
        "busy": {row["device"]: row["busy_ns"] for row in rows},
        "idle": {row["device"]: row["idle_ns"] for row in rows},
        "share": {row["device"]: row["busy_share"] for row in rows},
        "exposed": {row["device"]: row["exposed_ns"] for row in rows},
    }


def of_loop_table(one: Asked) -> Found:
    """`--by loop`, of whole reports."""
    if one.selected:
        return {}
    rows = one.document("report", "--by", "loop")["rows"]
    loops = [row for row in rows if row["kind"] == "iterations"]
    return of_loops({**row, "iteration_ns": max(0, row["median_ns"])} for row in loops)


def of_steps(one: Asked) -> Found:
    """The lines below `--by step`, of one loop."""
    times = re.findall(
        rf"[Ii]teration, median: ({NUMBER} [a-zµ]+)", one.said("report", "--by", "step")
    )
    return {"longest": Shown(times[0])} if len(times) == 1 else {}


def of_idle(one: Asked) -> Found:
    """`--by idle`, whose rows are causes in ops."""
    causes: dict[str, int] = defaultdict(int)
    for row in one.document("report", "--by", "idle")["rows"]:
        causes[row["cause"]] += row["total_ns"]
    found: Found = {"idle of all": sum(causes.values())}
    # Where next to nothing ran, no cause is told but where it is asked for.
    return found if one.report.use.nothing else found | {"causes": dict(causes)}


def of_gaps(one: Asked) -> Found:
    """`--by gap` of all gaps."""
    idle: dict[str, int] = defaultdict(int)
    for row in one.document("report", "--by", "gap", "--idle-over", "0")["rows"]:
        idle[row["device"]] += row["gap_ns"]
    return {"idle of all": sum(idle.values())}


def of_path(one: Asked) -> Found:
    """`--by critical`."""
    told = one.document("report", "--by", "critical")
    assert sum(row["time_ns"] for row in told["rows"]) == told["run_ns"]
    return {"part": told["run_ns"]}


def of_ranks(one: Asked) -> Found:
    """`--by rank`, of which each process with one GPU of its own has the figures of that."""
    rows = one.document("report", "--by", "rank").get("ranks", [])
    names = {gpu.device.split()[1]: gpu.device for gpu in one.report.use.gpus}
    if sorted(row["gpu"] for row in rows) != sorted(names):
        return {}
    return {
        **alike("part", {row["run_ns"] for row in rows}),
        "busy": {names[row["gpu"]]: row["busy_ns"] for row in rows},
        "share": {names[row["gpu"]]: row["busy_share"] for row in rows},
        "exposed": {names[row["gpu"]]: row["exposed_ns"] for row in rows},
    }


def of_advice(one: Asked) -> Found:
    """`bridge advise --format json`."""
    return {"part": one.document("advise")["wall_ns"]}


def of_page(one: Asked) -> Found:
    """The figures in the data of the page."""
    figures = overview(one.report.attributed)["figures"]
    if one.report.use.nothing:  # a share of the time would mislead
        assert not figures["devices"]
        return {"part": figures["run_ns"]}
    iteration = figures["iteration"]
    return {
        "part": figures["run_ns"],
        "longest": iteration["iteration_ns"] if iteration else None,
        "busy": {gpu["name"]: gpu["busy_ns"] for gpu in figures["devices"]},
        "idle": {gpu["name"]: gpu["idle_ns"] for gpu in figures["devices"]},
        "causes": {cause["cause"]: cause["idle_ns"] for cause in figures["idle"]},
    }


# -- Texts, whose digits are compared

NUMBER = r"[\d. ]*\d"
LENGTHS = re.compile(
    rf" of (?:(?P<part>{NUMBER} [a-zµ]+) selected of )?the run, (?P<run>{NUMBER} [a-zµ]+)\."
)
SCOPE = re.compile(
    rf": (?:(?P<part>{NUMBER} [a-zµ]+) selected of a run of )?(?P<run>{NUMBER} [a-zµ]+)(?: from the first CUDA call)?[.:]"
)
BUSY = re.compile(r"(GPU \d[^:(%]*?(?:, GPU \d[^:(%]*?)*): busy ([\d.<> ]+ %)")
LOOPS = re.compile(rf"({NUMBER}) iterations? of ({NUMBER} [a-zµ]+)(?: \((\d+) of warm-up\))?")
CAUSE = re.compile(
    r"Largest cause of idleness: (?P<cause>[^,(]+?)(?: \(mainly in .*?\))?, (?P<ns>[\d.]+ \w+),"
)


@dataclass(frozen=True)
class Shown:
    """A value as people read it."""

    text: str

    def is_of(self, value: float, *, is_share: bool) -> bool:
        return self.text == (units.percent(value) if is_share else units.time(round(value)))


def of_lines(text: str) -> Found:
    """Return what the lines on the use of the GPUs say."""
    text = " ".join(text.split())
    found: Found = {}
    for match in [*LENGTHS.finditer(text), *SCOPE.finditer(text)][:1]:
        found["run"] = Shown(match["run"])
        found["part"] = Shown(match["part"] or match["run"])
    shares = {gpu: Shown(share) for gpus, share in BUSY.findall(text) for gpu in gpus.split(", ")}
    if shares:
        found["share"] = shares
    loops = LOOPS.findall(text)
    if len(loops) == 1 and "loops of" not in text:
        [(count, time, warm_up)] = loops
        found["loops"] = [(int(count.replace(" ", "")), int(warm_up or 0))]
        found["longest"] = Shown(time)
    if cause := CAUSE.search(text):
        found["causes"] = {cause["cause"]: Shown(cause["ns"])}
    return found


def of_report_text(one: Asked) -> Found:
    """The lines above `bridge report`."""
    return of_lines(one.said("report").partition("→")[0])


def of_summary_text(one: Asked) -> Found:
    """The lines of `bridge summary`."""
    return of_lines(one.said("summary"))


def of_notebook(one: Asked) -> Found:
    """What a notebook shows of a report."""
    html = one.report._repr_html_()
    return of_lines(" ".join(re.findall(r"<p[^>]*>(.*?)</p>", html, re.DOTALL)))


def of_mcp(one: Asked) -> Found:
    """The tools `summary` and `open_report`."""
    if one.selected:
        return {}
    tools = asked(one.path.parent)
    with click.Context(mcp, info_name="mcp"):  # as the server runs tools
        opened = json.loads(tools.open_report(str(one.path)))
        summary = json.loads(tools.summary(str(one.path)))
    found = of_summary_document(summary)
    del found["share"]  # of four digits, all answers
    return found | alike("run", {found["run"], *opened["run_ns"]})


# -- Other sources


def of_windows(one: Asked) -> Found:
    """The run of a report that is read in windows of time."""
    if one.selected or one.path.suffix != ".sqlite":
        return {}
    try:
        _, apart = both(one.path, 3, tables=())
    except WindowsError:
        return {}
    return of_runs(apart.use.runs)


def of_workers(one: Asked) -> Found:
    """The lines above a table that a worker makes."""
    if one.selected:
        return {}
    result = run_bridge("report", one.path, "--by", "kernel", "--workers", "1")
    return of_lines(result.stdout.partition("→")[0]) if result.exit_code == 0 else {}


OUTPUTS: tuple[Callable[[Asked], Found], ...] = (
    of_library,
    of_witness,
    of_summary,
    of_devices,
    of_loop_table,
    of_steps,
    of_idle,
    of_gaps,
    of_path,
    of_ranks,
    of_advice,
    of_page,
    of_report_text,
    of_summary_text,
    of_notebook,
    of_mcp,
    of_windows,
    of_workers,
)


def alike(name: str, values: set[int]) -> Found:
    """Return the one value of a quantity, if there is any."""
    assert len(values) <= 1, name
    return dict.fromkeys((name,), *values) if values else {}


def differences(found: dict[str, Found]) -> list[str]:
    """Return what is said otherwise than by the library: output, quantity and both values."""
    truth, wrong = found["of_library"], []
    for output, values in found.items():
        assert set(values) <= set(QUANTITIES), output
        for name, value in values.items():
            said, expected = (
                of if isinstance(of, dict) else {"": of} for of in (value, truth[name])
            )
            shown = {key: of for key, of in said.items() if isinstance(of, Shown)}
            if not shown and said != expected:
                wrong.append(f"{output}: {name} {said} instead of {expected}")
            wrong += [
                f"{output}: {name} of {key} {of.text} instead of {expected.get(key)}"
                for key, of in shown.items()
                if key not in expected or not of.is_of(expected[key], is_share=name == "share")
            ]
    return wrong


def check(one: Asked) -> None:
    """Assert that all outputs say the same."""
    found = {output.__name__: output(one) for output in OUTPUTS}
    assert found["of_library"]["run"] > 0
    assert not differences(found)


@contextmanager
def opened(path: Path) -> Iterator[Asked]:
    """Open a report that is read once for all outputs; skip files without a timeline."""
    with reading_once():
        try:
            one = Asked(path)
            if not one.report.use.runs:
                pytest.skip("no timeline")
            yield one
        except ReportError:
            skip_what_holds_no_profile(path)


@pytest.mark.parametrize("path", corpus_reports("nsys/*.sqlite"))
def test_all_outputs_of_a_profile_say_the_same(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened(path) as one:
        check(one)


@pytest.mark.parametrize("path", few(corpus_reports("nsys/*.sqlite"), 2))
def test_all_outputs_of_a_part_say_the_same(path, tmp_path, monkeypatch):
    """The middle third of the time, the second iteration, and the ranges of the op with most calls."""
    monkeypatch.chdir(tmp_path)
    with opened(path) as one:
        [run] = one.report.use.runs
        third = (run.whole.end - one.report.began) // 3  # times count from the first event
        first, last = third, 2 * third
        check(Asked(path, ("--from", f"{first}ns", "--to", f"{last}ns"), {"first_ns": first, "last_ns": last}))  # fmt: skip
        numbers = sorted(set(one.report.attributed.iterations.number.tolist()))
        if numbers:
            number = numbers[min(1, len(numbers) - 1)]
            check(Asked(path, ("--step", str(number)), {"steps": (number, number)}))
        ops = one.report.by("op")
        named = [op for op in ops["op"] if not set("*?") & set(op)]
        if named:
            check(Asked(path, ("--range", named[0]), {"range_name": named[0]}))


@pytest.mark.parametrize("path", corpus_reports("nsys/*.sqlite"))
def test_a_stored_run_says_the_same(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened(path) as one:
        done("import", path, "--quiet")
        expected = of_library(one)
        stored = {
            "of_library": expected,
            "summary": of_summary_document(json.loads(done("summary", "--format", "json"))),
            "summary text": of_lines(done("summary")),
            "report": of_lines(done("report").partition("→")[0]),
            "rows": of_runs(load_report(ReportInput((), tmp_path / "bridge.db")).use.runs),
        }
        assert not differences(stored)

"""What a report of Nsight Compute alone shows, and what it refuses in one clear line: every command, file or run."""

from __future__ import annotations

import json
import shutil

import counters
import pytest
from command import assert_misused, assert_refused, done
from command import bridge as run
from made_ncu import DURATION, kernel, raw
from read_once import reading_once
from real_parts import need

import bridge
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.no_timeline import NoTimelineError
from bridge.cli import COMMANDS

WHY = ("c.csv", "Nsight Compute ran each kernel alone", "no timeline", "--ncu beside")
REFUSED = (  # the words after the report, and what is missing
    (["trace", "-o", "x.json"], "no trace"),
    (["trace", "-o", "x.pftrace", "--dialect", "native"], "no trace"),
    (["view", "--no-browser"], "no trace"),
    (["view", "--html", "--no-browser"], "no trace"),
    (["html", "-o", "x.html"], "no page"),
    (["memory"], "no allocations"),
    (["graph"], "no graph"),
    (["why", "gemm"], "no explanation"),
    (["annotate"], "no places to annotate"),
    (["what-if", "--gpu-faster", "2x"], "no what-if"),
    (["flame", "--weight", "cpu"], "no CPU time"),
    (["plot", "--kind", "timeline", "-o", "x.svg"], "no timeline plot"),
    (["plot", "--kind", "memory", "-o", "x.svg"], "no memory plot"),
)
MISUSED = (
    (["report", "--from", "1ms"], "no time from the first event"),
    (["report", "--to", "1ms"], "no time from the first event"),
    (["advise", "--to", "1ms"], "no time from the first event"),
    (["report", "--columns", "cpu_total"], "no cpu_total_ns"),
    *(
        (["report", "--by", by], f"no {by} table")
        for by in ("step", "gap", "idle", "api", "op,api")
    ),
)
SHOWN = (
    ["doctor"],
    *(
        ["report", "--by", by]
        for by in (
            "op",
            "op-kernel",
            "kernel",
            "module",
            "op,step",
            "thread",
            "rank,op",
            "rank",
            "skew",
        )
    ),
    ["report", "--range", "op_gemm"],
    ["report", "--step", "1", "--by", "kernel"],
    ["report", "--filter", "step=1"],
    ["flame"],
    ["flame", "--weight", "calls", "--format", "speedscope"],
    ["plot", "--kind", "breakdown", "-o", "x.svg"],
    ["plot", "--kind", "histogram", "-o", "x.svg"],
    ["plot", "--kind", "roofline", "-o", "x.svg"],
    ["advise"],
    ["summary"],
)
ELSEWHERE = {
    "trend",
    "demo",
    "mcp",
    "doctor",
    "run",
    "import",
    "runs",
    "diff",
}  # read no report, or are tested below


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Write the file once; it is read once."""
    with reading_once():
        yield counters.counters(tmp_path_factory.mktemp("counted") / "c.csv", steps=2)


@pytest.fixture(scope="module")
def stored(counted):
    """Import it once."""
    db = counted.with_name("bridge.db")
    done("import", "-q", counted, "--db", db)
    return db


@pytest.fixture(params=["file", "run"])
def said(request, counted, stored, folder, monkeypatch):
    """Run a command on the file, or on the run that it was imported as, in a folder of its own."""
    if request.param == "file":
        return lambda words: run(words[0], counted, *words[1:])
    monkeypatch.setenv("BRIDGE_DB", str(stored))
    return lambda words: run(*words)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"), REFUSED, ids=lambda one: " ".join(one) if isinstance(one, list) else ""
)
def test_refused(said, words, what):
    assert_refused(said(words), what, *WHY)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "what"), MISUSED, ids=lambda one: " ".join(one) if isinstance(one, list) else ""
)
def test_misused(said, words, what):
    assert_misused(said(words), what, *WHY)


@pytest.mark.slow
@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_shown(said, words):
    if words[0] == "plot":
        pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'nsight-bridge[plot]'")
    if words == ["doctor"]:
        need("nsys", shutil.which("nsys"), "no nsys on the path, without which doctor ends with 1")
    result = said(words)
    assert result.exit_code == 0, result.output
    assert "-o" in words or result.stdout


def test_every_command_is_told_of():
    told = (
        {words[0] for words, _ in (*REFUSED, *MISUSED)} | {words[0] for words in SHOWN} | ELSEWHERE
    )
    others = {*COMMANDS} - told
    assert others <= {"bench", "cache", "hang", "onednn", "scrub"}, (
        "does it take a report of Nsight Compute?"
    )


@pytest.mark.slow
@pytest.mark.parametrize("by", sorted({*VIEWS, *DIMENSIONS}))
def test_every_table_is_made_or_refused(counted, by):
    result = run("report", counted, "--by", by, "--format", "json")
    if result.exit_code:
        assert_misused(result, f"no {by} table", *WHY)
        return
    columns = {name for row in json.loads(result.stdout)["rows"] for name in row}
    assert not {c for c in columns if c.startswith(("cpu_", "wall_", "start_", "launch"))}


@pytest.mark.slow
def test_steps_are_those_that_ranges_name(folder):
    counters.counters(folder / "c.csv", steps=2)
    rows = json.loads(done("report", "c.csv", "--step", "1", "--by", "kernel", "--format", "json"))
    assert sum(row["count"] for row in rows["rows"]) == len(counters.OPS)
    alike = [kernel(f"k{n % 2}") for n in range(40)]  # that repeat, and are no steps
    (folder / "k.csv").write_text(raw(alike), encoding="utf-8")
    assert_misused(run("report", "k.csv", "--step", "1"), "step")


def test_programs_are_told_the_same(folder):
    joined = bridge.load(counters.counters(folder / "c.csv"))
    for ask in (
        lambda: joined.export_trace(folder / "x.json"),
        lambda: joined.export_chrome_trace(folder / "x.json"),
        lambda: joined.export_tensorboard(folder),
        lambda: joined.within(first_ns=5),
        joined.key_averages,
        lambda: joined.by("gap"),
    ):
        with pytest.raises(
            NoTimelineError, match=r"c\.csv: no .*Nsight Compute ran each kernel alone"
        ):
            ask()


def test_stacks_weigh_what_is_known(folder):
    counters.counters(folder / "c.csv")
    lines = done("flame", "c.csv").splitlines()
    assert "step 0;op_add;add 2000" in lines
    profiles = json.loads(done("flame", "c.csv", "--format", "speedscope"))["profiles"]
    assert [one["name"] for one in profiles] == ["GPU time", "calls"]


@pytest.mark.slow
def test_two_of_them_compare_and_one_with_a_timeline_does_not(folder):
    for name, steps in (("a.csv", 1), ("b.csv", 2)):
        counters.counters(folder / name, steps=steps)
    counters.timeline(folder / "t.sqlite")
    rows = json.loads(done("diff", "a.csv", "b.csv", "--by", "kernel", "--format", "json"))["rows"]
    assert {row["kernel"]: row["diff_ns"] for row in rows} == {"gemm": 4000 + 6000, "add": 5000}
    for pair in (["a.csv", "t.sqlite"], ["t.sqlite", "a.csv"]):
        assert_misused(run("diff", *pair), "a.csv: recorded by Nsight Compute", "do not compare")
    budget = folder / "b.toml"
    budget.write_text('[ops."op_*"]\ncpu_total = "< 5 ms"\n')
    assert run("diff", "a.csv", "--budget", "b.toml").exit_code == 2


def test_the_store_keeps_that_there_is_no_timeline(folder):
    counters.counters(folder / "c.csv")
    assert (
        "next: bridge report --by op, or bridge report --by rule" in run("import", "c.csv").stderr
    )
    assert "step" not in done("runs", "show", "1")


@pytest.mark.parametrize(("ns", "fires"), [("100", True), ("99", False)])
def test_a_hotspot_is_half_of_all_kernels(ns, fires, tmp_path):
    """With a timeline a quarter is enough, if it is a tenth of the run, too."""
    times = {"main": ns, "one": "50", "other": "50"}
    kernels = [kernel(name, metrics={DURATION: (time, "ns")}) for name, time in times.items()]
    (tmp_path / "c.csv").write_text(raw(kernels))
    advised = bridge.load(tmp_path / "c.csv").advise(["kernel-hotspot"], 0)
    assert [one.finding.figures["kernel"] for one in advised.advice] == ["main"] * fires
    assert all(one.finding.is_named for one in advised.advice)

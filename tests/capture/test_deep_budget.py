"""What a second run may take: times as text, the estimate, what fits a budget, and how a run that does not is ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from command import assert_misused, bridge
from pretended import answers, install

from bridge.capture import deep, ncu, plan, tool
from bridge.capture.plan import Limit, Plan
from bridge.capture.tool import LaunchFilter, Line, MisuseError, Request, Tool
from bridge.cli.deep import Deep, SecondRun, span


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("5m", 300), ("1h", 3_600), ("1.5m", 90), (" 2 h ", 7_200)]
)
def test_a_budget(text, seconds):
    assert deep.parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "0s", "-5m", "5ms", "5 min", "1d", "1e3s", "5m30s"])
def test_what_is_no_budget(text):
    with pytest.raises(ValueError, match="write 90s, 5m or 1h"):
        deep.parse_budget(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "0.2 s"), (9.6, "10 s"), (119, "119 s"), (150, "2.5 min"), (4_320, "1.2 h")],
)
def test_a_time_as_people_say_it(seconds, text):
    assert span(seconds) == text


def test_an_estimate_is_the_run_and_the_passes_of_each_launch():
    cost = deep.Cost(run_s=30, passes=8, memory=2_000_000_000)
    by_hand = 0.0
    for ns in (1_000_000, 3_000_000, 6_000_000):
        for _ in range(8):
            by_hand += deep.PASS_S + 2_000_000_000 / deep.RESTORED_PER_S + ns / 1e9
    assert cost.measuring_s(3, 10_000_000) == pytest.approx(by_hand)
    assert cost.bare_s == 30 + deep.START_S
    assert cost.total_s(3, 10_000_000) == pytest.approx(30 + deep.START_S + by_hand)
    assert cost.total_s(0, 0) == cost.bare_s


def test_passes_are_those_of_the_set():
    sets = {None: 8, "basic": 8, "default": 8, "full": 49, "roofline": 49, "detailed": 49}
    assert {name: deep.passes_of(name) for name in sets} == sets


# -- What fits


def second(budget: str) -> SecondRun:
    given = {"deep": True, "budget": budget, "kernels": None, "even_idle": False}
    return SecondRun(Deep.of("nsys", (), **given), lambda *_: None, Request(), Path("r.ncu-rep"))


def choices(*launches: int):
    every = [SimpleNamespace(rows=range(count), ns=0) for count in launches]
    return SimpleNamespace(choices=lambda: iter(every))


def test_the_largest_choice_that_fits_is_taken():
    cost = deep.Cost(run_s=30, passes=20)  # a second for each launch
    for budget, measured in (("50s", 10), ("49s", 6), ("46s", 6), ("45s", 2), ("42s", 2)):
        chosen, _ = second(budget)._within_budget(choices(10, 6, 2), cost)
        assert len(chosen.rows) == measured, budget


def test_without_any_that_fits_it_says_what_would():
    cost = deep.Cost(run_s=30, passes=20)
    text = second("41s")._within_budget(choices(10, 2), cost)
    assert text == "one kernel takes about 42 s, more than --budget 41s: give more"
    text = second("39s")._within_budget(choices(10, 2), cost)
    assert text.startswith("a run of the program under ncu takes about 40 s even if it measures")


# -- Options, and the requests of both runs


@pytest.fixture
def tools(folder, tmp_path, monkeypatch):
    """Install pretended profilers, and be where a script is."""
    (folder / "train.py").write_text("")
    for name in ("nsys", "ncu"):
        install(tmp_path, name, {"nsys": "2022.4", "ncu": "2022.3"}[name])
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(tool, "tool_output", answers({"nsys": "2022.4", "ncu": "2022.3"}))
    return folder


def test_both_commands_are_printed(tools):
    done = bridge("run", "--print", "--deep", "--set", "full", "--memory", "-o", "r", "train.py")
    first, then = done.stdout.splitlines()
    assert "nsys profile --trace=cuda,nvtx" in first
    assert "--cuda-memory-usage=true --output=r.nsys-rep" in first
    assert then.startswith("BRIDGE_SIDECAR=off ncu --target-processes=all --nvtx ")
    assert "--kernel-name-base=mangled '--kernel-id=::regex:^(KERNELS)$:^(NUMBERS)$'" in then
    assert then.endswith(f"--set=full --export=r.ncu-rep {sys.executable} train.py")
    assert "--op" not in bridge("run", "--print", "--deep", "--op", "mm", "train.py").stdout


def test_the_name_is_free_for_both_reports(tools):
    Path("report1.ncu-rep").touch()
    Path("report2.nsys-rep").touch()
    assert "report3.nsys-rep" in bridge("run", "--print", "--deep", "train.py").stdout
    assert "report1.nsys-rep" in bridge("run", "--print", "train.py").stdout
    refused = bridge("run", "--print", "--deep", "-o", "report1", "train.py")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "report1.ncu-rep: exists; give another name, or --force" in refused.stderr
    assert bridge("run", "--print", "--deep", "--force", "-o", "report1", "train.py").stdout


def test_without_ncu_the_first_command_stays(tools, tmp_path):
    (tmp_path / "ncu").unlink()
    done = bridge("run", "--print", "--deep", "train.py")
    assert done.exit_code == 0
    assert done.stdout.splitlines()[1].startswith(
        "# ncu is not on the PATH: install Nsight Compute"
    )
    assert done.stderr.startswith("note: no second run: ncu is not on the PATH: install")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--budget", "5m"], "--budget goes with --deep"),
        (["--kernels", "2"], "--kernels goes with --deep"),
        (["--even-idle"], "--even-idle goes with --deep"),
        (["--deep", "--budget", "5"], "--budget: '5' is no time above 0: write 90s, 5m or 1h"),
        (["--deep", "--tool", "ncu"], "--deep runs nsys and then ncu: leave --tool ncu out"),
        (["--deep", "--tool", "cupti"], "--deep runs nsys and then ncu: leave --tool cupti out"),
        (["--deep", "--schedule", "active=1"], "--schedule: --deep counts the launches"),
        (["--deep", "--capture", "nvtx"], "--capture: --deep counts the launches"),
        (["--deep", "--kill"], "--kill: --deep counts the launches"),
        (["--deep", "--replay", "range"], "--replay range: --deep measures single kernels"),
        (["--deep", "--graphs", "graph"], "--graphs graph: --deep chooses among the kernels"),
        (["--deep", "--op", "@d"], "--op @d: NAME or NAME@DOMAIN"),
        (["--deep", "--live"], "--live goes with --tool cupti"),
    ],
)
def test_options_that_make_no_sense_together(tools, words, reason):
    assert_misused(bridge("run", *words, "train.py"), reason)
    assert not list(tools.glob("report*"))


def test_each_tool_gets_its_own_options():
    asked = Request(
        preset="full", memory=True, backtrace=True, force=True, ops=("mm",), section_set="full",
        metrics="a", no_clock_control=True, replay="kernel",
    )  # fmt: skip
    first, then = deep.split(asked)
    assert first == Request(preset="full", memory=True, backtrace=True, force=True)
    own = Request(section_set="full", metrics="a", no_clock_control=True, force=True)
    assert then == replace(own, launches=deep.UNKNOWN)
    with pytest.raises(MisuseError):
        deep.split(replace(asked, graphs="graph"))


def test_one_filter_serves_kernels_and_numbers():
    assert ncu.kernel_id(["_Z4gemmPf"], [7]) == "::_Z4gemmPf:7"
    assert ncu.kernel_id(["a.b", "c"], [7]) == r"::regex:^(a\.b|c)$:7"
    assert ncu.kernel_id(["a"], [7, 12]) == "::a:^(7|12)$"
    words = [
        f"{one.name}={one.value}" if one.value else one.name
        for one in ncu.tool_options(
            Request(launches=LaunchFilter("::a:1", "mangled", 3, Path("log"))), Path("r.ncu-rep")
        )
    ]
    assert words == [
        "--target-processes=all", "--nvtx", "--kernel-name-base=mangled", "--kernel-id=::a:1",
        "--launch-count=3", "--log-file=log", "--export=r.ncu-rep",
    ]  # fmt: skip


# -- What ends a run, and what is said of it


LOG = '==PROF== Connected\n==PROF== Profiling "k": 0%....100% - 8 passes\n{}\n'


@pytest.mark.parametrize(
    ("failure", "said", "overrun", "cause"),
    [
        ("", "", 0.0, ""),
        ("status 3", "", 0.0, "status 3"),
        ("status 1", "==ERROR== ERR_NVGPUCTRPERM - The user", 0.0, "ncu may not read the counters"),
        ("", "==WARNING== No kernels were profiled.", 0.0, "ncu met none of the chosen launches"),
        ("status 9", "==ERROR== Out of memory", 0.0, "ncu: Out of memory"),
        ("status 15", "", 601.0, "ncu was ended after 601 s, 2 times the budget, with 1 launches"),
    ],
)
def test_why_a_run_failed(tmp_path, failure, said, overrun, cause):
    log = tmp_path / "log"
    log.write_text(LOG.format(said))
    assert deep._cause(failure, log, overrun).startswith(cause)
    assert bool(deep._cause(failure, log, overrun)) == bool(cause)
    assert deep._cause("status 3", tmp_path / "none", 0.0) == "status 3"


SLEEPS = "import time; time.sleep(60)"
# A tool that runs a program, and writes a line when that has ended, by whatever.
TOOL = "import subprocess, sys; subprocess.run(sys.argv[2:]); open(sys.argv[1], 'w').write('kept')"
DEAF = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; import time; time.sleep(60)"


@pytest.mark.parametrize(
    ("command", "same"),
    [
        ("sh -c x", True), ("/usr/bin/sh -c x", True), ("/bin/env sh -c x", True),
        ("Subreaper -c x /usr/bin/sh", False), ("ncu --nvtx --export=r sh -c x", False),
        ("bash -c x", False), ("sh -c", False), ("sh -c x y", False), ("sh", False), ("", False),
    ],
)  # fmt: skip
def test_a_program_is_known_by_its_words(command, same):
    assert plan.is_run_as(("sh", "-c", "x"), tuple(command.split())) == same
    assert plan.is_run_as(("./sh", "-c", "x"), tuple(command.split())) == same


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["by itself", "as a script", "with a child"])
def test_a_program_that_takes_too_long_is_ended_so_that_its_tool_can_write(tmp_path, ends):
    script = tmp_path / "run"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c '{SLEEPS}'\n")
    script.chmod(0o755)
    told = f"trap 'echo told >{tmp_path}/told; kill $!; exit' TERM; sleep 60 & wait"
    program = {
        "by itself": [sys.executable, "-c", SLEEPS],
        "as a script": [str(script)],
        "with a child": ["sh", "-c", told],
    }[ends]
    limit, begun = Limit(0.5, program), time.monotonic()
    kept = tmp_path / "kept"
    status = plan.run_command(
        [sys.executable, "-c", TOOL, str(kept), *program],
        dict(os.environ),
        apart=False,
        limit=limit,
    )
    assert (status, kept.read_text(), limit.is_over) == (0, "kept", True)
    assert (tmp_path / "told").exists() == (ends == "with a child")
    assert time.monotonic() - begun < 20


@pytest.mark.slow
def test_what_ignores_signals_is_killed_with_all_below(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "GRACE_S", 0.5)
    program = [sys.executable, "-c", DEAF]
    limit, begun = Limit(0.5, program), time.monotonic()
    tool_ = f"import signal; signal.signal(15, signal.SIG_IGN); {TOOL}"
    status = plan.run_command(
        [sys.executable, "-c", tool_, str(tmp_path / "kept"), *program],
        dict(os.environ), apart=False, limit=limit,
    )  # fmt: skip
    assert status == 128 + signal.SIGKILL
    assert not (tmp_path / "kept").exists()
    assert time.monotonic() - begun < 20
    left = [
        p for p in Path("/proc").glob("[0-9]*") if plan._words_of(int(p.name)) == tuple(program)
    ]
    assert not [
        pid for pid in left if "Z" not in (pid / "stat").read_text().rpartition(")")[2].split()[0]
    ]


@pytest.mark.slow
@pytest.mark.racy("the time that it takes is compared")
def test_a_run_that_is_ended_leaves_what_ncu_wrote_if_that_is_whole(tmp_path, monkeypatch):
    from stand_in import report

    whole = tmp_path / "whole"
    whole.write_bytes(report(1, '"ID"'))
    for data, kept in ((whole.read_bytes(), True), (whole.read_bytes()[:-1], False)):
        whole.write_bytes(data)
        fake = tmp_path / "ncu"
        fake.write_text(f"#!/bin/sh\nshift\nsleep 60\ncp {whole} {tmp_path}/work.ncu-rep\n")
        fake.chmod(0o755)
        planned = Plan(
            tool=Tool("ncu", str(fake), {}),
            request=Request(),
            report=tmp_path / "work.ncu-rep",
            options=Line(["-"], []),
            program=["sleep", "60"],
            added={},
        )
        outcome = deep.measure(planned, tmp_path / "r.ncu-rep", tmp_path / "log", budget_s=0.25)
        assert "ncu was ended after" in outcome.reason
        assert outcome.took_s < 4
        assert (outcome.report, (tmp_path / "r.ncu-rep").exists()) == (
            (tmp_path / "r.ncu-rep", True) if kept else (None, False)
        )
        (tmp_path / "r.ncu-rep").unlink(missing_ok=True)
        (tmp_path / "work.ncu-rep").unlink(missing_ok=True)

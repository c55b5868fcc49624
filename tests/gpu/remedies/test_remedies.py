"""The harness of the remedies against the stand-in and the simulator: it runs, compares, and says what goes wrong.

How long the programs take on a GPU, and what advice is worth there, `check.sh` shows.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from cuda_stand_in import StandIn
from real_parts import NIGHT
from simulated import KINDS

from bridge.analyze.checks.advice import RULES
from remedies import run
from remedies.pairs import PAIRS, Pair, of, waiting
from remedies.run import Failed, Row

MS = 1_000_000
ME = ("-m", "tests.gpu.remedies.run")
SAMPLE = ("wait-each-step", "value-each-step", "blocking-copies", "checkpoints")  # all at night
RUN = [pair for pair in PAIRS if NIGHT or pair.name in SAMPLE]
NAMES = [pair.name for pair in RUN]


def row(**values: Any) -> Row:
    return Row("a pair", "GPU", **{"right_rules": ("host-bound",), **values})


def advice(rule: str, saving_ns: int = -1, ceiling_ns: int = -1) -> dict[str, Any]:
    return {"rule": rule, "saving_ns": saving_ns, "ceiling_ns": ceiling_ns}


def is_slower(trouble_ns: float, remedied_ns: float) -> bool:
    """Return whether a trouble costs more than chance may: a tenth of the run."""
    return trouble_ns - remedied_ns > 0.1 * trouble_ns


# -- The table of pairs


def test_there_are_twenty_pairs_with_known_rules_and_kinds():
    assert len({pair.name for pair in PAIRS}) == len(PAIRS) == 20
    assert {rule for pair in PAIRS for rule in pair.rules} <= {rule.name for rule in RULES}
    assert {pair.simulated for pair in PAIRS} - {""} <= {*KINDS}
    for pair in PAIRS:
        trouble, remedied = pair.trouble, pair.remedied
        assert trouble.func is remedied.func, pair.name
        assert trouble.keywords != remedied.keywords, pair.name


def test_the_readme_says_of_each_pair_where_it_runs():
    readme = (Path(__file__).parent / "README.md").read_text(encoding="utf-8").splitlines()
    stand_in = next(line for line in readme if line.startswith("| against the stand-in"))
    simulator = next(line for line in readme if line.startswith("| as a program"))
    for line, is_simulated in ((stand_in, False), (simulator, True)):
        listed = line.split("|")[2].strip().split(", ")
        assert listed == [pair.name for pair in PAIRS if bool(pair.simulated) is is_simulated]


# -- Pairs without a GPU


@pytest.fixture(scope="module")
def ran(stand_in: StandIn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the pairs."""
    folder = tmp_path_factory.mktemp("remedies")
    words = (
        "--tool",
        "cupti",
        "--stand-in",
        "--repeats",
        "3",
        "--seconds",
        "280",
        "--only",
        ",".join(NAMES),
    )
    (folder / "said").write_text(stand_in.run(folder, *ME, "out", *words).stdout, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def rows(ran: Path) -> dict[str, dict[str, Any]]:
    read = json.loads((ran / "out" / "remedies.json").read_text(encoding="utf-8"))
    return {one["name"]: one for one in read}


@pytest.mark.slow
def test_every_pair_runs_and_is_in_the_table(ran, rows):
    assert [*rows] == NAMES
    assert not [(name, one["problem"]) for name, one in rows.items() if one["problem"]]
    lines = (ran / "out" / "remedies.txt").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in lines] == ["pair", *NAMES, "PASS"]
    assert f"{len(NAMES)} of {len(NAMES)} pairs ran" in lines[-1]
    assert (ran / "said").read_text(encoding="utf-8").splitlines() == lines
    assert {path.stem for path in (ran / "out").glob("*.sqlite")} == {*NAMES}


@pytest.mark.slow
def test_the_trouble_costs_time(rows, stand_in, tmp_path):
    for pair in RUN:
        _costs_time(pair, rows[pair.name], stand_in, tmp_path / pair.name)


def _costs_time(pair: Pair, one: dict[str, Any], stand_in: StandIn, folder: Path) -> None:
    """Another program may keep the host busy: a pair of the stand-in is then timed once more."""
    assert one["captured_ns"] > 0
    assert one["saving_ns"] == one["with_ns"] - one["without_ns"]
    if pair.simulated:
        assert one["on"].startswith("simulator")
        assert one["saving_ns"] > 0
        return
    assert one["on"] == "stand-in"
    times = one["with_ns"], one["without_ns"]
    if not is_slower(*times):
        folder.mkdir()
        said = json.loads(stand_in.run(folder, *ME, "out", "--time", pair.name).stdout)["times"]
        times = median(said["trouble"]), median(said["remedied"])
    assert is_slower(*times), (pair.name, times)


@pytest.mark.slow
def test_advice_is_read(rows):
    """Of the pairs whose times no other program changes, those of the simulator, all have the advice that is right."""
    simulated = [one for one in rows.values() if one["on"].startswith("simulator")]
    assert len(simulated) == sum(bool(pair.simulated) for pair in RUN)
    for one in simulated:
        assert one["rule"] in one["right_rules"], one
        assert 0 <= one["estimate_ns"] <= one["ceiling_ns"], one
    assert rows["wait-each-step"]["rule"] == "synchronization"
    assert rows["wait-each-step"]["first_rule"] == "synchronization"


@pytest.mark.slow
def test_pairs_that_no_time_is_left_for_are_said_and_fail_nothing(stand_in, tmp_path):
    said = stand_in.run(tmp_path, *ME, "out", "--seconds", "0", "--only", "polling,logging").stdout
    lines = said.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["polling", "logging"]
    assert all(line.endswith(run.NO_TIME) for line in lines[1:3])
    assert lines[3].startswith("PASS 0 of 2 pairs ran")


@pytest.mark.slow
def test_a_tool_that_makes_no_report_is_said_and_fails(stand_in, tmp_path):
    words = ("--nsys", "false", "--only", "host-code", "--repeats", "1")
    said = stand_in.run(tmp_path, *ME, "out", *words, status=1).stdout.splitlines()
    assert "nsys made no report: false ended with 1" in said[1]
    assert said[2].startswith("FAIL 0 of 1 pairs ran")


@pytest.mark.slow
def test_what_nsys_makes_is_exported_and_judged(stand_in, tmp_path):
    """With a program in the place of nsys: it runs what it is given, and records nothing of it."""
    nsys = tmp_path / "nsys"
    nsys.write_text(
        f"""#!{sys.executable}
import shutil, subprocess, sys
words = sys.argv[1:]
if words[0] == "profile":
    assert "--capture-range=cudaProfilerApi" in words, words
    at = words.index("-o")
    report = words[at + 1]
    assert subprocess.run([*words[at + 2:], "--report", report + ".made.sqlite"]).returncode == 0
    shutil.move(report + ".made.sqlite", report + ".nsys-rep")
else:
    shutil.move(words[-1], words[words.index("-o") + 1])
    open(words[-1], "w").close()
""",
        encoding="utf-8",
    )
    nsys.chmod(0o755)
    words = ("--nsys", nsys, "--only", "wait-each-step", "--repeats", "1")
    said = stand_in.run(tmp_path, *ME, "out", *words).stdout.splitlines()
    assert said[2].startswith("PASS 1 of 1 pairs ran")
    (read,) = json.loads((tmp_path / "out" / "remedies.json").read_text(encoding="utf-8"))
    assert read["rule"] == "synchronization"
    assert read["estimate_ns"] > 0


# -- What is compared


def test_results_that_differ_are_a_failure(monkeypatch, tmp_path):
    pair = of(waiting, "waiting", {"waits": True}, {"waits": False}, "synchronization")
    options = argparse.Namespace(out=tmp_path, repeats=1)
    said = {"times": {"trouble": [5], "remedied": [3]}}
    same = said | {"results": {"trouble": [[7, 160]] * 2, "remedied": [[7, 160]] * 2}}
    monkeypatch.setattr(run, "output_of", lambda *command: json.dumps(same))
    good = row()
    run.measured(pair, good, options)
    assert (good.with_ns, good.without_ns, good.saving_ns) == (5, 3, 2)
    other = said | {"results": {"trouble": [[7, 160]] * 2, "remedied": [[7, 160], [7, 159]]}}
    monkeypatch.setattr(run, "output_of", lambda *command: json.dumps(other))
    with pytest.raises(Failed, match="the results differ"):
        run.measured(pair, row(), options)


@pytest.mark.parametrize(
    ("saving", "estimate", "within"),
    [(100, 109, True), (100, 111, False), (100, 91, True), (100, 89, False), (4, 8, True), (4, 10, False), (100, -1, False)],
)  # fmt: skip
def test_an_estimate_may_differ_by_a_tenth_or_by_little_of_the_run(saving, estimate, within):
    one = row(with_ns=1_000 * MS, without_ns=(1_000 - saving) * MS, estimate_ns=estimate * MS)
    assert one.within is within


def test_the_first_advice_that_is_right_is_held_against_the_saving():
    one = row(with_ns=100 * MS, without_ns=80 * MS)
    one.judge([
        advice("low-gpu-use"), advice("kernel-hotspot", -1, 70 * MS), advice("host-bound", 21 * MS, 30 * MS),
        advice("host-bound", 50 * MS, 60 * MS),
    ])  # fmt: skip
    assert (one.first_rule, one.rule, one.estimate_ns) == ("kernel-hotspot", "host-bound", 21 * MS)
    assert one.within
    assert not one.first_is_right
    assert not one.above_ceiling
    one.ceiling_ns = 15 * MS
    assert one.above_ceiling


def test_where_no_advice_is_right_no_estimate_is():
    one = row(with_ns=100 * MS, without_ns=80 * MS, right_rules=())
    one.judge([advice("kernel-hotspot", -1, 50 * MS)])
    assert one.within
    assert one.first_is_right
    one.judge([advice("kernel-hotspot", -1, 50 * MS), advice("synchronization", 9 * MS, 9 * MS)])
    assert (one.rule, one.estimate_ns) == ("synchronization", 9 * MS)
    assert not one.within
    assert not one.first_is_right

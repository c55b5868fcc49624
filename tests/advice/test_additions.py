"""Checks that other distributions add: in lists, text and JSON; and what is wrong with some of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command import bridge as ran
from command import done
from made_reports import report as made_report
from real_parts import ROOT

import bridge
from advice.rules import loading
from advice.story import Story
from bridge.analyze.checks.additions import all_checks
from bridge.analyze.checks.advice import RULES, Finding, advise
from bridge.analyze.checks.check import Check
from bridge.analyze.checks.quality import REASONS
from bridge.analyze.core.table import Table
from bridge.knowledge.entry_points import Addition
from bridge.plugins import every_check

Install = Callable[..., None]
EXAMPLE = (ROOT / "examples" / "plugin" / "acme_bridge.py").read_text(encoding="utf-8")


def install(folder: Path, module: str, entry_points: str, name: str = "acme-checks") -> None:
    """Install a distribution with a module `acme_checks` into a folder."""
    (folder / "acme_checks.py").write_text(module, encoding="utf-8")
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[nsight_bridge.rules]\n{entry_points}\n")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install distributions that are there for a test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(sys.modules, "acme_checks", None)  # so that it is removed at the end
    del sys.modules["acme_checks"]
    every_check.cache_clear()
    yield lambda *words: install(folder, *words)
    every_check.cache_clear()


@pytest.fixture
def documented(installed: Install) -> None:
    """Install the checks of the example."""
    installed(EXAMPLE, "small = acme_checks:TINY_MEMCPYS\nfew = acme_checks:FEW_KERNELS")


def copying(memcpys: int = 100) -> Story:
    story = Story()
    with story.op("copy"):
        for _ in range(memcpys):
            story.copy(us=10, size=100)
    return story


@pytest.mark.slow
def test_a_rule_of_another_distribution_is_one_of_advise(documented, tmp_path):
    path = copying().written(tmp_path / "r.sqlite")
    assert "tiny-memcpys  " in done("advise", "--list").splitlines()[-1]
    assert json.loads(done("advise", "--list", "--format", "json"))["rows"][-1]["name"] == (
        "tiny-memcpys"
    )
    for words in ((), ("--rule", "tiny-memcpys")):
        said = done("advise", path, *words)
        assert "Many tiny memcpys (tiny-memcpys)\n   memcpys smaller than 4 KiB: 100\n" in said
        assert "→ pack them into one buffer" in said
    document = json.loads(done("advise", path, "--format", "json"))
    [one] = [one for one in document["advice"] if one["rule"] == "tiny-memcpys"]
    assert one["figures"] == {"memcpys": 100}
    [run] = json.loads(done("advise", path, "--format", "sarif"))["runs"]
    [result] = [one for one in run["results"] if one["ruleId"] == "tiny-memcpys"]
    rule = run["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], rule["properties"]["source"]) == ("tiny-memcpys", "acme-checks")
    few = copying(99).written(tmp_path / "few.sqlite")
    document = json.loads(done("advise", few, "--format", "json"))
    assert "tiny-memcpys" in document["passed"]


@pytest.mark.slow
def test_a_reason_of_another_distribution_is_one_of_doctor(documented, tmp_path):
    path = made_report(tmp_path / "r.sqlite")
    [before] = re.findall(r"\d+ kernels: too few for statistics", done("doctor", path))
    document = json.loads(done("doctor", path, "--format", "json"))
    [one] = [one for one in document["reasons"] if one["reason"] == "few-kernels"]
    assert before.startswith(f"{one['value']} kernels")
    assert (one["cost"], one["unit"], one["remedy"]) == (10, "count", "Capture more steps.")
    assert document["score"] == bridge.load(path).quality.score
    done("html", path, "-o", tmp_path / "page.html")
    assert f'"quality":{{"score":{document["score"]},' in (tmp_path / "page.html").read_text()


@pytest.mark.slow
def test_causes_are_listed_once_beside_rules_of_others(documented, tmp_path):
    attributed = loading(2_000).load(tmp_path).attributed
    added = advise(attributed, every_check().rules, 0).advice
    assert [one.rule.name for one in added] == [
        one.rule.name for one in advise(attributed, worth=0).advice
    ]


BROKEN = {  # an entry point of a module, and what is said of it
    "acme_checks:absent": "AttributeError: module 'acme_checks' has no attribute 'absent'",
    "acme_absent:check": "ModuleNotFoundError: No module named 'acme_absent'",
    "acme_checks:text": "'a text' is not a Check",
    "acme_checks:casts": "there is a check casts already",
    "acme_checks:greedy": "greedy: no need 'wrok'; did you mean work? there are",
    "acme_checks:nameless": "TypeError: unhashable type: 'list'",
}
MODULE = """
from bridge.analyze.checks.check import Check
def check(name, *needs):
    return Check(name=name, title="", text="{n}", remedy="", needs=needs, find=lambda _: 1 / 0)
text, casts, greedy, nameless = "a text", check("casts"), check("greedy", "wrok"), check([])
good = [check("good"), check("better")]
"""


@pytest.mark.parametrize("value", BROKEN)
def test_what_is_wrong_is_one_warning(value, installed, caplog):
    installed(MODULE, f"acme = {value}\ngood = acme_checks:good")
    assert [rule.name for rule in every_check().rules] == [
        *(r.name for r in RULES),
        "good",
        "better",
    ]
    assert every_check().reasons == REASONS
    [line] = caplog.messages
    assert line.startswith(f"warning: entry point acme of acme-checks: {BROKEN[value]}")


@pytest.mark.slow
def test_a_module_that_ends_the_program_does_not_end_the_command(installed, tmp_path):
    installed("raise SystemExit('no\\nway')\n", "acme = acme_checks:check")
    program = "from bridge.__main__ import command; command('bridge')"
    for words, said in (("--list", 1), ("--help", 0)):
        answer = subprocess.run(
            [sys.executable, "-c", program, "advise", words],
            env={"PYTHONPATH": f"{tmp_path / 'site'}:{ROOT}"},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        expected = "warning: entry point acme of acme-checks: SystemExit: no way\n"
        assert answer.stderr == expected * said


@pytest.mark.parametrize(
    ("find", "said"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda _: "x", "TypeError: find returned 'x', not a Finding"),
        (lambda _: [Finding({}, None)], "KeyError: 'n'"),
        (
            lambda _: Finding({"n": np.nan}, Table()),
            "TypeError: find returned a number that is not finite",
        ),
        (
            lambda _: Finding({"n": 1}, pd.DataFrame({"a": [b""]})),
            "TypeError: column a holds |S1 values, not numbers or texts",
        ),
        (lambda _: iter([None]), ""),
        (lambda _: None, ""),
    ],
)
@pytest.mark.slow
def test_a_check_that_fails_finds_nothing(find, said, tmp_path, caplog):
    check = Check(name="acme", title="", text="{n}", remedy="", find=find, timeline=False)
    rules = all_checks([Addition("acme-checks", "entry point acme", check)]).rules
    advised = advise(loading(10).load(tmp_path).attributed, rules)
    assert "acme" in [rule.name for rule in advised.passed]
    assert caplog.messages == ([f"warning: check acme of acme-checks: {said}"] if said else [])


@pytest.mark.slow
def test_evidence_may_be_a_data_frame(tmp_path):
    found = Finding({"n": np.int64(3)}, pd.DataFrame({"op": ["a", None], "ns": [1.5, np.nan]}))
    check = Check(
        name="acme", title="", text="{n}", remedy="", find=lambda _: found, timeline=False
    )
    rules = all_checks([Addition("acme-checks", "entry point acme", check)]).rules
    [one] = [
        piece.finding
        for piece in advise(loading(10).load(tmp_path).attributed, rules, 0).advice
        if piece.rule.name == "acme"
    ]
    assert (one.figures, type(one.figures["n"])) == ({"n": 3}, int)
    assert one.evidence.records() == [{"op": "a", "ns": 1.5}, {"op": "", "ns": -1.0}]


@pytest.mark.slow
def test_others_are_asked_only_for_names_that_are_not_built_in(tmp_path, monkeypatch):
    def refuse(_group: str) -> None:
        raise AssertionError("entry points were loaded")

    monkeypatch.setattr("bridge.knowledge.entry_points.load_entry_points", refuse)
    every_check.cache_clear()
    report = loading(10).load(tmp_path)
    assert report.advise(["casts", "data-loading"])
    with pytest.raises(AssertionError):
        report.advise(["acme"])


def test_an_unknown_name_is_still_refused(installed, tmp_path):
    path = copying(1).written(tmp_path / "r.sqlite")
    result = ran("advise", path, "--rule", "cast")
    assert result.exit_code == 2
    assert "no rule 'cast'; did you mean casts?" in result.stderr

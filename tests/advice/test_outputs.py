"""The forms that advice is given in: text, Markdown, JSON, SARIF."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from real_parts import ROOT, corpus_reports, named
from sarif_pydantic import Sarif

import bridge
from advice.rules import FIRES, loading
from advice.story import Story
from bridge.analyze.checks.advice import RULES
from bridge.analyze.checks.advice.needs import NEEDS
from bridge.cli import main

Ask = Callable[..., Result]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Ask `bridge advise` of a program that waits for its data."""
    report = loading(2_000).written(tmp_path / "a report.sqlite")

    def asked(*words: str, status: int = 0) -> Result:
        done = CliRunner().invoke(main, ["advise", str(report), *words])
        assert done.exit_code == status, done.output
        return done

    return asked


@pytest.mark.slow
def test_text(ask):
    said = ask().stdout
    assert said.startswith("GPU 0 A100: busy ")
    # In each of ten steps: 2 to begin ops, 2000 and 2 of loading, 2 of a call, 1000 of kernels, of which the last ends
    # the step.
    assert re.search(
        r"^1 finding in a run of 30\.070 ms \(\d+ rules checked\)$", said, re.MULTILINE
    )
    assert (
        "1. The run waits for data (data-loading)\n   the run waits for enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__ (poll)"
        " for 20.020 ms, 66.6 % of it; in all it takes 20.020 ms\n"
        "   could save about 18.018 ms, at most 20.020 ms (66.6 % of the run)\n" in said
    )
    assert "   → give the loader more workers (num_workers)" in said
    assert "not checked (needs ops of PyTorch): made-on-host, " in said


@pytest.mark.slow
def test_json_says_all_of_it(ask):
    document = json.loads(ask("--format", "json").stdout)
    assert document["format"] == "bridge.advice/1"
    assert document["source"] == ["a report.sqlite"]
    listed = [one["rule"] for part in ("advice", "small", "not_judged") for one in document[part]]
    listed += [rule for one in document["advice"] for rule in one["same_time"]]
    assert sorted([*listed, *document["passed"]]) == sorted(rule.name for rule in RULES)
    first = document["advice"][0]
    assert first["rule"] == "data-loading"
    assert first["figures"]["host_ns"] == 10 * 2_002_000
    assert (first["evidence"][0]["within"], first["evidence"][0]["count"]) == ("poll", 10)
    assert (
        first["evidence"][0]["op"]
        == "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    )
    assert first["share"] == pytest.approx(first["ceiling_ns"] / document["wall_ns"])


@pytest.mark.slow
def test_markdown(ask):
    said = ask("--format", "md", "--rows", "1").stdout
    assert "### The run waits for data\n" in said
    assert "| op | path | within | total | count | example |\n" in said


@pytest.mark.slow
def test_sarif_is_lawful(ask, tmp_path):
    said = Sarif.model_validate_json(ask("--format", "sarif").stdout)
    [run] = said.runs
    assert [rule.id for rule in run.tool.driver.rules] == [rule.name for rule in RULES]
    first = run.results[0]
    assert (first.rule_id, first.level.value) == ("data-loading", "warning")
    assert run.tool.driver.rules[first.rule_index].id == "data-loading"
    [place] = first.locations
    assert place.physical_location.artifact_location.uri == "a%20report.sqlite"
    raw = json.loads(ask("--format", "sarif").stdout)["runs"][0]
    [logical] = raw["results"][0]["locations"][0]["logicalLocations"]
    assert logical["fullyQualifiedName"].startswith("step/enumerate(DataLoader)")
    [invocation] = raw["invocations"]
    assert all(
        "to record this: " in one["message"]["text"]
        for one in invocation["toolExecutionNotifications"]
    )


@pytest.mark.slow
def test_the_form_is_told_by_the_suffix(ask, tmp_path):
    for name, begins in (
        ("a.json", "{"),
        ("a.sarif", "{"),
        ("a.md", "GPU 0 A100: busy"),
        ("a.txt", "GPU 0 A100: busy"),
    ):
        ask("-o", str(tmp_path / name))
        assert (tmp_path / name).read_text().startswith(begins)
    ask("-o", str(tmp_path / "a.json"), status=1)
    ask("-o", str(tmp_path / "a.json"), "--force")


@pytest.mark.slow
def test_only_some_rules(ask):
    said = ask("--rule", "casts", "--rule", "data-loading", "--format", "json").stdout
    document = json.loads(said)
    assert [one["rule"] for one in document["advice"]] == ["data-loading"]
    assert document["passed"] == ["casts"]
    assert "no rule 'cast'; did you mean casts?" in ask("--rule", "cast", status=2).stderr


@pytest.mark.slow
def test_what_is_small_is_named_alone(ask):
    document = json.loads(ask("--over", "100%", "--format", "json").stdout)
    small = {one["rule"] for one in document["small"]}
    assert "data-loading" in small
    assert not {one["rule"] for one in document["advice"]} & small
    for wrong in ("-1", "200%", "much"):
        assert "write a share of the run, as 1%" in ask("--over", wrong, status=2).stderr


@pytest.mark.slow
def test_of_some_steps_alone(ask):
    document = json.loads(ask("--step", "2..4", "--format", "json").stdout)
    [loads] = [one for one in document["advice"] if one["rule"] == "data-loading"]
    assert loads["evidence"][0]["count"] == 3
    assert document["wall_ns"] == 3 * 3_007_000  # from the begin of step 2 to the end of step 4
    assert all(one["ceiling_ns"] <= document["wall_ns"] for one in document["advice"])


def test_the_list_says_when_each_fires(ask):
    assert [line.split()[0] for line in ask("--list").stdout.splitlines()] == [
        r.name for r in RULES
    ]


@pytest.mark.slow
def test_nothing_is_concluded_without_data(tmp_path):
    """Ranges alone: no rule on work can be judged, and each says what would record it; ranges may tell of lost work."""
    story = Story(described=False)
    with story.op("host"):
        story.rest(100)
    advised = story.load(tmp_path).advise()
    assert [one.rule.name for one in advised.advice] == ["no-device-work"]
    assert [rule.name for rule in advised.passed] == ["not-recorded"]
    judged = {rule.name for rule in RULES} - {"no-device-work", "not-recorded"}
    assert {one.rule.name for one in advised.not_judged} == judged
    assert all(one.record for one in advised.not_judged)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small-grids", "no-tensor-cores", "single-precision"])
def test_a_gpu_that_is_not_described_judges_nothing_on_it(name, tmp_path):
    story = FIRES[name]()
    del story.tables["gpus"][:]
    advised = story.load(tmp_path).advise([name])
    [one] = advised.not_judged
    assert "describes its GPUs" in one.record


def test_the_docs_list_all_rules_as_they_are():
    page = (ROOT / "docs" / "advise.md").read_text(encoding="utf-8")
    for rule in RULES:
        row = f"| `{rule.name}` | {rule.when} | {rule.estimate} | {rule.source} | {', '.join(rule.needs)} |\n"
        assert row in page
    for name, need in NEEDS.items():
        assert f"| {name}: {need.missing} | {need.record} |\n" in page
    rules = page.partition("## The rules")[2]
    assert rules.count("\n| `") == len(RULES)


VERDICTS = tomllib.loads((Path(__file__).parent / "verdicts.toml").read_text(encoding="utf-8"))
NO_PROFILES = ("failed-export", "no-kernels-osrt")


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/*.sqlite", "kineto/*"))
def test_the_advice_on_real_profiles_is_what_was_checked_by_hand(path):
    name = path.name.partition(".")[0]
    if name in NO_PROFILES:
        pytest.skip("nothing recorded in this file, by design")
    advised = bridge.load(path).advise()
    listed = dict.fromkeys(one.rule.name for one in advised.advice)  # of some there are several
    assert ", ".join(listed) == VERDICTS.get(name, {}).get("rules", "")
    for one in (*advised.advice, *advised.small):
        assert one.finding.saving_ns <= max(one.finding.ceiling_ns, -1)
        assert one.finding.ceiling_ns <= advised.wall_ns * 1.01


@pytest.mark.slow
def test_the_verdicts_are_on_profiles_alone(corpus):
    assert set(VERDICTS) <= {named(path) for path in corpus.glob("*/*.*")}
    assert len(VERDICTS) > 20

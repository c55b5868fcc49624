"""Holds what the commands say of real profiles to what an experienced engineer says of them: `expected.toml`.

Each expectation was written from the data before the code that meets it. A profile of `expected.toml` is run once through
`summary`, `advise`, `doctor` and `report --by step`; each aspect is a test of its own, so that a miss names what is missed.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from command import bridge
from read_once import reading_once

Table = dict[str, Any]

EXPECTED: Table = tomllib.loads(Path(__file__).with_name("expected.toml").read_text("utf-8"))
TOPICS: Table = EXPECTED["topics"]
PROFILES: Table = EXPECTED["profiles"]
NOT_YET_JUDGED: list[str] = EXPECTED["not_yet_judged"]
ONE_CAUSE: list[list[str]] = EXPECTED["one_cause"]["groups"]
TOPIC_OF = {rule: name for name, topic in TOPICS.items() for rule in topic["rules"]}
KEYS = {
    "file", "program", "refused", "headline_must", "first_finding", "op", "alternatives", "counted_once", "steps", "loops",
    "loops_also", "adopted_share", "diagnostics", "printed", "quote", "quality", "must_not", "must_not_first", "evidence",
}  # fmt: skip
TOLERANCE = 0.005  # of shares of GPU time
MOST = 10  # times what the first finding saves
NO_SAVING = {"capture_incomplete", "no_device_work"}  # topics that come first whatever they save
WARNING = 2  # of ENUM_DIAGNOSTIC_SEVERITY_LEVEL
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Answers:
    """What the commands say of one profile, each asked once."""

    path: Path

    def text(self, *words: str) -> str:
        result = bridge(*words, self.path)
        said = re.sub(r"\s+", " ", result.stdout + " " + result.stderr)
        return said.replace(str(self.path), "REPORT").lower()

    def document(self, *words: str) -> Table:
        """Return the JSON document of a command that must work."""
        result = bridge(*words, "--format", "json", self.path)
        assert result.exit_code == 0, result.stderr
        document: Table = json.loads(result.stdout)
        return document

    @cached_property
    def diagnosis(self) -> str:
        """What is read first: the first paragraph of the summary, or the line of the error."""
        result = bridge("summary", self.path)
        said = (
            result.stderr.splitlines()[-1] if result.exit_code else result.stdout.split("\n\n")[0]
        )
        return re.sub(r"\s+", " ", said).replace(str(self.path), "REPORT").lower()

    @cached_property
    def advice(self) -> list[Table]:
        findings: list[Table] = self.document("advise")["advice"]
        return findings

    @cached_property
    def steps(self) -> str:
        return self.text("report", "--by", "step")

    @cached_property
    def doctor(self) -> str:
        return self.text("doctor")

    @cached_property
    def everything(self) -> str:
        return " ".join([self.text("summary"), self.text("advise"), self.doctor, self.steps])


@pytest.fixture(scope="module")
def answers(
    corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Answers]]:
    """Ask of the profile itself, or of a copy where the corpus lost rows that the judgement rests on."""
    asked: dict[str, Answers] = {}

    def ask(name: str) -> Answers:
        if name not in asked:
            profile = PROFILES[name]
            path = corpus / profile["file"]
            lost = profile.get("diagnostics", []), profile.get("printed", [])
            if any(lost):
                copy = tmp_path_factory.mktemp(name) / path.name
                shutil.copyfile(path, copy)
                restore(copy, *lost)
                path = copy
            asked[name] = Answers(path)
        return asked[name]

    with reading_once():
        yield ask


def restore(path: Path, diagnostics: list[str], printed: list[str]) -> None:
    """Put back the rows of DIAGNOSTIC_EVENT and ProcessStreams whose texts the file still holds."""
    with closing(sqlite3.connect(path)) as file, file:
        tables = {name for (name,) in file.execute("SELECT name FROM sqlite_master")}
        process = (
            file.execute("SELECT globalPid FROM PROCESSES").fetchone()[0]
            if "PROCESSES" in tables
            else 0
        )
        file.execute(
            "CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER, timestampType INTEGER, source INTEGER,"
            " severity INTEGER, textId INTEGER, globalPid INTEGER)"
        )
        file.execute(
            "CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER)"
        )
        for text in diagnostics:
            row = (0, 1, 1, WARNING, string_of(file, text), process)
            file.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, ?, ?, ?, ?, ?)", row)
        for text in printed:
            stream = file.execute(
                "SELECT min(id) FROM StringIds WHERE value LIKE '%std___%.log'"
            ).fetchone()[0]
            file.execute(
                "INSERT INTO ProcessStreams VALUES (?, ?, ?)",
                (process, stream, string_of(file, text)),
            )


def string_of(file: sqlite3.Connection, fragment: str) -> int:
    """Return the id of the one string that holds the fragment."""
    ids = file.execute("SELECT id FROM StringIds WHERE instr(value, ?)", (fragment,)).fetchall()
    assert len(ids) == 1, (fragment, ids)
    return int(ids[0][0])


def with_key(key: str) -> list[str]:
    return [name for name, profile in PROFILES.items() if key in profile]


def working() -> list[str]:
    return [name for name, profile in PROFILES.items() if not profile.get("refused")]


def said_by(finding: Table) -> str:
    """All that a finding says, its rows included."""
    return re.sub(r"\s+", " ", json.dumps(finding, ensure_ascii=False))


def test_each_profile_of_the_corpus_is_judged_and_no_other(corpus):
    there = {f"{path.parent.name}/{path.name}" for path in corpus.glob("nsys/*.sqlite")}
    there |= {f"{path.parent.name}/{path.name}" for path in corpus.glob("kineto/*.gz")}
    judged = {profile["file"] for profile in PROFILES.values()}
    assert there <= judged | {*NOT_YET_JUDGED}
    assert not judged & {*NOT_YET_JUDGED}
    assert all((corpus / file).exists() for file in judged | {*NOT_YET_JUDGED})
    if NOT_YET_JUDGED:
        pytest.skip(f"not yet judged: {', '.join(Path(file).stem for file in NOT_YET_JUDGED)}")


@pytest.mark.parametrize("name", PROFILES)
def test_the_judgement_keeps_to_its_own_words(name):
    profile = PROFILES[name]
    assert set(profile) <= KEYS
    assert {profile["first_finding"], *profile["alternatives"]} <= set(TOPICS)
    assert profile["evidence"].strip()


@pytest.mark.parametrize("name", PROFILES)
def test_the_headline_says_what_matters(name, answers):
    diagnosis = answers(name).diagnosis
    missed = [must for must in PROFILES[name]["headline_must"] if not re.search(must, diagnosis)]
    assert not missed, f"{missed} in: {diagnosis}"


@pytest.mark.parametrize("name", working())
def test_the_first_finding_is_what_its_owner_should_do_first(name, answers):
    profile, advice = PROFILES[name], answers(name).advice
    right = [profile["first_finding"], *profile["alternatives"]]
    assert advice, f"no finding, but {right}"
    first = advice[0]
    assert first["rule"] in TOPIC_OF, f"name the topic of the rule {first['rule']} in expected.toml"
    topic = TOPIC_OF[first["rule"]]
    assert topic in right, f"{first['rule']} ({topic}) instead of {right}: {first['text']}"
    if topic == profile["first_finding"]:
        assert re.search(profile["op"], said_by(first)), f"{profile['op']} in: {said_by(first)}"


@pytest.mark.parametrize("name", working())
def test_a_small_saving_does_not_hide_a_large_one(name, answers):
    advice = answers(name).advice
    if not advice or TOPIC_OF.get(advice[0]["rule"]) in NO_SAVING:
        return
    first = saving(advice[0])
    larger = [
        (other["rule"], other["ceiling_ns"])
        for other in advice[1:]
        if TOPIC_OF.get(other["rule"]) != "symptom"
        and other["rule"] != "kernel-hotspot"  # nobody knows how much faster a kernel can be
        and other["ceiling_ns"] > MOST * first
    ]
    assert not larger, f"{advice[0]['rule']} saves {first} ns; behind it: {larger}"


def saving(finding: Table) -> int:
    """Return what a finding saves: by its estimate, or at most where there is none."""
    estimate, ceiling = int(finding["saving_ns"]), int(finding["ceiling_ns"])
    return estimate if estimate >= 0 else ceiling


@pytest.mark.parametrize("name", working())
def test_no_cause_is_counted_twice(name, answers):
    profile, rules = PROFILES[name], Counter(finding["rule"] for finding in answers(name).advice)
    groups = ONE_CAUSE + profile.get("counted_once", [])
    twice = [both for group in groups if len(both := [rule for rule in group if rules[rule]]) > 1]
    assert not twice, f"one cause, several findings: {twice}"


@pytest.mark.parametrize("name", with_key("steps"))
def test_the_steps_are_those_of_the_program(name, answers):
    profile, said = PROFILES[name], answers(name)
    if profile.get("refused"):
        assert bridge("report", "--by", "step", said.path).exit_code == 1
        return
    steps, rows = profile["steps"], said.document("report", "--by", "step")["rows"]
    counts = set(Counter(row["pid"] for row in rows).values()) or {0}
    assert counts <= set(steps["count"]), f"{counts} steps per process instead of {steps['count']}"
    if "found_by" in steps:
        assert {row["found_by"] for row in rows} == {steps["found_by"]}
    assert re.search(steps.get("pattern", "").lower(), said.steps), (
        f"{steps['pattern']} in: {said.steps}"
    )


@pytest.mark.parametrize("name", with_key("loops"))
def test_the_loops_have_the_iterations_that_the_program_ran(name, answers):
    profile, loops = PROFILES[name], answers(name).document("summary").get("iterations")
    assert isinstance(loops, list), f"no list of loops: {loops}"
    counts = [loop["count"] for loop in loops]
    right = [profile["loops"], profile.get("loops_also", profile["loops"])]
    assert counts in right, f"{counts} iterations instead of {profile['loops']}"


@pytest.mark.parametrize("name", with_key("adopted_share"))
def test_a_range_has_what_other_threads_launch_for_it(name, answers):
    share = PROFILES[name]["adopted_share"]
    document = answers(name).document("report", "--by", "op")
    totals = document["totals"]
    in_ops = totals["attributed_ns"] / totals["gpu_ns"]
    assert in_ops == pytest.approx(share["in_ops"] + share["without_op"], abs=TOLERANCE)
    if "range" in share:
        [row] = [row for row in document["rows"] if row["op"] == share["range"]]
        total = row["gpu_total_ns"] / totals["gpu_ns"]
        assert total == pytest.approx(share["total"], abs=TOLERANCE)


@pytest.mark.parametrize("name", with_key("quote"))
def test_words_of_the_profiler_and_of_the_program_are_quoted(name, answers):
    said = answers(name)
    place = {"first": said.diagnosis, "doctor": said.doctor}
    missed = [
        q for q in PROFILES[name]["quote"] if not re.search(q["text"].lower(), place[q["where"]])
    ]
    assert not missed, f"{missed} in: {[place[q['where']] for q in missed]}"


@pytest.mark.parametrize("name", with_key("quality"))
def test_the_score_of_the_capture_is_that_of_what_it_can_tell(name, answers):
    profile, said = PROFILES[name], answers(name)
    if profile.get("refused"):
        assert not re.search(r"\d+ of 100", said.doctor)
        return
    score = said.document("doctor").get("score")
    if profile["quality"] == "none":
        assert score is None, f"a score of {score}, where nothing ran on a device"
        assert not re.search(r"\d+ of 100", said.everything)
    else:
        low, high = profile["quality"]
        assert score is not None
        assert low <= score <= high


@pytest.mark.parametrize("name", with_key("must_not"))
def test_nothing_is_said_that_is_wrong(name, answers):
    wrong = [
        what for what in PROFILES[name]["must_not"] if re.search(what, answers(name).everything)
    ]
    assert not wrong, f"says {wrong}"


@pytest.mark.parametrize("name", with_key("must_not_first"))
def test_nothing_is_said_first_that_misleads(name, answers):
    said = answers(name)
    first = said.diagnosis + " " + " ".join(said_by(finding).lower() for finding in said.advice[:1])
    wrong = [what for what in PROFILES[name]["must_not_first"] if re.search(what, first)]
    assert not wrong, f"says {wrong} first"

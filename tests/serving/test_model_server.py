"""A server as a user would write it, examples/model_server.py: what it logged, beside what is read of its batches."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from captures import exported, profiled, with_bridge
from docs.pages import DOCS, blocks, bridge_lines, run
from real_parts import ROOT

from serving.test_batches import check_requests, served, table

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("asked_server.py")
NOTED = 2_000_000  # ns that the server takes to note the begin and the end of a batch, mostly;
DELAYED = 200_000_000  # and at the most, on a machine that does other things
Log = dict[str, Any]


@pytest.fixture(scope="module")
def recorded(model_server: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, Path]:
    """Record the server by a session; give its log and the recording."""
    folder = tmp_path_factory.mktemp("server")
    words = [sys.executable, PROGRAM, folder / "log.json", folder / "server.jsonl"]
    subprocess.run(words, env=with_bridge(), check=True, timeout=120)
    return json.loads((folder / "log.json").read_text()), folder / "server.jsonl"


def check_tables(log: Log, path: Path) -> None:
    rows = {row["request"]: row for row in table(path, "request")}
    batches = Counter(name for _, tokens in log["batches"] for name in tokens)
    assert {name: row["batches"] for name, row in rows.items()} == batches
    later = []
    for answer in log["answers"]:
        row = rows[answer["id"]]
        found = row["prefill_tokens"], row["decode_tokens"]
        assert found == (answer["prompt"], len(answer["tokens"]) - 1)  # the prefill gives one
        later.append(answer["first_token_ms"] * 1e6 - row["first_token_ns"])
    assert min(later) >= -1_000  # the server tells whole microseconds
    assert median(later) <= NOTED
    assert max(later) <= DELAYED
    phases = {row["phase"]: (row["batches"], row["tokens"]) for row in table(path, "token")}
    assert phases == {
        phase: (
            sum(p == phase for p, _ in log["batches"]),
            sum(sum(tokens.values()) for p, tokens in log["batches"] if p == phase),
        )
        for phase in ("prefill", "decode")
    }
    by = {(row["phase"], row["op"]): row["calls"] for row in table(path, "phase,op")}
    assert {phase: by[phase, "batch"] for phase in phases} == {p: n for p, (n, _) in phases.items()}


def test_answers_are_those_of_each_prompt_alone(recorded):
    log, _ = recorded
    for answer in log["answers"]:
        assert answer["tokens"] == answer["alone"]
    assert len({answer["id"] for answer in log["answers"]}) == len(log["answers"])
    assert log["refused"] == 422


def test_requests_join_and_leave_between_batches(recorded):
    log, _ = recorded
    decoding = [set(tokens) for phase, tokens in log["batches"] if phase == "decode"]
    assert max(map(len, decoding)) == 4
    assert sum(bool(later - one) for one, later in pairwise(decoding)) >= 3  # joined
    assert sum(bool(one - later) for one, later in pairwise(decoding)) >= 3  # left
    first = {
        name: n for n, (_, tokens) in reversed([*enumerate(log["batches"])]) for name in tokens
    }
    assert all(log["batches"][n][0] == "prefill" for n in first.values())


@pytest.mark.racy("two clocks of a busy machine are compared")
def test_a_session_knows_what_the_server_logged(recorded):
    check_tables(*recorded)


def test_nsys_knows_what_the_server_logged(model_server, nsys, tmp_path):
    profiled(nsys, tmp_path, sys.executable, PROGRAM, tmp_path / "log.json")
    log = json.loads((tmp_path / "log.json").read_text())
    check_tables(log, exported(nsys, tmp_path / "report.nsys-rep"))


def test_gpu_time_of_its_batches_is_divided_in_whole_ns(recorded, tmp_path):
    """There is no GPU here: the batches that it ran get kernels of drawn lengths."""
    log, _ = recorded
    rng = random.Random(3)
    batches = [
        (phase, tokens, [rng.randint(1, 90) for _ in range(rng.randint(1, 5))])
        for phase, tokens in log["batches"]
    ]
    path = served(tmp_path / "r.sqlite", batches, outside=7)
    check_requests(table(path, "request"), batches, outside=7)
    whole = sum(sum(kernels) for *_, kernels in batches) + 7
    for by in ("request", "token"):
        assert sum(row["gpu_ns"] for row in table(path, by)) == whole
    for phase in ("prefill", "decode"):
        of_phase = sum(sum(kernels) for p, _, kernels in batches if p == phase)
        found = {r["phase"]: r["total_ns"] for r in table(path, "phase,kind")}
        assert found[phase] == of_phase


# -- docs/serving.md

ROW = re.compile(r"r\d|prefill|decode")
WORDS = [slice(1, 4), slice(0, 3, 2), slice(0, 2)]  # of a row of each table: what no chance decides


def rows_of(printed: str, words: slice) -> list[list[str]]:
    rows = (line.split() for line in printed.splitlines() if ROW.match(line))
    return sorted(row[words] for row in rows)


def test_the_page_shows_what_its_commands_print(model_server, nsys, tmp_path):
    marked = [b for b in blocks((DOCS / "serving.md").read_text("utf-8")) if "server-" in b[0]]
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    printed = [
        "".join(run(line, tmp_path) for line in bridge_lines(body))
        if kind == "server-run"
        else body
        for kind, body in marked
    ]
    assert [kind for kind, _ in marked] == ["server-run", *["server-run", "server-output"] * 3]
    for found, shown, words in zip(printed[1::2], printed[2::2], WORDS, strict=True):
        assert rows_of(shown, words) == rows_of(found, words) != []

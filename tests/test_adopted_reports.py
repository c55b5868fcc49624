"""Reports of the idiom ``with nvtx.range("backward"): loss.backward()``, and of phases alone, by every command."""

import json
import re

import pytest
from command import bridge, done
from made_reports import hand_annotated, phases_alone

from bridge.scale.windows import aggregation
from bridge.scale.windows import window as part

pytestmark = pytest.mark.slow
NOTE = "only start/end ranges: shown as ops"


@pytest.fixture(scope="module")
def idiom(tmp_path_factory):
    return hand_annotated(tmp_path_factory.mktemp("idiom") / "idiom.sqlite")


@pytest.fixture(scope="module")
def phases(tmp_path_factory):
    return phases_alone(tmp_path_factory.mktemp("phases") / "phases.sqlite")


@pytest.fixture
def small_memory(monkeypatch):
    """Let every table take three windows of the least memory."""
    monkeypatch.setattr(aggregation, "peak_memory", lambda: 0)  # the tests' own process is larger
    for name, value in (("BASE", 0), ("MANY", 0), ("LEAST", 1), ("PER_CALL", 0)):
        monkeypatch.setattr(part, name, value)
    for name in ("PER_NAME", "PER_NAME_OF_MANY"):
        monkeypatch.setattr(part, name, dict.fromkeys(part.PER_NAME, (0, 0)))
    monkeypatch.setattr(part, "memory_needed", lambda _path, _tables, **_: 2_500)


def totals(path, *options):
    document = json.loads(done("report", path, "--by", "op", "--format", "json", *options))
    rows = {row["op"]: (row["gpu_self_ns"], row["gpu_total_ns"]) for row in document["rows"]}
    return document["totals"], rows


def test_backward_has_the_work_of_autograd(idiom):
    accounted, rows = totals(idiom)
    assert rows == {"step": (0, 1_200), "forward": (300, 300), "backward": (900, 900)}
    assert accounted["adopted"] == {"activities": 3, "gpu_ns": 900}
    assert accounted["unattributed"] == {"no_range": {"activities": 3, "gpu_ns": 150}}
    command = "report", idiom, "--by", "op", "--columns", "gpu_self,adopted", "--format", "json"
    adopted = {row["op"]: row["adopted_ns"] for row in json.loads(done(*command))["rows"]}
    assert adopted == {"step": 0, "forward": 0, "backward": 900}
    assert done(*command, "--workers", "2") == done(*command)
    assert "88.9 % in 2 ops (66.7 % adopted from other threads)" in done(
        "report", idiom, "--by", "op"
    )


@pytest.mark.parametrize("options", [("--no-adopt",), ("--names", "raw")])
def test_the_strict_view_adopts_nothing(idiom, options):
    accounted, rows = totals(idiom, *options)
    assert rows["backward"] == (0, 0)
    assert "adopted" not in accounted
    assert accounted["attributed_ns"] == 300


@pytest.mark.parametrize("engines", [(2,), (2, 3)])
def test_the_work_of_threads_without_a_name_is_told_by_its_pattern(tmp_path, engines, small_memory):
    path = hand_annotated(tmp_path / "x.sqlite", engines=engines, named=False)
    accounted, rows = totals(path)
    assert rows["backward"] == (900 * len(engines),) * 2
    assert accounted["unattributed"] == {"no_range": {"activities": 3, "gpu_ns": 150}}
    refused = bridge("report", path, "--by", "op", "--memory-limit", "1KB")
    assert refused.exit_code == 1
    assert "--no-adopt adopts none" in refused.stderr
    command = "report", path, "--by", "op", "--no-adopt", "--format", "json"
    assert done(*command) == done(*command, "--memory-limit", "1KB")


def test_where_two_threads_wait_the_reason_is_said(tmp_path):
    path = hand_annotated(tmp_path / "x.sqlite", engines=(2, 3), other="load")
    accounted, rows = totals(path)
    assert rows["backward"] == (0, 0)
    assert accounted["unattributed"]["ambiguous"] == {"activities": 6, "gpu_ns": 1_800}
    text = done("why", path, "backward_kernel")
    assert "no op (ambiguous): autograd launched it while several other threads" in text
    assert "emit_nvtx()" in text
    assert "ambiguous 6" in done("report", path, "--by", "op")


def test_windows_workers_and_the_store_say_the_same(idiom, tmp_path, small_memory):
    for by in ("op", "op-kernel", "path", "op,direction"):
        command = "report", idiom, "--by", by, "--format", "json"
        whole = done(*command)
        assert done(*command, "--workers", "2") == whole
        assert done(*command, "--memory-limit", "1KB") == whole
        done("import", idiom, "--db", tmp_path / "b.db")
        stored = json.loads(
            done("report", "--db", tmp_path / "b.db", "--by", by, "--format", "json")
        )
        assert stored == json.loads(whole)


def test_why_trace_and_page_mark_adopted_work(idiom, tmp_path):
    text = done("why", idiom, "backward_kernel")
    assert "op: backward, by adopted: autograd launched it" in text
    done("trace", idiom, "-o", tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text("utf-8"))["traceEvents"]
    rules = {e["name"]: e["args"].get("rule") for e in events if e.get("cat") == "kernel"}
    assert rules == {"backward_kernel": "adopted", "forward_kernel": None, "worker_kernel": None}
    done("html", idiom, "-o", tmp_path / "p.html")
    assert re.search(r'"adopted": ?\{"activities": ?3', (tmp_path / "p.html").read_text("utf-8"))


def test_phases_alone_are_ops_and_every_command_says_so(phases, tmp_path):
    accounted, rows = totals(phases)
    assert rows == {"epoch": (100, 130), "request": (30, 30)}
    assert accounted["unattributed"] == {}
    trace, page = tmp_path / "t.json", tmp_path / "p.html"
    for words in (
        ("report", "--by", "op"), ("advise",), ("doctor",), ("summary",), ("why", "inner_kernel"),
        ("trace", "-o", trace), ("html", "-o", page),
    ):  # fmt: skip
        result = bridge(words[0], phases, *words[1:])
        assert result.exit_code == 0, result.stderr
        assert NOTE in result.stderr, words
    assert NOTE in page.read_text("utf-8")
    assert "op: request, by phase: the start/end range" in done("why", phases, "inner_kernel")
    events = json.loads(trace.read_text("utf-8"))["traceEvents"]
    kernels = {e["name"]: e["args"] for e in events if e.get("cat") == "kernel"}
    assert kernels["inner_kernel"]["rule"] == "phase"
    assert kernels["inner_kernel"]["path"] == "epoch/request"


def test_the_strict_view_keeps_phases_as_phases(phases):
    accounted, rows = totals(phases, "--names", "raw")
    assert rows == {}
    assert accounted["attributed_ns"] == 0


def test_phases_alone_workers_windows_and_the_store(phases, tmp_path, small_memory):
    command = "report", phases, "--by", "op", "--format", "json"
    assert done(*command, "--workers", "2") == done(*command)
    refused = bridge(*command, "--memory-limit", "1KB")
    assert refused.exit_code == 1
    assert "its start/end ranges are ops" in refused.stderr
    raw = *command, "--names", "raw"
    assert done(*raw, "--memory-limit", "1KB") == done(*raw)
    done("import", phases, "--db", tmp_path / "b.db")
    stored = json.loads(done("report", "--db", tmp_path / "b.db", *command[2:]))
    assert stored == json.loads(done(*command))

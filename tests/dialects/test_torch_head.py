"""What a trace in PyTorch's manner says of the run, before its events."""

import gzip
import json
import re
from dataclasses import replace

import made_reports
import pytest
from command import bridge as command

import bridge
from bridge.analyze.draw.dialects.torch import torch as drawn
from bridge.render import chrome


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Give a report, and its timeline as PyTorch's profiler would draw it."""
    path = made_reports.small(tmp_path_factory.mktemp("small") / "one.sqlite", steps=1)
    joined = bridge.load(path)
    return joined.capture, drawn(joined.attributed)


@pytest.mark.parametrize(
    ("said", "rank", "size"),
    [
        ({"rank": 3, "world_size": 8}, 3, 8),
        ({"rank": 3}, 3, 4),
        ({}, 0, 1),
        ({"world_size": "unset"}, 0, 1),
    ],
)
def test_the_world_is_as_large_as_the_program_said_or_a_single_process(small, said, rank, size):
    report, timeline = small
    [facts] = report.facts
    report = replace(report, facts=(replace(facts, metadata=said),))
    trace = json.loads(b"".join(chrome.torch(timeline, report)))
    assert trace["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": size}


def test_metadata_is_beside_the_events_as_pytorch_writes_it(small, tmp_path):
    report, timeline = small
    [facts] = report.facts
    said = {"trace_id": "AB45", "host": "node1", "note": "a text", "config": {"lr": 0.1}, "rank": 2,
            "schemaVersion": 9, "traceEvents": "mine"}  # fmt: skip
    report = replace(report, facts=(replace(facts, metadata=said),))
    text = b"".join(chrome.torch(timeline, report))
    trace = json.loads(text)
    kept = {"trace_id": "AB45", "host_name": "node1", "note": "a text", "config": {"lr": 0.1}}
    assert trace.items() >= kept.items()
    assert (trace["schemaVersion"], "rank" in trace) == (1, False)
    assert isinstance(trace["traceEvents"], list)
    path = tmp_path / "t.json"
    path.write_bytes(text)
    [read] = bridge.load(path).capture.facts
    assert read.metadata.items() >= {"trace_id": "AB45", "host": "node1", "note": "a text"}.items()


def test_a_session_keeps_its_trace_id_and_metadata(tmp_path):
    recording, path = tmp_path / "r.jsonl", tmp_path / "t.json"
    with bridge.profile(path=recording, level=0, metadata={"note": "mine"}), bridge.nvtx_op("f"):
        pass
    done = command("trace", recording, "-o", path, "--dialect", "torch")
    assert done.exit_code == 0, done.output
    trace = json.loads(path.read_text())
    assert trace["trace_id"] == bridge.load(recording).capture.facts[0].metadata["trace_id"]
    assert trace["note"] == "mine"


HTA_RANK = re.compile(r'"rank":\s+(\d+)')  # how HolisticTraceAnalysis finds it: its first match


def test_files_of_one_folder_have_ranks_of_their_own(tmp_path):
    path, folder = tmp_path / "two.sqlite", tmp_path / "traces"
    folder.mkdir()
    made_reports.report(path, steps=1)
    joined = bridge.load(path)
    texts = [gzip.decompress(f.read_bytes()).decode() for f in joined.export_tensorboard(folder)]
    infos = [json.loads(text)["distributedInfo"] for text in texts]
    assert [(info["rank"], info["world_size"]) for info in infos] == [(0, 2), (1, 2)]
    assert [HTA_RANK.search(text)[1] for text in texts] == ["0", "1"]


def test_metadata_does_not_hide_the_rank(small):
    report, timeline = small
    [facts] = report.facts
    said = {"rank": 2, "config": {"rank": 7}, "distributed": {"pg_config": [{"rank": 9}]}}
    report = replace(report, facts=(replace(facts, metadata=said),))
    assert HTA_RANK.search(b"".join(chrome.torch(timeline, report)).decode())[1] == "2"

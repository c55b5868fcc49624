"""What a trace in PyTorch's manner says of the run, before its events."""

import json
from dataclasses import replace

import made_reports
import pytest

import bridge
from bridge.analyze.dialects.torch import torch as drawn
from bridge.render import chrome


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """Give a report, and its timeline as PyTorch's profiler would draw it."""
    path = made_reports.small(tmp_path_factory.mktemp("small") / "one.sqlite", steps=1)
    joined = bridge.load(path)
    return joined.capture, drawn(joined.attributed)


@pytest.mark.parametrize(
    ("said", "rank", "size"),
    [({"rank": 3, "world_size": 8}, 3, 8), ({}, 0, 1), ({"world_size": "unset"}, 0, 1)],
)
def test_the_world_is_as_large_as_the_program_said_or_a_single_process(small, said, rank, size):
    report, timeline = small
    [facts] = report.facts
    report = replace(report, facts=(replace(facts, metadata=said),))
    trace = json.loads(b"".join(chrome.torch(timeline, report)))
    assert trace["distributedInfo"] == {"backend": "nccl", "rank": rank, "world_size": size}

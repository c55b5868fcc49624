"""A report drawn as PyTorch's profiler draws it and read again, and one that went through the store, say the same."""

from __future__ import annotations

import made
import pytest
from command import bridge as run
from command import done
from read_once import reading_once
from real_parts import NIGHT
from witness import kineto

import bridge

pytestmark = pytest.mark.slow


WITHOUT_STEPS = ("nvfuser", "pytorch-2gpu-before", "pytorch-2gpu-window", "pytorch-backward", "transformer-annotated", "two-processes")  # fmt: skip
ON_CHANGES = ("nvfuser", "pytorch-2gpu-window", "pytorch-backward", "two-processes")
VIEWS = ("op", "kernel", "op-kernel", "memcpy")


def same(one, other) -> bool:
    return len(one) == len(other) and (not len(one) or one.equals(other))


@pytest.fixture
def again(corpus, tmp_path):
    def drawn(name):
        joined = bridge.load(corpus / "nsys" / f"{name}.sqlite", domains=["all"])
        joined.export_trace(tmp_path / "t.json.gz", dialect="torch")
        return joined, bridge.load(tmp_path / "t.json.gz")

    return drawn


@pytest.mark.parametrize("name", WITHOUT_STEPS if NIGHT else ON_CHANGES)
def test_a_report_drawn_and_read_again_has_every_figure(name, again):
    one, other = again(name)
    for view in VIEWS:
        assert same(one.by(view), other.by(view)), view
    for kind in ("ranges", "launches", "activities"):
        assert len(getattr(one.capture, kind)) == len(getattr(other.capture, kind))
    for column in ("grid_x", "block_x", "registers", "bytes", "stream"):
        pair = (sorted(j.capture.activities[column]) for j in (one, other))
        assert next(pair) == next(pair)


def test_steps_are_called_as_the_profiler_calls_them(again):
    """Ranges that we take for steps are drawn as ProfilerStep#N, all else is as it was."""
    one, other = again("mnist-training")
    for view in ("kernel", "memcpy"):
        assert same(one.by(view), other.by(view))
    ours, theirs = (j.by("op").set_index("op") for j in (one, other))
    steps = sorted(set(ours.index) - set(theirs.index))
    assert steps[:2] == ["Batch 0", "Batch 1"]
    assert set(theirs.index) - set(ours.index) == {"ProfilerStep"}
    assert theirs.loc["ProfilerStep", "gpu_total_ns"] == ours.loc[steps, "gpu_total_ns"].sum()
    others = ours.index.difference(steps)
    assert ours.loc[others, "gpu_self_ns"].equals(theirs.loc[others, "gpu_self_ns"])


def test_unified_memorys_copies_lose_that_word(again):
    """PyTorch's name of a copy has no place for it."""
    one, other = again("memcpy-heavy")
    assert same(one.by("kernel"), other.by("kernel"))
    ours, theirs = (j.by("memcpy") for j in (one, other))
    unified = ours.assign(operation=[name.replace("Unified ", "") for name in ours["operation"]])
    assert set(unified["operation"]) == set(theirs["operation"])
    assert unified["total_ns"].tolist() == theirs["total_ns"].tolist()


def test_graphs_recorded_as_a_whole_are_graphs_again(again):
    one, other = again("torch-compile-graphs")
    graphs = [j.capture.activities.to_pandas().query("kind == 'graph'") for j in (one, other)]
    assert len(graphs[0]) == len(graphs[1]) > 0
    assert sorted(graphs[0]["name"]) == sorted(graphs[1]["name"])


@pytest.mark.parametrize("name", ["alexnet", "sampled-rank0", "gpu-user-annotation"])
def test_a_run_of_the_store_says_what_the_trace_says(name, corpus, folder):
    path = kineto.path(corpus, name)
    with reading_once():
        done("import", path)
        for view in (
            "op",
            "kernel",
            "memcpy",
            "op-kernel",
            "range",
            "wait",
            "module",
            "forward-op",
        ):
            words = ["report", "--by", view, "--format", "json", "--top", "1000000"]
            assert done(*words) == done(*words, path)
        assert "already" in run("import", path).output


@pytest.mark.parametrize(("name", "number"), [("alexnet", "#50"), ("sampled-rank0", "#50")])
def test_every_command_takes_a_trace(name, number, corpus, folder):
    path = kineto.path(corpus, name)
    with reading_once():
        for words in (["trace", "-o", "t.json.gz"], ["trace", "-o", "t.pftrace"], ["html", "-o", "t.html"], ["flame", "-o", "t.txt"]):  # fmt: skip
            done(words[0], path, *words[1:])
            assert (folder / words[-1]).stat().st_size > 1_000
        assert "aten::" in done("why", path, number)


def test_two_ranks_are_one_report(tmp_path):
    files = [
        made.write(tmp_path / f"{rank}.json", made.trace(made.small(), distributedInfo={"rank": rank, "world_size": 2}))
        for rank in (0, 1)
    ]  # fmt: skip
    joined = bridge.load(*files)
    table = joined.by("op").set_index("op")
    assert table.loc["aten::mm", ["calls", "kernels", "gpu_self_ns"]].tolist() == [2, 2, 24_690]
    assert [facts.metadata["rank"] for facts in joined.capture.facts] == [0, 1]

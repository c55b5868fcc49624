"""`bridge trace`: which part is drawn, in which form, and what is said of what cannot be."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from command import assert_misused, assert_refused, bridge

from bridge.analyze.run.ranks.members import rank_of
from bridge.cli import demo_report
from bridge.importers.capture import Facts


@pytest.fixture
def demo_here(demo, folder):
    return Path(shutil.copy(demo, folder))


def events(path):
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--from", "abc"], "'abc' is no time: write 1.5s, 20ms, 300us or 400ns"),
        (["--from", "2s", "--to", "1s"], "the window ends before it starts"),
        (["--from", "100s"], "no events in that window; the report lasts"),
        (["--to", "9223372036.9s", "--from", "9223372036s"], "no events in that window"),
        (["--step", "77"], "no such step: the report has"),
        (["--step", "x"], "'x': write a step, as 3, or several, as 3..5"),
        (["--range", "nothing like it"], "no range 'nothing like it'"),
    ],
)
def test_what_cannot_be_drawn_is_said_in_one_line(demo_here, options, said):
    result = bridge("trace", demo_here, "-o", "t.json.gz", *options)
    assert_misused(result, said)
    assert not (demo_here.parent / "t.json.gz").exists()


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("t.txt", [], "a trace is written as .json, .json.gz, .pftrace"),
        (
            "t.pftrace",
            ["--dialect", "torch"],
            "a trace of dialect torch is written as .json, .json.gz",
        ),
    ],
)
def test_other_files_are_refused(demo_here, name, options, said):
    assert_misused(bridge("trace", demo_here, "-o", name, *options), said)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["native", "torch", "raf", "mxnet", "megengine"])
def test_every_dialect_can_be_slim_and_of_one_step(demo_here, dialect):
    def drawn(*options):
        result = bridge(
            "trace", demo_here, "-o", "t.json.gz", "--dialect", dialect, "--force", *options
        )
        assert result.exit_code == 0, result.stderr
        return events(demo_here.parent / "t.json.gz")

    whole, slim, step = drawn(), drawn("--slim"), drawn("--step", "1")
    assert len(whole) > len(step) > 10
    assert len(whole) > len(slim) > 10
    names = {e["name"] for e in slim if e["ph"] in "XB"}
    assert not any(name.startswith("cuda") for name in names)
    assert not [e for e in slim if e["ph"] in "sfCbi"]


@pytest.mark.slow
def test_the_longest_slices_are_kept_and_the_others_counted(demo_here):
    result = bridge("trace", demo_here, "-o", "t.json.gz", "--max-events", "9")
    assert "shorter slices left out" in result.stderr
    assert sum(e["ph"] == "X" for e in events(demo_here.parent / "t.json.gz")) <= 9


@pytest.mark.slow
def test_a_folder_for_tensorboard(demo_here):
    (demo_here.parent / "logs").mkdir()
    result = bridge("trace", demo_here, "-o", "logs", "--dialect", "torch")
    assert "1 traces; open them with tensorboard --logdir logs" in result.stderr
    [file] = (demo_here.parent / "logs").iterdir()
    assert file.name.endswith(".pt.trace.json.gz")


class Named:
    def __init__(self, source, **metadata):
        self.source, self.facts = (source,), (Facts(metadata=metadata),)


@pytest.mark.parametrize(
    ("source", "metadata", "rank"),
    [
        ("rank3.sqlite", {}, 3), ("run_rank-12.nsys-rep", {}, 12), ("Rank 7.sqlite", {}, 7), ("frank3.sqlite", {}, None),
        ("report.sqlite", {"rank": 5}, 5), ("rank3.sqlite", {"rank": 5}, 5), ("rank3.sqlite", {"rank": "x"}, 3),
        ("report.sqlite", {"rank": None}, None), ("report.sqlite", {"rank": True}, None),
    ],
)  # fmt: skip
def test_ranks(source, metadata, rank):
    assert rank_of(Named(source, **metadata), 0) == rank


@pytest.mark.slow
def test_several_reports_are_one_trace_with_their_ranks(folder):
    for n in (1, 2):
        demo_report.make(folder / f"rank{n}.sqlite")
    result = bridge("trace", "rank1.sqlite", "rank2.sqlite", "-o", "t.json.gz")
    assert result.exit_code == 0, result.stderr
    names = {e["args"]["name"] for e in events(folder / "t.json.gz") if e["name"] == "process_name"}
    assert any("rank 1 in rank1.sqlite" in name for name in names)
    assert any("rank 2 in rank2.sqlite" in name for name in names)


def test_stacks_of_nothing_are_refused(folder, corpus):
    report = corpus / "nsys" / "cloverleaf-no-nvtx.sqlite"
    result = bridge("flame", report, "-o", "x.folded", "--weight", "cpu")
    assert_refused(result, "nothing to stack, no CPU time", "it has --weight gpu")
    assert not (folder / "x.folded").exists()

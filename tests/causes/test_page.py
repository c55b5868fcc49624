"""What docs/causes.md says of real profiles, and the words it lists, are what comes out."""

import re
from itertools import pairwise

from real_parts import ROOT

import bridge.report
from bridge.analyze.causes import causes
from bridge.analyze.causes.gaps import WORDS as CAUSES
from bridge.analyze.causes.host_timeline import WORDS
from bridge.analyze.columns.breakdown import CAUSES as COLUMNS
from bridge.analyze.tables.breakdown import by_op

PAGE = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
REPORTS = {
    "aten::copy_`, two ranks": "pytorch-2gpu-after",
    "computing softmax`": "transformer-annotated",
}
SHOWN = ("host_ns", "api_ns", "sync_ns", "launch_gap_ns", "starved_ns", "gpu_self_ns")


def cells(heading):
    """Return the rows of the table whose first heading is this."""
    table = PAGE.split(f"\n| {heading} |")[1].split("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_the_ops_of_the_page_are_as_it_says(corpus):
    for name, *shown, word, _ in cells("op | host"):
        report = REPORTS.get(name.lstrip("`"), "mnist-training")
        joined = bridge.report.load(corpus / "nsys" / f"{report}.sqlite").attributed
        at = joined.ops.index(name.split("`")[1])
        row = {c: v[at] for c, v in causes(joined, joined.node_op, len(joined.ops)).items()}
        row["gpu_self_ns"] = by_op(joined).set_index("op").loc[joined.ops[at], "gpu_self_ns"]
        assert row["bound"] == word.strip("`")
        for column, said in zip(SHOWN, shown, strict=True):
            ms = row[column] / 1e6
            digits = len(said.partition(".")[2])
            assert 0 < ms < 0.01 if said == "<0.01" else round(ms, digits) == float(said), (
                name,
                column,
            )


def test_the_gap_worked_out_by_hand_adds_up():
    rows = [[cell.replace(" ", "") for cell in row] for row in cells("from | in")]
    edges = [int(row[0]) for row in rows] + [6368669024]
    assert [int(row[2]) for row in rows] == [b - a for a, b in pairwise(edges)]
    assert {row[3] for row in rows} == {"dataloading", "hostcode", "memcpycalls"}


def test_the_page_lists_all_words():
    first = [row[0].strip("`") for row in cells("cause | the host")]
    assert sorted(first) == sorted(CAUSES)
    assert ", ".join(CAUSES) in re.sub(r"\s+", " ", PAGE)
    assert [row[0].strip("`") for row in cells("word | the figure that is compared")] == list(WORDS)
    assert [row[0].strip("`") for row in cells("column | is")] == list(COLUMNS)

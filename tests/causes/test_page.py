"""The words that docs/causes.md lists are those of the code; ops of real profiles have the causes worked out."""

import pytest
from real_parts import ROOT

import bridge.report
from bridge.analyze.run.causes import CAUSES as COLUMNS
from bridge.analyze.run.causes import causes
from bridge.analyze.run.causes.host_timeline import WORDS
from bridge.analyze.run.idle.causes import WORDS as CAUSES
from bridge.analyze.tables.breakdown import by_op

PAGE = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")


def cells(heading):
    """Return the rows of the table whose first heading is this."""
    table = PAGE.split(f"\n| {heading} |")[1].split("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def test_the_page_lists_all_words():
    causes = [row[0].strip("`") for row in cells("cause | at that instant")]
    assert causes == [*CAUSES]  # of several the upper one counts
    assert [row[0].strip("`") for row in cells("word | the figure that is compared")] == list(WORDS)
    assert [row[0].strip("`") for row in cells("column | is")] == list(COLUMNS)


SHOWN = ("host_ns", "api_ns", "sync_ns", "launch_gap_ns", "starved_ns", "gpu_self_ns")


@pytest.mark.parametrize(
    ("name", "op", "ms", "bound"),
    [
        # 1.8 s in the queue: the host is far ahead
        ("mnist-training", "aten::convolution_backward", "27.8 10.9 0 1.8 0 129.0", "GPU"),
        # waits for the data loader
        ("mnist-training", "aten::copy_", "1.4 38.9 4.4 17.4 8408.3 30.4", "starved"),
        # pageable copies wait for earlier kernels
        ("pytorch-2gpu-after", "aten::copy_", "18.6 27.0 289.8 56.4 1.2 63.8", "sync"),
        # first launches load kernels
        ("transformer-annotated", "computing softmax", "8.6 30.0 0 38.4 0.4 1.1", "launch"),
    ],
)
def test_the_causes_of_ops_of_real_profiles(corpus, name, op, ms, bound):
    joined = bridge.report.load(corpus / "nsys" / f"{name}.sqlite").attributed
    at = joined.ops.index(op)
    row = {c: v[at] for c, v in causes(joined, joined.node_op, len(joined.ops)).items()}
    row["gpu_self_ns"] = by_op(joined).to_pandas().set_index("op").loc[op, "gpu_self_ns"]
    assert row["bound"] == bound
    assert [f"{row[column] / 1e6:.{len(said.partition('.')[2])}f}" for column, said in zip(SHOWN, ms.split(), strict=True)] == ms.split()  # fmt: skip

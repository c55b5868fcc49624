"""How often adoption is right, held to the real profiles whose sequence numbers tell who called the backward pass."""

import pytest
from real_parts import ROOT

from bridge import importers
from join.adoption_confidence import MODES, confidence, table

REPORTS = "nsys/mnist-training.sqlite", "nsys/pytorch-backward.sqlite"
TRACES = "kineto/llm-ns-resolution.pt.trace.json.gz", "kineto/sampled-rank0.pt.trace.json.gz"


@pytest.mark.slow
def test_the_documented_confidence_is_the_measured_one(corpus):
    documented = (ROOT / "docs" / "attribution.md").read_text("utf-8")
    rows = table([corpus / name for name in (*REPORTS, *TRACES)])
    assert len(rows) == len(REPORTS) + len(TRACES) + 1
    for row in rows:
        assert row in documented


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_report_that_does_not_tell_who_called_tells_nothing(corpus, mode):
    capture = importers.load(corpus / "nsys" / "pytorch-forward.sqlite")
    assert confidence(capture, mode).known == 0

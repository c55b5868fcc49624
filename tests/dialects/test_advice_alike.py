"""What TensorBoard's PyTorch plugin recommends on real traces, and what we do."""

from __future__ import annotations

import pytest
import real_parts

import bridge

pytestmark = pytest.mark.slow


OURS = {  # by how each of its recommendations begins
    "This run has high time cost on input data loading.": "single-process-loader",
    "GPU 0 has low utilization.": "low-gpu-use",
    "Kernels with ": "no-tensor-cores",
    "This run has high time cost on communication.": "communication",
}
TRACES = {
    "alexnet": ["low-gpu-use"],
    "gpu-user-annotation": ["low-gpu-use"],
    "llm-ns-resolution": [],
    "resnet50-workers0": ["single-process-loader"],
    "resnet50-workers4": [],
    "sampled-rank0": ["low-gpu-use"],
}
AT_NIGHT = {"resnet50-workers4", "llm-ns-resolution"}  # the largest, of which nothing is said
WE_SAY_MORE = {
    "llm-ns-resolution": {
        "no-tensor-cores"
    },  # its ops that could use them lack convolution_backward
    "sampled-rank0": {"communication"},  # it judges that by steps alone
}


@pytest.mark.parametrize("name", TRACES if real_parts.NIGHT else ["alexnet", "resnet50-workers0"])
def test_tensorboard_recommends_the_same(name, corpus, tool_says):
    """What stands above is what it says: no change of ours alters it."""
    file = corpus / "kineto" / f"{name}.pt.trace.json.gz"
    said = tool_says("in_tensorboard_advice.py", file)
    theirs = [next(ours for text, ours in OURS.items() if one.startswith(text)) for one in said]
    assert theirs == TRACES[name]


@pytest.mark.parametrize(
    "name", [name for name in TRACES if real_parts.NIGHT or name not in AT_NIGHT]
)
def test_we_say_what_tensorboard_does(name, corpus):
    advised = bridge.load(corpus / "kineto" / f"{name}.pt.trace.json.gz").advise(worth=0)
    ours = {name for one in advised.advice for name in (one.rule.name, *one.same_time)}
    ours &= set(OURS.values())
    assert ours - WE_SAY_MORE.get(name, set()) == set(TRACES[name])

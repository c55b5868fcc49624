"""The loops of real programs, against what they printed, and the times that they measured themselves."""

import json

import numpy as np
import pytest
from command import done

import bridge
from bridge.analyze.run.parts import iteration_times
from bridge.join.loops import ITERATIONS, PARTS, Evidence, loops_of

COUNTS = {
    "cloverleaf-no-nvtx": [10],  # time steps
    "cupy-power-iteration": [44],  # ranges Step 0 to 10 …
    "gaussian-no-nvtx": [4095],  # columns of a matrix of 4096
    "gtls-no-nvtx": [26],  # durations, the last with 36 of 100 periods
    "jacobi-4gpu-host": [1000, 1000],  # "1000 iterations", on one GPU, then on two
    "jacobi-4gpu-peer": [1000, 1000],
    "jacobi-coherent-memory": [1000],
    "jacobi-mpi-two-loops": [1000, 1000],
    "llm-128-ranges": [4],  # "1 warmup iterations", "3 benchmark iterations"
    "llm-48-layers": [4],
    "llm-init-first": [4],
    "llm-no-nvtx": [10],  # "10 benchmark iterations"; the capture begins behind the warm-up
    "memcpy-heavy": [],
    "mnist-training": [59],  # ranges Batch 0 … Batch 58
    "no-kernels-api": [],
    "nvfuser": [],
    "pytorch-2gpu-after": [],  # blocks of one pass
    "pytorch-2gpu-before": [],
    "pytorch-2gpu-window": [],
    "pytorch-backward": [],  # one forward and backward pass
    "pytorch-ddp": [],
    "pytorch-forward": [],
    "pytorch-hand-annotated": [5, 10],  # "5 warm-up steps", "forward pass only for 10 steps"
    "pytorch-optimizer": [],
    "saxpy-mpi": [5],  # "Number of iterations: 5"
    "simplex-streams": [],  # rounds of one to dozens of searches are not alike
    "tensorrt-ranges-only": [188],  # frames
    "torch-compile-graphs": [10],  # launches of a graph
    "transformer-annotated": [5],
    "two-processes": [],
    "vector-add": [4],
}
PRINTED_MS = {"llm-48-layers": 26.26, "llm-128-ranges": 841.38, "pytorch-hand-annotated": 67.57}

pytestmark = pytest.mark.slow


def load(corpus, name):
    return bridge.load(corpus / "nsys" / f"{name}.sqlite").attributed


@pytest.mark.parametrize("name", COUNTS)
def test_the_iterations_of_a_program(name, corpus):
    assert [loop.count for loop in load(corpus, name).loops.iterations] == COUNTS[name]


@pytest.mark.parametrize("name", PRINTED_MS)
def test_the_time_of_an_iteration_is_that_which_the_program_printed(name, corpus):
    time = iteration_times(load(corpus, name))[-1]
    assert time.ns == pytest.approx(PRINTED_MS[name] * 1e6, rel=0.01)


@pytest.mark.parametrize(
    ("name", "warm_up"), [("llm-48-layers", [1]), ("pytorch-hand-annotated", [5, 0])]
)
def test_the_warm_up_of_a_program(name, warm_up, corpus):
    assert [loop.warm_up for loop in load(corpus, name).loops.iterations] == warm_up


@pytest.mark.parametrize("name", ["pytorch-2gpu-before", "pytorch-2gpu-after"])
def test_the_blocks_of_a_pass_are_parts_of_both_ranks(name, corpus):
    joined = load(corpus, name)
    [loop] = joined.loops.loops
    assert loop.kind == PARTS
    assert loop.name.startswith("FSDP::pre_forward (blocks.*")
    assert len(set(loop.steps.process.tolist())) == 2
    assert "what repeats: FSDP::pre_forward (blocks.*" in joined.why_no_iterations()


@pytest.mark.parametrize(
    ("name", "counts"), [("mnist-training", [59, 10]), ("cupy-power-iteration", [43])]
)
def test_iterations_that_ranges_name_are_found_without_them(name, counts, corpus):
    """All, or all but the first, which begins with other work; and the batches of a validation."""
    joined = load(corpus, name)
    named, done_ = joined.steps, joined.attribution
    evidence = Evidence.of(joined.capture, done_.nesting, done_.launch, joined.duration)
    loops = [
        loop
        for loop in loops_of(evidence, named.select([]), by_work=True).loops
        if loop.kind == ITERATIONS
    ]
    assert [loop.count for loop in loops] in ([counts[0]], counts)
    steps = loops[0].steps
    begun = np.searchsorted(named.start, (steps.start + steps.end) // 2)
    assert (np.diff(begun)[:-1] == 1).all()  # one of those that are named begins in each


def test_the_summary_has_an_entry_per_loop(corpus):
    path = corpus / "nsys" / "jacobi-mpi-two-loops.sqlite"
    iterations = json.loads(done("summary", path, "--format", "json"))["iterations"]
    assert [one["count"] for one in iterations] == [1000, 1000]
    rows = json.loads(done("report", path, "--by", "loop", "--format", "json"))["rows"]
    assert [row["median_ns"] for row in rows] == pytest.approx(
        [one["iteration_ns"] for one in iterations]
    )

"""Steps found by what each iteration issues once, on made programs whose iterations are known."""

import random
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.programs import Program, attributed
from witness.attribution import Activity, Call, Range

from bridge.analyze.checks.summary import Summary
from bridge.analyze.run.steps import by_step, paces
from bridge.importers import frames
from bridge.join.attributed import AttributedCapture

PROCESS = 7 << 24
MAIN = PROCESS | 1
COPY = "[CUDA memcpy Device-to-Host]"
APART = 100  # ns from call to call


WAIT = "cudaDeviceSynchronize"


def kind_of(name):
    return "memcpy" if name == COPY else "graph" if name.startswith("graph") else "kernel"


def made(names, ranges=(), *, waits=()):
    """Make a program that issues work of these names, and waits after some.

    ``ranges`` are pairs of rows, with a name; ``waits`` are rows.
    """
    calls = [Call(0, PROCESS, MAIN, n + 1, APART * n, APART * n + 50) for n in range(len(names))]
    work = [
        Activity(0, PROCESS, n + 1, APART * n + 60, APART * n + 100, kind_of(name), name)
        for n, name in enumerate(names)
    ]
    opened = [
        Range(0, PROCESS, MAIN, APART * a - 10, APART * b - 20, name) for a, b, name in ranges
    ]
    calls += [
        Call(0, PROCESS, MAIN, len(names) + n + 1, APART * n + 60, APART * n + 90) for n in waits
    ]
    joined = attributed(Program(opened, calls, work, [one.op for one in opened]))
    launches = joined.capture.launches
    is_wait = launches["correlation"].to_numpy() > len(names)
    column = frames.names(is_wait.astype(np.int64), ["cudaLaunchKernel", WAIT])
    capture = replace(joined.capture, launches=launches.assign(name=column))
    return AttributedCapture.of(capture)


def found(names, ranges=(), *, waits=()):
    """Give the names that each step issues."""
    steps = made(names, ranges, waits=waits).iterations
    times = zip(steps.start.tolist(), steps.end.tolist(), strict=True)
    return [
        [name for n, name in enumerate(names) if start <= APART * n < end] for start, end in times
    ]


BODY = ["gemm", "relu", "norm"]
LAYERS = ["attention", "mlp", "add"] * 12
PASS = ["embed", *LAYERS, "head", "loss"]
INNER = random.Random(1)


def test_ten_equal_iterations_without_a_wait():
    assert found(BODY * 10) == [BODY] * 10
    assert found(["fill", "fill", *BODY * 10, COPY]) == [BODY] * 10


def test_a_range_around_iterations_alone_does_not_hide_them():
    assert found(BODY * 10, [(0, 30, "benchmark")]) == [BODY] * 10


def test_ten_launches_of_a_graph():
    assert found(["graph 4"] * 10) == [["graph 4"]] * 10
    assert found(["fill", "graph 4"] * 10) == [["fill", "graph 4"]] * 10
    assert found(["x", *["graph 4"] * 10, "y"], [(0, 12, "run")]) == [["graph 4"]] * 10
    assert not found(["gemm"] * 10)  # one kernel again and again


def test_two_loops_of_a_thousand():
    joined = made(["fill", *["gemm", "relu", "scale"] * 1000, "pack", *["fft", "scale"] * 1000])
    table = by_step(joined)
    assert table["loop"].tolist() == ["gemm"] * 1000 + ["fft"] * 1000
    assert table["activities"].tolist() == [3] * 1000 + [2] * 1000
    assert table["step"].tolist() == list(range(2000))
    first, second = paces(table)
    assert (first.steps, first.median_ns) == (1000, 3 * APART)
    assert (second.steps, second.median_ns) == (1000, 2 * APART)
    assert second.home[-1] == "fft"
    [iteration] = Summary.of(joined).iterations  # that of the loop that takes longest
    assert iteration.steps == 1000
    assert iteration.iteration_ns == 3 * APART


def test_two_loops_of_the_same_kernels_in_other_numbers():
    table = by_step(made(["gemm", "relu"] * 1000 + ["gemm", "relu", "relu"] * 1000))
    assert table["activities"].tolist() == [2] * 1000 + [3] * 1000
    assert table["loop"].unique().tolist() == ["gemm", "gemm (2)"]


def test_inner_loops_may_differ_in_length():
    bodies = [["begin", *["search"] * INNER.randint(1, 9), "end"] for _ in range(50)]
    assert found([*chain.from_iterable(bodies)]) == bodies


def test_every_second_iteration_may_differ_in_part():
    sweeps = [["begin", *BODY, *"bcdef", f"sweep {n % 2}", "end"] for n in range(10)]
    assert found([*chain.from_iterable(sweeps)]) == sweeps


def test_set_up_that_issues_the_same_kernel_is_no_iteration():
    body = ["halo", "pdv", "halo", "flux"]
    steps = found(["halo", "start", *body * 10])
    assert len(steps) == 10
    assert all(sorted(step) == sorted(body) for step in steps[:-1])


@pytest.mark.parametrize("times", [3, 10])
def test_layers_are_no_steps_where_passes_repeat(times):
    assert found(PASS * times) == [PASS] * times


@pytest.mark.parametrize("times", [1, 2])
def test_layers_are_no_steps_where_they_are_all_that_repeats(times):
    assert not found(PASS * times)


def test_layers_of_a_pass_within_a_range():
    assert found(LAYERS) == [["attention", "mlp", "add"]] * 12  # nothing tells them from iterations
    names = ["embed", *LAYERS]  # nothing follows them, but the range holds other work, too
    assert not found(names, [(0, len(names), "forward")])
    assert "within one range" in made(names, [(0, len(names), "forward")]).why_no_iterations()


def test_forward_and_backward_layers_of_one_pass():
    backward = ["mlp_backward", "attention_backward"] * 12
    assert not found(["embed", *LAYERS, "loss", *backward, "adam", "adam"])
    training = ["embed", *LAYERS, "loss", *backward, "adam", "adam"]
    assert found(training * 5) == [training] * 5


def test_layers_in_each_of_which_the_host_takes_part_are_taken_for_steps():
    """Nothing tells them from iterations."""
    waits = [at for at, name in enumerate(LAYERS) if name == "add"]
    assert len(found([*LAYERS, *["loss"] * 5], waits=waits)) in {11, 12}


def test_a_wait_after_each_activity_does_not_make_steps_of_layers():
    training = PASS * 5
    steps = found(training, waits=range(len(training)))
    assert [sorted(step) for step in steps] == [sorted(PASS)] * 5


def test_many_sections_are_no_layers_whatever_follows():
    assert len(found(BODY * 100 + ["reduce"] * 5)) == 100
    assert not found(BODY * 20 + ["reduce"] * 5)
    assert "other kernels follow" in made(BODY * 20 + ["reduce"] * 5).why_no_iterations()


def test_what_is_in_no_order_has_no_steps():
    names = [INNER.choice("abcd") for _ in range(500)]
    assert not found(names)
    assert made(names).why_no_iterations().endswith("no kernel recurs at regular distance")


def test_loops_interrupted_by_other_work_end_before_it():
    other = [f"other {n}" for n in range(40)]
    steps = found([*BODY * 50, *other, *BODY * 50])
    assert steps == [BODY] * 100


@pytest.mark.slow
@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=8),
    st.integers(3, 20),
    st.lists(st.sampled_from("xyz"), max_size=3),
)
def test_a_body_between_two_kernels_of_its_own_is_found(body, times, before):
    body = ["begin", *body, "end"]
    assert found([*before, *body * times]) == [body] * times

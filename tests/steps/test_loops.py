"""Iterations found by what recurs, on made programs whose iterations are known."""

import random
from dataclasses import fields, replace
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
from bridge.join.steps import Steps

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
    is_wait = launches.correlation > len(names)
    column = frames.Names(is_wait.astype(np.int64), ["cudaLaunchKernel", WAIT])
    capture = replace(joined.capture, launches=launches.replace(name=column))
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
TRAINING = ["embed", *LAYERS, "loss", *["mlp_backward", "attention_backward"] * 12, "adam", "adam"]
INNER = random.Random(1)


def counts(joined):
    return [loop.count for loop in joined.loops.iterations]


def test_ten_equal_iterations_without_a_wait():
    assert found(BODY * 10) == [BODY] * 10
    assert found(["fill", "fill", *BODY * 10, COPY]) == [BODY] * 10


@pytest.mark.parametrize("backwards", [0, 7])
def test_a_call_that_ends_before_its_start_is_within_its_step(backwards):
    joined = made(["gemm"] * 10)
    launches = joined.capture.launches
    end = launches.end.copy()
    end[backwards] = launches.start[backwards] - 1
    end[[row for row in range(10) if row != backwards]] = (
        launches.start[0] - 2
    )  # the host never pauses
    capture = replace(joined.capture, launches=launches.replace(end=end))
    steps = AttributedCapture.of(capture).iterations
    assert (steps.start <= steps.end).all()
    at = steps.at(launches.report, launches.process, launches.start)
    assert sorted(set(at.tolist())) == list(range(len(steps)))


def test_steps_that_begin_together_hold_what_the_longer_one_holds():
    """Two calls at once, the first of which takes no time: an empty step comes first."""
    columns = {field.name: np.zeros(1, np.int64) for field in fields(Steps)}
    empty = Steps(**columns)
    longer = replace(empty, end=np.array([9]))
    for parts in ([empty, longer], [longer, empty]):
        steps = Steps.concatenate(parts)
        at = steps.at(*(np.array([value]) for value in (0, 0, 5)))
        assert steps.end[at].tolist() == [9]


def test_a_range_around_iterations_alone_does_not_hide_them():
    assert found(BODY * 10, [(0, 30, "benchmark")]) == [BODY] * 10


def test_one_launch_is_an_iteration():
    assert found(["graph 4"] * 10) == [["graph 4"]] * 10
    assert found(["fill", "graph 4"] * 10) == [["fill", "graph 4"]] * 10
    assert found(["x", *["graph 4"] * 10, "y"], [(0, 12, "run")]) == [["graph 4"]] * 10
    assert found(["gemm"] * 10) == [["gemm"]] * 10
    assert found(["gemm", COPY] * 1000) == [["gemm", COPY]] * 1000
    assert not found([*PASS, *["fill"] * 10])  # but not within work of other kinds


def test_ten_iterations_are_not_five_double_ones():
    assert counts(made(["gemm", "relu", "gemm", "norm"] * 10)) == [10]
    sweeps = [["begin", *BODY * 8, f"sweep {n % 2}", "end"] for n in range(10)]
    assert counts(made([*chain.from_iterable(sweeps)])) == [10]  # alike to nine tenths


def test_two_loops_of_a_thousand():
    joined = made(["fill", *["gemm", "relu", "scale"] * 1000, "pack", *["fft", "scale"] * 1000])
    table = by_step(joined)
    assert table["loop"].tolist() == ["gemm"] * 1000 + ["fft"] * 1000
    assert table["activities"].tolist() == [3] * 1000 + [2] * 1000
    assert table["step"].tolist() == list(range(2000))
    first, second = paces(table)
    assert (first.count, first.median_ns, first.loop) == (1000, 3 * APART, "gemm")
    assert (second.count, second.median_ns, second.loop) == (1000, 2 * APART, "fft")
    iterations = Summary.of(joined).iterations
    assert [(one.count, one.iteration_ns) for one in iterations] == [
        (1000, 3 * APART),
        (1000, 2 * APART),
    ]


def test_two_loops_of_the_same_kernels_in_other_numbers():
    table = by_step(made(["gemm", "relu"] * 1000 + ["gemm", "relu", "relu"] * 1000))
    assert table["activities"].tolist() == [2] * 1000 + [3] * 1000
    assert list(dict.fromkeys(table["loop"])) == ["gemm", "gemm (2)"]


def test_inner_loops_may_differ_in_length():
    """Where nothing is alike to nine tenths, what repeats within an iteration counts once."""
    bodies = [["begin", *["search", "sort"] * INNER.randint(1, 9), "end"] for _ in range(50)]
    assert found([*chain.from_iterable(bodies)]) == bodies


def test_set_up_that_issues_the_same_kernel_is_no_iteration():
    body = ["halo", "pdv", "halo", "flux"]
    steps = found(["halo", "start", *body * 10])
    assert len(steps) == 10
    assert all(sorted(step) == sorted(body) for step in steps[:-1])


@pytest.mark.parametrize("times", [3, 10])
@pytest.mark.parametrize("body", [PASS, TRAINING])
def test_layers_are_parts_of_iterations(body, times):
    assert found(body * times) == [body] * times
    iterations, *parts = made(body * times).loops.loops
    assert (iterations.kind, iterations.count) == ("iterations", times)
    assert {(part.kind, part.count, part.parent) for part in parts} == {("parts", 12 * times, 0)}


@pytest.mark.parametrize("names", [PASS, PASS * 2, ["embed", *TRAINING[1:]]])
def test_layers_of_one_or_two_passes_are_no_iterations(names):
    joined = made(names)
    assert not len(joined.iterations)
    assert joined.why_no_iterations().startswith(
        "the capture holds no whole iteration; what repeats: attention, 12 times"
    )


def test_layers_that_a_range_holds_with_other_work_are_no_iterations():
    assert found(LAYERS) == [["attention", "mlp", "add"]] * 12  # nothing tells them from iterations
    names = ["embed", *LAYERS]  # nothing follows them
    assert not found(names, [(0, len(names), "forward")])


@pytest.mark.parametrize("name", ["layers.{}", "FSDP::pre_forward (blocks.{}.0)", "Layer {}"])
def test_ranges_that_differ_in_the_index_of_a_module_are_no_iterations(name):
    ranges = [(3 * n, 3 * n + 3, name.format(n)) for n in range(12)]
    joined = made(LAYERS, ranges)
    assert not len(joined.iterations)
    assert f"{name.replace('{}', '*').replace('.0', '.*')}, 12 times" in joined.why_no_iterations()
    passes = [(3 * n, 3 * n + 3, name.format(n % 4)) for n in range(12)]  # 3 passes of 4 layers
    assert counts(made(["a", "b", "c", *["d", "e", "f"] * 3] * 3, passes)) == [3]


def test_ranges_of_one_name_are_the_iterations_that_they_hold():
    joined = made(["copy", *BODY * 4] * 6, [(13 * n + 1, 13 * n + 13, "forward") for n in range(6)])
    [loop] = joined.loops.iterations
    assert (loop.name, loop.count) == ("forward", 6)
    assert (loop.steps.range >= 0).all()


def test_the_layers_in_each_of_which_the_host_takes_part_are_taken_for_iterations():
    """Nothing tells them from iterations."""
    waits = [at for at, name in enumerate(LAYERS) if name == "add"]
    assert len(found([*LAYERS, *["loss"] * 5], waits=waits)) == 12


def test_a_wait_after_each_activity_does_not_make_iterations_of_layers():
    steps = found(PASS * 5, waits=range(5 * len(PASS)))
    assert [sorted(step) for step in steps] == [sorted(PASS)] * 5


def test_many_sections_are_no_layers_whatever_follows():
    assert len(found(BODY * 100 + ["reduce"] * 5)) == 100
    assert len(found(BODY * 20 + ["reduce"] * 5)) == 20  # a loop of another number
    assert not found(BODY * 20 + ["reduce", "sort"])


def test_what_is_in_no_order_has_no_iterations():
    names = [INNER.choice("abcd") for _ in range(500)]
    assert not found(names)
    assert made(["a", "b"]).why_no_iterations() == "no work recurs three times in a row"


def test_loops_interrupted_by_other_work_end_before_it():
    other = [f"other {n}" for n in range(40)]
    joined = made([*BODY * 50, *other, *BODY * 50])
    assert counts(joined) == [50, 50]


def test_a_capture_that_begins_and_ends_within_an_iteration():
    body = [f"kernel {n}" for n in range(10)]
    [loop] = made([*body[7:], *body * 5, *body[:4]]).loops.iterations
    assert (loop.count, loop.is_cut) == (5, (False, True))  # where it begins, no pause tells
    [loop] = made(body * 5).loops.iterations
    assert (loop.count, loop.is_cut) == (5, (False, False))


def test_what_a_cut_iteration_holds_is_no_loop_of_its_own():
    [loop] = made([*PASS * 5, *PASS[:30]]).loops.iterations
    assert (loop.count, loop.is_cut) == (5, (False, True))


def test_warm_up_is_what_a_range_around_it_calls_so():
    [loop] = made(BODY * 13, [(0, 9, "warmup"), (9, 39, "benchmark")]).loops.iterations
    assert (loop.count, loop.warm_up) == (13, 3)
    [loop] = made(BODY * 13, [(9, 39, "benchmark")]).loops.iterations
    assert (loop.count, loop.warm_up) == (13, 0)


# -- Several processes


def ranks(*names, shift=0):
    """Make a program of several processes, each of which issues its own work, one ``shift`` ns after the other."""
    calls, work = [], []
    for rank, own in enumerate(names):
        process = (7 + rank) << 24
        for n, name in enumerate(own):
            at = APART * n + shift * rank
            calls.append(Call(0, process, process | 1, n + 1, at, at + 50))
            work.append(Activity(0, process, n + 1, at + 60, at + 100, "kernel", name))
    return attributed(Program([], calls, work, []))


def test_the_loop_of_two_ranks_is_one():
    joined = ranks(BODY * 20, BODY * 20, shift=30)
    [loop] = joined.loops.iterations
    assert (loop.count, len(loop.steps)) == (20, 40)
    assert len(joined.iterations) == 40


def test_unrelated_processes_have_loops_of_their_own():
    assert counts(ranks(BODY * 20, ["fft", "scale"] * 20)) == [20, 20]
    assert sorted(counts(ranks(BODY * 20, BODY * 21))) == [20, 21]
    assert counts(ranks(BODY * 20, BODY * 20, shift=100 * APART)) == [20, 20]  # one after the other


@pytest.mark.slow
@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=8),
    st.integers(3, 20),
    st.lists(st.sampled_from("xyz"), max_size=3),
)
def test_a_body_between_two_kernels_of_its_own_is_found(body, times, before):
    body = ["begin", *body, "end"]
    assert found([*before, *body * times]) == [body] * times

"""The tree of stacks: every frame and figure as a walk along each piece of work finds them."""

from itertools import product

import pytest
from hypothesis import given
from join.compare import meaning, steps_of
from join.programs import CALL_IDS, attributed, programs
from join.trainings import training, trainings
from real_parts import corpus_reports
from witness import nsys_export
from witness.attribution import Activity, Call, Range
from witness.indexed import indexed
from witness.stacks import TrueStacks
from witness.training import TrainingProfile

import bridge.report
from bridge.analyze.core.calltree import calltree
from bridge.knowledge.kernels import readable_names
from flame.compare import hold, paths_of

P = 7 << 24
MAIN, AUTOGRAD = P | 1, P | 2
WAYS = list(product([True, False], repeat=2))


def held(joined, more, ways=WAYS):
    steps = steps_of(joined.steps)
    for by_step, by_kernel in ways:
        tree = calltree(joined, steps=by_step, kernels=by_kernel)
        hold(tree, TrueStacks(more, steps, by_step, by_kernel))
        assert tree.gpu_self_ns.sum() == joined.duration.sum()


@pytest.mark.slow
@given(programs())
def test_stacks_of_any_program_are_those_of_its_records(made):
    texts = made.texts
    held(
        attributed(made), TrainingProfile(made.profile(), texts, texts, [""] * len(texts), meaning)
    )


@pytest.mark.slow
@given(trainings())
def test_stacks_of_any_training_are_those_of_its_records(made):
    held(made.attributed(), made.profile())


@pytest.mark.slow
@given(trainings())
def test_the_two_directions_are_the_whole(made):
    joined = made.attributed()
    ways = [calltree(joined.only(way)) for way in ("forward", "backward")]
    nothing = joined.duration[joined.attribution.reason != 0].sum()
    whole = calltree(joined)
    assert sum(way.gpu_self_ns.sum() for way in ways) == whole.gpu_self_ns.sum() - nothing
    assert sum(way.cpu_self_ns.sum() for way in ways) == whole.cpu_self_ns.sum()


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/[mpt]*.sqlite"))
def test_real_profiles_have_the_stacks_that_are_true(path):
    plain, joined = nsys_export.read(path), bridge.report.load(path)
    ranges, activities = joined.capture.ranges, joined.capture.activities
    called = zip(activities["kind"].tolist(), activities["name"].tolist(), activities["full_name"].tolist(), strict=True)  # fmt: skip
    names = [readable_names([(n, f)])[0] if kind == "kernel" else n for kind, n, f in called]
    named = [
        Activity(**(vars(one) | {"name": name}))
        for one, name in zip(plain.activities, names, strict=True)
    ]
    profile = indexed(plain.ranges, plain.calls, named)
    more = TrainingProfile(
        profile, ranges["name"].tolist(), plain.texts, ranges["category"].tolist(), meaning
    )
    held(joined.attributed, more, [(True, True)])


# -- by hand


def opened(start, end, text, thread=MAIN):
    return Range(0, P, thread, start, end, ""), text


def test_backward_work_is_under_the_module_of_its_forward_range():
    ranges = [
        opened(0, 100, "ProfilerStep#7"),
        opened(1, 40, "nn.Module: encoder"),
        opened(2, 30, "nn.Module: encoder.0"),
        opened(5, 10, "aten::mm, seq = 7"),
        opened(50, 60, "MmBackward0, seq = 7", AUTOGRAD),
        opened(70, 75, "ncclSend"),
    ]
    calls = [
        Call(0, P, thread, n, at, at + 1)
        for n, (at, thread) in enumerate(((6, MAIN), (55, AUTOGRAD), (80, MAIN), (200, MAIN)), 1)
    ]
    activities = [Activity(0, P, n, 300 + n, 310 + 2 * n, name=f"k{n}") for n in (1, 2, 3, 4)]
    joined = training(ranges, calls, activities).attributed()
    encoder = ("step 7", "encoder", "encoder.0")
    assert times(calltree(joined)) == {
        (*encoder, "aten::mm", "k1"): 11,
        (*encoder, "MmBackward0", "k2"): 12,
        ("step 7", "k3"): 13,
        ("no_range", "k4"): 14,
    }
    assert times(calltree(joined, steps=False, kernels=False)) == {
        (*encoder[1:], "aten::mm"): 11,
        (*encoder[1:], "MmBackward0"): 12,
        ("step",): 13,
        ("no_range",): 14,
    }


def test_steps_and_stacks_of_equal_names_are_one():
    one, other = ([opened(at, at + 10, "step 3"), opened(at + 1, at + 9, "a")] for at in (0, 100))
    there = [(Range(0, 8 << 24, (8 << 24) | 1, 0, 10, ""), "step 3")]
    calls = [Call(0, P, MAIN, 1, 2, 3), Call(0, 8 << 24, (8 << 24) | 1, 1, 2, 3)]
    kernels = [Activity(0, P, 1, 5, 6, name="k"), Activity(0, 8 << 24, 1, 5, 7, name="k")]
    tree = calltree(training([*one, *there], calls, kernels).attributed())
    assert times(tree) == {("step 3", "a", "k"): 1, ("step 3", "k"): 2}
    assert tree.parent.tolist().count(-1) == 1
    tree = calltree(training([*one, *other], calls[:1], kernels[:1]).attributed(), steps=False)
    assert times(tree) == {("a", "k"): 1}
    [row] = [n for n, path in enumerate(paths_of(tree)) if path == (("module", "a"),)]
    assert (tree.count[row], tree.cpu_self_ns[row]) == (2, 16)


def test_all_steps_are_left_out_and_those_of_other_threads():
    one = [opened(0, 10, "step 1"), opened(1, 9, "a")]
    two = [opened(20, 40, "step 2"), opened(21, 29, "a")]
    loader = [opened(20, 30, "step 2", AUTOGRAD), opened(22, 24, "load", AUTOGRAD)]
    joined = training([*one, *two, *loader]).attributed()
    paths = cpu(calltree(joined, steps=False))
    assert paths == {("a",): 16, ("load",): 2, ("step",): 22}
    assert cpu(calltree(joined))["step 2", "load"] == 2


def test_a_module_inside_the_backward_pass_keeps_its_own_frame():
    ranges = [
        opened(0, 20, "nn.Module: encoder"),
        opened(5, 10, "aten::mm, seq = 7"),
        opened(50, 60, "MmBackward0, seq = 7", AUTOGRAD),
        opened(52, 55, "nn.Module: hook", AUTOGRAD),
    ]
    found = cpu(calltree(training(ranges).attributed()))
    assert found["hook",] == 3
    assert found["encoder", "MmBackward0"] == 7


def test_a_call_in_slices_is_where_its_first_slice_in_time_is():
    slices = [Range(0, P, MAIN, at, at + 2, "", payload=CALL_IDS[0]) for at in (31, 1)]
    around = [opened(30, 40, "late"), opened(0, 10, "early")]
    tree = calltree(training([(one, "c") for one in slices] + around).attributed())
    paths = [tuple(name for _, name in path) for path in paths_of(tree)]
    count = dict(zip(paths, tree.count.tolist(), strict=True))
    assert (count["early", "c"], count["late", "c"]) == (1, 0)


def test_nothing_is_a_tree_too():
    tree = calltree(training([]).attributed())
    assert len(tree) == 0
    assert tree.names == []
    assert tree.total(tree.gpu_self_ns).tolist() == []


def cpu(tree):
    return times(tree, tree.cpu_self_ns)


def times(tree, values=None):
    values = tree.gpu_self_ns if values is None else values
    paths = [tuple(name for _, name in path) for path in paths_of(tree)]
    return {p: ns for p, ns in zip(paths, values.tolist(), strict=True) if ns}

"""Steps that ranges mark by a number that counts up, on made programs whose steps are known."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.programs import Program, attributed
from witness.attribution import Activity, Call, Range

from bridge.analyze.core.folding import Folded
from bridge.analyze.run.steps import by_step, paces
from bridge.join.families import Families, chosen_names, folded_names
from bridge.join.options import AttributionOptions

PROCESS = 7 << 24
MAIN = PROCESS | 1
LONG = 1_000


def opened(start, end, name):
    return Range(0, PROCESS, MAIN, start, end, name)


def in_turn(names, at=0, length=LONG):
    """Open ranges one after the other."""
    return [
        opened(at + length * n, at + length * (n + 1) - 10, name) for n, name in enumerate(names)
    ]


def within(outer, names):
    """Open ranges of equal length in each range of ``outer``; ``names`` gives those of the n-th."""
    result = []
    for n, one in enumerate(outer):
        inner = names(n)
        length = (one.end - one.start) // len(inner)
        result += in_turn(inner, one.start, length)
    return [*outer, *result]


def program(ranges, kernels=()):
    """Make a program that launches a kernel of 50 ns at each of these times."""
    calls = [Call(0, PROCESS, MAIN, n + 1, at, at + 5) for n, at in enumerate(kernels)]
    work = [
        Activity(0, PROCESS, n + 1, at + 10, at + 60, "kernel", "gemm")
        for n, at in enumerate(kernels)
    ]
    return Program(ranges, calls, work, [one.op for one in ranges])


def steps_of(ranges, kernels=()):
    made = attributed(program(ranges, kernels))
    return [ranges[row].op for row in made.steps.range.tolist()]


TOKENS = [f"token_{n}_processing" for n in range(64)]
LAYERS = {
    "the same in each step": lambda _: [f"layer_{k}" for k in range(8)],
    "counted over all steps": lambda n: [f"layer_{8 * n + k}" for k in range(8)],
    "by path": lambda _: [f"model.blocks.{k}" for k in range(8)],
    "of no known word": lambda _: [f"unit {k}" for k in range(8)],
}


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("names", [TOKENS, [f"Batch {n}" for n in range(10)], ["step"] * 10])
def test_steps_and_not_the_layers_in_them(names, layers):
    assert steps_of(within(in_turn(names), LAYERS[layers])) == names


def test_512_layers_are_no_steps():
    layers = within(in_turn(TOKENS), LAYERS["counted over all steps"])[64:]
    assert len(layers) == 512
    assert not steps_of(layers)


@pytest.mark.parametrize(
    "name", ["blocks.{}", "Layer {}", "transformerBlock{}", "3rd stage {}", "gpu:{}"]
)
def test_numbers_of_parts_are_none_of_steps(name):
    assert not steps_of(in_turn([name.format(n) for n in range(20)]))


@pytest.mark.parametrize(
    "name",
    ["Warm-up Step {}", "request {}", "{}: frame", "frame {}/40", "decode step {} (warm)", "runBatch{}", "bs32 sample {}"],
)  # fmt: skip
def test_ranges_that_count_up_are_steps(name):
    names = [name.format(n) for n in range(1, 6)]
    made = attributed(program(in_turn(names)))
    assert made.steps.number.tolist() == [1, 2, 3, 4, 5]
    assert by_step(made)["name"].tolist() == names
    assert list(dict.fromkeys(by_step(made)["loop"])) == [name.format("*")]


def test_a_number_that_does_not_count_up_is_none_of_steps():
    assert not steps_of(in_turn([f"request {n}" for n in (7, 3, 9, 1, 8, 2)]))
    assert not steps_of(in_turn([f"item {n % 4}" for n in range(40)]))
    assert not steps_of(in_turn(["request 1", "request 2"]))
    assert not steps_of(in_turn([f"a {n % 3} b {n}" for n in range(9)]))


def test_what_ranges_call_warm_up_begins_the_loop_after_it():
    warm, steady = ([f"{what} {n}" for n in range(1, 6)] for what in ("Warm-up Step", "Step"))
    made = attributed(program([*in_turn(warm, length=3 * LONG), *in_turn(steady, 50 * LONG)]))
    table = by_step(made)
    assert table["name"].tolist() == [*warm, *steady]
    assert table["step"].tolist() == list(range(10))
    assert table["state"].tolist() == ["warm-up"] * 5 + [""] * 5
    [loop] = made.loops.iterations
    assert (loop.count, loop.warm_up) == (10, 5)
    [pace] = paces(table)
    assert (pace.count, pace.warm_up) == (10, 5)
    assert (pace.median_ns, pace.iteration_ns) == (LONG - 10, LONG)


def test_families_one_after_the_other_are_several_loops():
    train, val = ([f"{what} batch {n}" for n in range(5)] for what in ("train", "val"))
    made = attributed(program([*in_turn(train, length=3 * LONG), *in_turn(val, 50 * LONG)]))
    table = by_step(made)
    assert table["loop"].tolist() == ["train batch *"] * 5 + ["val batch *"] * 5
    assert set(table["state"]) == {""}  # each is as long as those of its own loop
    assert [pace.loop for pace in paces(table)] == ["train batch *", "val batch *"]
    assert [pace.median_ns for pace in paces(table)] == [3 * LONG - 10, LONG - 10]


def test_families_in_turn_are_a_loop_for_each_round():
    """Training and validation in each of three epochs."""
    ranges, at = [], 0
    for epoch in range(3):
        for what, number in (("train", 5), ("val", 2)):
            names = [f"{what} batch {n + epoch * number}" for n in range(number)]
            ranges += in_turn(names, at)
            at += LONG * number
    loops = attributed(program(ranges)).loops.iterations
    assert [(loop.name, loop.count) for loop in loops] == [
        ("train batch *", 5),
        ("val batch *", 2),
    ] * 3


def test_epochs_are_a_level_above_their_steps():
    epochs = in_turn(["Epoch 1", "Epoch 2", "Epoch 3"], length=10 * LONG)
    made = attributed(program(within(epochs, lambda _: [f"step {k}" for k in range(5)])))
    outer, inner = made.loops.loops
    assert (outer.kind, outer.name, outer.count, outer.parent) == ("epochs", "Epoch *", 3, -1)
    assert (inner.kind, inner.name, inner.count, inner.parent) == ("iterations", "step *", 15, 0)


def test_epochs_give_way_to_what_they_hold():
    epochs = in_turn(["Epoch 1", "Epoch 2"], length=10 * LONG)
    batches = within(epochs, lambda n: [f"sample {5 * n + k}" for k in range(5)])
    assert steps_of(batches) == [f"sample {n}" for n in range(10)]
    assert steps_of(in_turn([f"Epoch {n}" for n in range(5)])) == [f"Epoch {n}" for n in range(5)]


@pytest.mark.parametrize(("inside", "outside", "is_found"), [(6, 5, True), (4, 6, False)])
def test_what_covers_less_than_half_of_the_gpu_time_is_none(inside, outside, is_found):
    ranges = in_turn([f"request {n}" for n in range(4)])
    kernels = [100 * n for n in range(inside)] + [9 * LONG + 100 * n for n in range(outside)]
    assert len(steps_of(ranges, kernels)) == (4 if is_found else 0)


def test_steps_by_name_that_hold_no_work_give_way():
    ranges = [*in_turn([f"prepare batch {n}" for n in range(4)]), *in_turn(TOKENS[:4], 9 * LONG)]
    kernels = [9 * LONG + 500 * n for n in range(8)]
    assert steps_of(ranges, kernels) == TOKENS[:4]


# -- chosen by name


def test_a_name_or_a_family_chooses_the_steps():
    ranges = within(in_turn(TOKENS[:4]), lambda _: ["layer_0", "layer_1", "mlp"])
    for wanted in ("layer_N", "layer_*", "layer"):
        made = attributed(program(ranges), steps=wanted)
        assert by_step(made)["name"].tolist() == ["layer_0", "layer_1"] * 4
        assert made.iterations.range.tolist() == made.steps.range.tolist()
    made = attributed(program(ranges), steps="mlp")
    assert by_step(made)["name"].tolist() == ["mlp"] * 4
    with pytest.raises(ValueError, match="no range 'token_processin'"):
        attributed(program(ranges), steps="token_processin")


def test_brackets_are_no_wildcards():
    assert chosen_names(["a[0]", "a0"], "a[0]").tolist() == [True, False]
    assert chosen_names(["Batch 1", "Batch 2", "x"], "batch n").tolist() == [True, True, False]


def test_a_chosen_name_is_an_option_of_the_attribution():
    assert AttributionOptions(steps="mlp") != AttributionOptions()


# -- names


def test_numbers_that_grow_together_are_one_family():
    families = Families.of(["Step 0 to 10", "Step 10 to 20", "Step 20 to 30", "other"])
    assert families.text == ("Step * to *",)
    assert families.number.tolist() == [0, 10, 20, -1]
    assert families.family.tolist() == [0, 0, 0, -1]


def test_numbers_of_more_digits_than_fit_and_of_the_same_value_are_none():
    assert not Families.of([f"at {10**20 + n}" for n in range(5)]).text
    assert not Families.of(["run 1", "run 01"]).text


def test_names_that_count_up_are_folded():
    assert set(folded_names(TOKENS)) == {"token_*_processing"}
    assert folded_names(TOKENS[:7]) == TOKENS[:7]  # so few are read one by one
    assert folded_names(["Batch 0", "Batch 1"]) == ["Batch *"] * 2
    sparse = [f"kernel {2**n}" for n in range(12)]
    assert folded_names(sparse) == sparse


def test_names_that_count_up_in_equal_strides_are_folded_and_are_steps():
    tens = [f"Compute {n}" for n in range(10, 260, 10)]
    assert set(folded_names(tens)) == {"Compute *"}
    assert set(folded_names(tens[:8:2] + tens[8:])) == {"Compute *"}  # most of a stride's numbers
    assert steps_of(in_turn(tens)) == tens
    unequal = [f"Compute {n}" for n in (10, 20, 35, 70, 100, 150, 205, 250)]
    assert folded_names(unequal) == unequal


def test_a_name_of_several_lines_has_its_family():
    names = ["x", "frame 1\nof 2", "frame 2\nof 2", "frame 0\nof 2"]
    assert Families.of(names).text == ("frame *\nof 2",)
    assert Families.of(names).number.tolist() == [-1, 1, 2, 0]


@given(st.lists(st.text("a0 19\n", max_size=6), max_size=12))
def test_names_of_a_family_are_alike_but_for_their_numbers(names):
    families = Families.of(names)
    shapes = [re.sub("[0-9]+", "#", name) for name in names]
    pairs = zip(names, families.family.tolist(), strict=True)
    for one, (name, family) in zip(shapes, pairs, strict=True):
        members = {shape for shape, f in zip(shapes, families.family, strict=True) if f == family}
        assert family == -1 or members == {one}
        if family == -1 and shapes.count(one) == 2 and one.count("#") == 1:
            first, second = (
                int(re.search("[0-9]+", n)[0])
                for n, s in zip(names, shapes, strict=True)
                if s == one
            )
            assert first == second, name


def test_ops_are_folded_for_people():
    made = attributed(program(in_turn([*TOKENS, "mlp"])))
    folded = Folded.of(made)
    assert folded.ops == {"token_*_processing": 64}
    assert sorted(folded.attributed.ops) == ["mlp", "token_*_processing"]
    assert np.bincount(folded.attributed.op).tolist() == [64, 1]

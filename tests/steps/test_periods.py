"""What recurs in a sequence, against its definition with plain loops and on sequences whose loops are known."""

import random

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from witness.loops import agreement, repetitions

from bridge.join.periods import ALIKE, Sequence, outermost_periods

names = st.lists(st.sampled_from("abcdef"), min_size=2, max_size=10)
times = st.integers(3, 20)


def sequence(work, pauses=()):
    """Make a sequence of kernels of 10 ns; the host pauses before names in ``pauses``."""
    codes = {name: code for code, name in enumerate(dict.fromkeys(work))}
    size = len(work)
    return Sequence(
        name=np.array([codes[name] for name in work], np.int64),
        weight=np.ones(size, np.int64),
        spent=np.full(size, 10),
        begins=np.ones(size, bool),
        pause=np.array([100 if name in pauses else 1 for name in work], np.int64),
    )


def found(work, pauses=()):
    """Give the instances of each loop."""
    periods = outermost_periods(sequence(work, pauses))
    return [
        [work[a:b] for a, b in zip(p.row.tolist(), p.end.tolist(), strict=True)] for p in periods
    ]


def counts(work, pauses=()):
    return [len(loop) for loop in found(work, pauses)]


def is_unit(body):
    """Tell whether no part of a body, begun anywhere, repeats as a multiset: then it is the shortest period."""
    size = len(body)
    twice = body * 2
    return all(
        size % part
        or not any(
            all(
                agreement(twice[at : at + part], twice[at + k : at + k + part]) >= ALIKE
                for k in range(part, size, part)
            )
            for at in range(part)
        )
        for part in range(1, size)
    )


@pytest.mark.slow
@given(names, times, st.integers(0, 4), st.integers(0, 2))
def test_a_body_is_found_as_often_as_it_is_repeated(body, number, before, after):
    assume(is_unit(body))
    work = (
        [f"set-up {n}" for n in range(before)] + body * number + [f"end {n}" for n in range(after)]
    )
    [(_, length, witnessed)] = [one for one in repetitions(work) if one[1] == len(body)]
    assert (length, witnessed) == (len(body), number)
    assert counts(work) == [number]


@pytest.mark.slow
@given(names, st.integers(3, 12), st.integers(3, 12))
def test_layers_in_iterations_are_none(layer, layers, number):
    body = ["embed", *layer * layers, "norm", "head", "loss"]
    work = body * number
    assert [one[1:] for one in repetitions(work)] == [(len(body), number)]
    assert counts(work) == [number]
    assert found(work)[0][0] == body


@pytest.mark.slow
@given(names, st.integers(3, 8), st.integers(3, 8), st.integers(3, 4))
def test_of_layers_in_iterations_in_epochs_the_outermost_count(layer, layers, number, epochs):
    iteration = ["embed", *layer * layers, "norm", "head", "loss"]
    epoch = [*iteration * number, *(f"evaluate {n}" for n in range(5))]
    assert counts(epoch * epochs) == [epochs]


@pytest.mark.slow
@given(names, times, names, times, st.integers(0, 3))
def test_loops_one_after_the_other_are_two(one, first, other, second, between):
    other = [name.upper() for name in other]
    assume(is_unit(one) and is_unit(other))
    assume(0.2 < len(one) * first / (len(one) * first + len(other) * second) < 0.8)
    work = one * first + [f"between {n}" for n in range(between)] + other * second
    assert counts(work) == [first, second]


@pytest.mark.slow
@given(names, st.integers(4, 20), st.data())
def test_an_instance_that_is_cut_is_none(body, number, data):
    assume(is_unit(body))
    begin, end = (data.draw(st.integers(1, len(body) - 1)) for _ in range(2))
    assume(max(len(body) - begin, end) < ALIKE * len(body))
    held = len(body) - begin + end  # in both cuts together; enough of it is one, begun elsewhere
    assume(not ALIKE * len(body) <= held < len(body))
    whole = held >= len(body)
    [period] = outermost_periods(sequence(body[begin:] + body * number + body[:end]))
    assert len(period) == number + whole
    assert any(period.is_cut) or held == len(body)


@pytest.mark.slow
@given(names, times)
def test_a_first_instance_may_hold_more(body, number):
    first = ["begin", *(f"tune {n}" for n in range(len(body))), *body]
    assume(is_unit(["begin", *body]))
    assert counts([*first, *["begin", *body] * number]) == [number + 1]


@pytest.mark.slow
@given(st.integers(0, 1000), st.integers(5, 20))
def test_instances_need_agree_to_nine_tenths_alone(seed, number):
    rng = random.Random(seed)
    body = ["begin", *(rng.choice("abcdef") for _ in range(58)), "end"]
    work = []
    for _ in range(number):
        work += body
        if rng.random() < 0.5:
            work[-rng.randrange(2, 58)] = f"other {rng.randrange(5)}"
    assert counts(work) == [number]


def test_a_last_instance_may_be_shorter():
    body = ["begin", *["a", "b"] * 20, "c", "end"]
    short = ["begin", *["a", "b"] * 7, "c", "end"]
    assert found(body * 6 + short) == [[*[body] * 6, short]]


def test_work_between_two_rounds_of_a_loop_parts_it():
    body, other = ["a", "b", "c"], [f"evaluate {n}" for n in range(20)]
    assert found(body * 20 + other + body * 30) == [[body] * 20, [body] * 30]


def test_loops_of_the_same_kernels_in_other_numbers_are_two():
    assert counts(["a", "b"] * 100 + ["a", "b", "b"] * 100) == [100, 100]


def test_an_instance_begins_where_the_host_pauses_longest_if_all_else_is_equal():
    cut = ["d", *["a", "b", "c", "d"] * 9, "a"]
    assert found(cut, {"b"})[0][0] == ["b", "c", "d", "a"]
    assert found(["set-up", *cut[1:-1]], {"c"})[0][0] == ["a", "b", "c", "d"]  # there it began


@pytest.mark.parametrize("seed", range(20))
def test_what_is_in_no_order_has_few_periods(seed):
    rng = random.Random(seed)
    work = [rng.choice("abcd") for _ in range(500)]
    assert sum(len(instance) for loop in found(work) for instance in loop) < 250

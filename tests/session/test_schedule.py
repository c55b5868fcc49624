"""Which steps are profiled: step by step what PyTorch's schedule says, and nothing but its actions."""

from __future__ import annotations

import warnings
from enum import Enum
from importlib.util import find_spec
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.capture.session.schedule import Action, action_at, every_step, schedule

LETTERS = {".": "NONE", "w": "WARMUP", "R": "RECORD", "S": "RECORD_AND_SAVE"}

# Taken from torch.profiler.schedule of PyTorch 2.13: the first 16 steps.
OF_TORCH: list[tuple[dict[str, int], str]] = [
    ({"wait": 1, "warmup": 1, "active": 2, "repeat": 2, "skip_first": 1}, "..wRS.wRS......."),
    ({"wait": 0, "warmup": 0, "active": 1}, "SSSSSSSSSSSSSSSS"),
    ({"wait": 2, "warmup": 1, "active": 3}, "..wRRS..wRRS..wR"),
    (
        {"wait": 3, "warmup": 0, "active": 2, "repeat": 1, "skip_first": 2, "skip_first_wait": 1},
        "..RS............",
    ),
    (
        {"wait": 3, "warmup": 2, "active": 1, "repeat": 2, "skip_first_wait": 1},
        "wwS...wwS.......",
    ),
    ({"wait": 0, "warmup": 2, "active": 1, "repeat": 3}, "wwSwwSwwS......."),
    ({"wait": 1, "warmup": 0, "active": 3, "skip_first": 4}, ".....RRS.RRS.RRS"),
    (
        {"wait": 2, "warmup": 1, "active": 1, "repeat": 1, "skip_first_wait": -1},
        "wS..............",
    ),
]
numbers = st.integers(0, 5)
parameters = st.fixed_dictionaries(
    {"wait": numbers, "warmup": numbers, "active": st.integers(1, 5)},
    optional={
        "repeat": numbers,
        "skip_first": numbers,
        "skip_first_wait": st.sampled_from([0, 1, 2, -1, True, False]),
    },
)


@pytest.mark.parametrize(("given_", "letters"), OF_TORCH)
def test_steps_are_what_torch_made_of_them(given_: dict[str, int], letters: str) -> None:
    actions = schedule(**given_)  # without a warning where warmup is 0
    assert [actions(step).name for step in range(16)] == [LETTERS[letter] for letter in letters]


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
@given(given_=parameters)
def test_every_step_is_torchs(given_: dict[str, int]) -> None:
    from torch.profiler import schedule as torchs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no warm-up
        expected = torchs(**given_)
    actions = schedule(**given_)
    steps = range(80)
    assert [actions(step).name for step in steps] == [expected(step).name for step in steps]
    assert {actions(step).value for step in steps} == {expected(step).value for step in steps}


@given(given_=parameters, step=st.integers(0, 10**30))
def test_cycles_come_again_without_end(given_: dict[str, int], step: int) -> None:
    actions = schedule(**{**given_, "repeat": 0})
    cycle = given_["wait"] + given_["warmup"] + given_["active"]
    late = given_.get("skip_first", 0) + step
    assert actions(late) is actions(late + cycle)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"wait": -1}, "schedule: wait is a whole number of at least 0, not -1"),
        ({"warmup": -2}, "schedule: warmup is a whole number of at least 0, not -2"),
        ({"active": 0}, "schedule: active is a whole number of at least 1, not 0"),
        ({"repeat": -1}, "schedule: repeat is a whole number of at least 0, not -1"),
        ({"skip_first": -1}, "schedule: skip_first is a whole number of at least 0, not -1"),
        ({"wait": 1.5}, "schedule: wait is a whole number of at least 0, not 1.5"),
        ({"active": "2"}, "schedule: active is a whole number of at least 1, not '2'"),
        ({"repeat": None}, "schedule: repeat is a whole number of at least 0, not None"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as raised:
        schedule(**{"wait": 1, "warmup": 1, "active": 1, **wrong})
    assert str(raised.value) == said


def test_a_step_is_not_negative() -> None:
    with pytest.raises(ValueError, match="a step's number is a whole number of at least 0, not -1"):
        schedule(wait=0, warmup=0, active=1)(-1)


class Foreign(Enum):
    """Actions as another library numbers them."""

    RECORD_AND_SAVE = 0
    NONE = 1
    DEVICE_STOPPED = 4


def test_actions_of_others_are_taken_by_their_names() -> None:
    assert action_at(0, [Foreign.RECORD_AND_SAVE].__getitem__) is Action.RECORD_AND_SAVE
    assert action_at(5, lambda _: Foreign.NONE) is Action.NONE
    assert action_at(5, lambda _: Action.WARMUP) is Action.WARMUP
    assert action_at(7, every_step) is Action.RECORD


@pytest.mark.slow
def test_actions_of_torch_are_taken() -> None:
    torchs = pytest.importorskip("torch.profiler").ProfilerAction
    for action in Action:
        assert action_at(0, lambda _, name=action.name: torchs[name]) is action
    with pytest.raises(ValueError, match="for step 0"):
        action_at(0, lambda _: torchs.DEVICE_STOPPED)


@pytest.mark.parametrize("given_", [Foreign.DEVICE_STOPPED, "RECORD", 2, None, Action])
def test_anything_else_is_refused_with_the_step(given_: object) -> None:
    with pytest.raises(ValueError) as raised:
        action_at(12, lambda _: given_)
    assert str(raised.value) == (
        f"the schedule returns {given_!r} for step 12, not one of NONE, WARMUP, RECORD, RECORD_AND_SAVE"
    )

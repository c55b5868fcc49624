"""Forward and backward: whose direction each range and activity has, and which forward range it belongs to."""

import pytest
from hypothesis import given
from real_parts import corpus_reports
from witness import nsys_export
from witness.attribution import Activity, Call, Range
from witness.indexed import indexed
from witness.training import TrainingProfile

import bridge.report
from bridge.report import Report
from join.compare import meaning
from join.trainings import ENGINE, FURTHER, NAMES, training, trainings

P, Q = 7 << 24, 8 << 24
MAIN, AUTOGRAD, OTHER = (P | number for number in (1, 2, 3))


def texts_of(column):
    return [name if isinstance(name, str) else None for name in column]


def held_to(joined, profile):
    """Hold direction, forward range and module of every activity, and every op's direction, to the truth."""
    table, rows = Report(joined).op_kernels, range(len(profile.profile.activities))
    ops = profile.profile.op_rows()
    backward = joined.directions.ranges
    assert [bool(backward[row]) for row in ops] == [profile.backward[row] for row in ops]
    assert texts_of(table["direction"]) == [profile.way(row) for row in rows]
    links = list(zip(table["forward"].tolist(), table["ambiguous"].tolist(), strict=True))
    assert links == [profile.forward(row) for row in rows]
    assert texts_of(table["module"]) == [profile.module(row) for row in rows]


@pytest.mark.slow
@given(trainings())
def test_every_activity_has_its_direction_its_forward_range_and_its_module(made):
    held_to(made.attributed(), made.profile())


def test_the_names_say_what_the_truth_takes_them_to_say():
    assert {name: meaning(name) for name in NAMES | FURTHER} == NAMES | FURTHER


# -- real profiles


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/[mpt]*.sqlite"))
def test_real_profiles_have_the_directions_links_and_modules_that_are_true(path):
    plain = nsys_export.read(path)
    joined = bridge.report.load(path)
    names = joined.capture.ranges.name.tolist()
    categories = joined.capture.ranges.category.tolist()
    profile = indexed(plain.ranges, plain.calls, plain.activities)
    held_to(joined.attributed, TrainingProfile(profile, names, plain.texts, categories, meaning))


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/pytorch-backward.sqlite"))
def test_a_real_backward_pass_belongs_to_its_forward_pass(path):
    table = bridge.report.load(path).op_kernels
    backward = table[table["direction"] == "backward"]
    assert len(backward)
    assert (backward["forward"] != -1).mean() > 0.5


# -- the rules, by hand


def opened(start, end, text, thread=MAIN, report=0):
    return Range(report, thread & -(1 << 24), thread, start, end, ""), text


def belongs(*ranges, at, thread=AUTOGRAD, report=0):
    """Return direction, forward range and ambiguity of a kernel launched at an instant."""
    process = thread & -(1 << 24)
    call = Call(report, process, thread, 1, at, at + 1)
    kernel = Activity(report, process, 1, 1_000, 1_010)
    made = training(ranges, [call], [kernel])
    [row] = Report(made.attributed()).op_kernels.to_dict("records")
    truth = made.profile()
    assert (row["direction"], row["forward"], row["ambiguous"]) == (truth.way(0), *truth.forward(0))
    return row["direction"], row["forward"], row["ambiguous"]


MM = "aten::mm, seq = 7, op_id = 3"
BACKWARD = opened(50, 60, "MmBackward0, seq = 7, op_id = 9", AUTOGRAD)


@pytest.mark.slow
def test_the_link_is_the_last_forward_range_with_the_number():
    around, node = opened(0, 20, "aten::mm, seq = 7"), opened(5, 10, MM)
    assert belongs(around, node, BACKWARD, at=55) == ("backward", 1, False)
    assert belongs(node, around, BACKWARD, at=55) == ("backward", 0, False)
    twins = opened(5, 10, MM), opened(5, 10, MM)
    assert belongs(*twins, BACKWARD, at=55) == ("backward", 1, False)
    assert belongs(opened(5, 12, MM), node, BACKWARD, at=55) == ("backward", 1, False)
    assert belongs(node, opened(5, 12, MM), BACKWARD, at=55) == ("backward", 0, False)


@pytest.mark.parametrize(
    "other",
    [
        opened(5, 10, "aten::mm, seq = 70"),
        opened(5, 10, "aten::mm"),
        opened(5, 10, "MmBackward0, seq = 7"),  # backward itself
        opened(5, 5, MM),  # never open
        opened(50, 60, MM),  # begins with it, not before it
        opened(5, 10, MM, Q | 1),
        opened(5, 10, MM, report=1),
    ],
    ids=["number", "none", "backward", "empty", "later", "process", "report"],
)
def test_what_is_no_forward_range(other):
    assert belongs(other, BACKWARD, at=55) == ("backward", -1, False)


@pytest.mark.slow
def test_another_thread_comes_before_its_own():
    own, other = opened(30, 40, MM, AUTOGRAD), opened(5, 10, MM)
    assert belongs(own, BACKWARD, at=55) == ("backward", 0, False)
    assert belongs(other, own, BACKWARD, at=55) == ("backward", 0, False)
    assert belongs(other, own, own, own, BACKWARD, at=55) == ("backward", 0, False)
    third = opened(7, 9, MM, OTHER)
    assert belongs(other, third, BACKWARD, at=55) == ("backward", 1, True)
    assert belongs(other, third, own, BACKWARD, at=55) == ("backward", 1, True)


def test_what_is_under_a_backward_range_is_backward_and_belongs_where_the_innermost_link_leads():
    mm, add = opened(5, 10, MM), opened(12, 15, "aten::add, seq = 8")
    inner = opened(52, 58, "aten::mul, seq = 8", AUTOGRAD)
    bare = opened(53, 57, "aten::t", AUTOGRAD)
    assert belongs(mm, add, BACKWARD, inner, bare, at=54) == ("backward", 1, False)
    assert belongs(mm, add, BACKWARD, inner, bare, at=51) == ("backward", 0, False)
    assert belongs(mm, BACKWARD, bare, at=54) == ("backward", 0, False)
    assert belongs(mm, BACKWARD, at=7, thread=MAIN) == ("forward", -1, False)


@pytest.mark.slow
def test_the_range_around_a_backward_call_belongs_where_the_call_does():
    mm, engine = opened(5, 10, MM), opened(45, 70, ENGINE, AUTOGRAD)
    assert belongs(mm, engine, BACKWARD, at=65) == ("backward", 0, False)
    assert belongs(mm, opened(45, 70, "a", AUTOGRAD), BACKWARD, at=65) == ("forward", -1, False)
    other = opened(2, 4, "aten::t, seq = 6", OTHER)
    numbered = opened(45, 70, f"{ENGINE}, seq = 6", AUTOGRAD)
    assert belongs(mm, other, numbered, BACKWARD, at=65) == ("backward", 1, False)
    twice = opened(6, 9, MM, OTHER)
    assert belongs(mm, twice, engine, BACKWARD, at=65) == ("backward", 1, True)
    between = opened(46, 68, "aten::t", AUTOGRAD)  # a child of its own: the call is no direct one
    assert belongs(mm, engine, between, BACKWARD, at=66) == ("backward", -1, False)

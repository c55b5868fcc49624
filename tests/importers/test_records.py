"""`record` makes of a class what `dataclass(frozen=True)` makes of it."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from functools import cached_property

import pytest

from bridge.importers.records import record


def made(decorator):
    @decorator
    class Base:
        """Said."""

        first: int
        second: str = "b"

        def __post_init__(self):
            object.__setattr__(self, "seen", self.first + 1)

        @cached_property
        def twice(self):
            return 2 * self.first

    @decorator
    class Derived(Base):
        rows: list[int] = field(default_factory=list, repr=False)
        number: int = field(default=0, compare=False)
        later: int = field(init=False, repr=False, compare=False)

    Derived.__qualname__ = "Derived"
    return Derived


Derived = made(record)
PAIRS = (Derived, made(dataclass(frozen=True)))
MAKES = (
    lambda cls: cls(1),
    lambda cls: cls(1, "c", [2], number=3),
    lambda cls: cls(second="c", first=4),
    lambda cls: replace(cls(1, rows=[5]), first=2),
    lambda cls: copy.copy(cls(7)),
)


@pytest.mark.parametrize("make", MAKES)
def test_values_are_those_of_a_dataclass(make):
    ours, theirs = map(make, PAIRS)
    assert vars(ours) == vars(theirs)
    assert repr(ours) == repr(theirs)
    assert (ours.twice, ours.seen) == (theirs.twice, theirs.seen)
    assert [one.name for one in fields(ours)] == [one.name for one in fields(theirs)]


def test_records_are_equal_as_dataclasses_are():
    for one in PAIRS:
        assert one(1, rows=[2], number=3) == one(1, rows=[2], number=4)
        assert one(1) != one(2)
        assert one(1) != "1"
    assert hash(Derived(1, rows=(), number=1)) == hash(Derived(1, rows=()))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda cls: cls(),
        lambda cls: cls(1, first=2),
        lambda cls: cls(1, third=2),
        lambda cls: cls(1, later=2),
        lambda cls: cls(1, "b", [], 0, 9),
    ],
)
def test_wrong_arguments_are_refused(wrong):
    for one in PAIRS:
        with pytest.raises(TypeError):
            wrong(one)


def test_a_record_cannot_be_changed():
    for cls in PAIRS:
        one = cls(1)
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'first'"):
            one.first = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'first'"):
            del one.first
        assert one.first == 1


def test_a_record_is_carried_to_another_process():
    assert pickle.loads(pickle.dumps(Carried(1, "b"))) == Carried(1, "b")
    assert asdict(Carried(1, "b")) == {"first": 1, "second": "b"}


@record
class Carried:
    first: int
    second: str

"""Callables made ops in place: what is wrapped, what it still is, and that undoing leaves nothing."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import math
import pickle
import types
from itertools import permutations

import numpy as np
import pytest

import bridge


class Base:
    def inherited(self):
        return type(self)

    @classmethod
    def made(cls):
        return cls

    @staticmethod
    def doubled(x):
        return 2 * x


class Model(Base):
    rooted = math.sqrt  # a C function: no method, though in a class
    upper = str.upper

    def __init__(self):
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + 1

    async def fetch(self, x):
        await asyncio.sleep(0)
        return x

    @property
    def size(self):
        return 1

    double = functools.partialmethod(forward, 2)

    class Part:
        pass


class Slotted:
    __slots__ = ("act",)


class Kernel:
    """Launched as numba's and Triton's kernels are."""

    def __init__(self):
        self.grids = []

    def __call__(self, x):
        return x

    def __getitem__(self, grid):
        self.grids.append(grid)
        return lambda x: (grid, x)


@pytest.fixture
def module():
    made = types.ModuleType("my_module")

    def load(n):
        return list(range(n))

    load.limit = 7
    load.__module__ = _private.__module__ = "my_module"
    vars(made).update(
        load=load, _private=_private, sqrt=math.sqrt, part=functools.partial(load, 3), Model=Model,
        kernel=Kernel(), cached=functools.lru_cache(load), number=4, math=math,
    )  # fmt: skip
    return made


def _private():
    pass


def state_of(*owners):
    return [dict(vars(owner)) for owner in owners]


def same(one, other):
    return all(
        list(a) == list(b) and all(a[name] is b[name] for name in a)
        for a, b in zip(one, other, strict=True)
    )


def test_named_functions_become_ops_and_are_what_they_were(tool, module):
    before = state_of(module, Model)
    with bridge.wrap(module, ["load", "sqrt", "Model.forward", "part"]) as wrapped:
        assert module.load(3) == module.part() == [0, 1, 2]
        assert module.sqrt(4) == 2
        assert module.Model().forward(1) == 2
        assert module.load.limit == 7
        assert list(inspect.signature(module.load).parameters) == ["n"]
    assert wrapped.names == tuple(
        f"my_module.{name}" for name in ("load", "sqrt", "Model.forward", "part")
    )
    assert tool.names() == [f"my_module.{n}" for n in ("load", "part", "sqrt", "Model.forward")]
    assert same(state_of(module, Model), before)
    module.load(3)
    assert len(tool.names()) == 4


def test_without_names_it_is_what_the_module_lists_or_defines(tool, module):
    with bridge.wrap(module) as wrapped:
        assert wrapped.names == ("my_module.load", "my_module.cached")
    module.__all__ = ["sqrt", "Model", "number", "math"]
    with bridge.wrap(module) as wrapped:
        assert wrapped.names == ("my_module.sqrt",)


def test_all_of_numpy_linalg(tool):
    before = state_of(np.linalg)
    with bridge.wrap(np.linalg) as wrapped:
        assert np.linalg.norm(np.array([3.0, 4.0])) == 5
        with pytest.raises(np.linalg.LinAlgError):
            np.linalg.inv(np.zeros((2, 2)))
    assert same(state_of(np.linalg), before)
    assert "numpy.linalg.svd" in wrapped.names
    assert not [name for name in wrapped.names if "LinAlgError" in name]
    assert tool.names() == ["numpy.linalg.norm", "numpy.linalg.inv"]


def test_label_and_prefix(tool, module):
    with bridge.wrap(module, "load", prefix="io", domain="d", category="c", color="red"):
        module.load(1)
    with bridge.wrap(module, "sqrt", prefix=""):
        module.sqrt(1)
    assert tool.slices[0].label == ("io.load", "d", "c", 0xFFFF0000)
    assert tool.names()[1] == "sqrt"


@pytest.mark.parametrize("name", ["inherited", "made", "doubled", "forward", "rooted", "upper"])
def test_methods_of_every_kind(tool, name):
    def called():
        model = Model()
        args = {"inherited": (), "made": (), "upper": ()}.get(name, (4,))
        on_class = getattr(Model, name)
        if name == "upper":
            return [on_class("a")]
        with_self = (model, *args) if name in {"inherited", "forward"} else args
        return [getattr(model, name)(*args), on_class(*with_self)]

    before, expected = state_of(Model, Base), called()
    with bridge.wrap(Model, [name]):
        assert called() == expected
    prefix = f"{__name__}.Model.{name}"
    assert tool.names() == [prefix] * len(expected)
    assert same(state_of(Model, Base), before)
    called()
    assert len(tool.names()) == len(expected)


def test_a_partial_method_and_a_coroutine(tool):
    with bridge.wrap(Model, ["double", "fetch"]):
        assert Model().double() == 3
        assert inspect.iscoroutinefunction(Model.fetch)
        assert asyncio.run(Model().fetch(5)) == 5
    assert tool.calls() == {f"{__name__}.Model.double": 1, f"{__name__}.Model.fetch": 1}


def test_a_class_alone_gives_what_it_defines(tool):
    with bridge.wrap(Model) as wrapped:
        Model().inherited()
    assert {name.rpartition(".")[2] for name in wrapped.names} == {
        *("forward", "fetch", "double", "rooted", "upper"),
    }
    assert tool.names() == []


def test_one_object_and_no_other(tool):
    one, other = Model(), Model()
    before = state_of(one)
    with bridge.wrap(one, ["forward"]):
        assert one.forward(1) == other.forward(1) == 2
    assert tool.names() == [f"{__name__}.Model.forward"]
    assert one.__dict__.pop("calls") == 1
    before[0].pop("calls")
    assert same(state_of(one), before)


def test_an_object_with_slots(tool):
    slotted = Slotted()
    slotted.act = abs
    with bridge.wrap(slotted, ["act"]), bridge.wrap(slotted, ["act"]):
        assert slotted.act(-1) == 1
    assert slotted.act is abs
    assert len(tool.names()) == 1


# -- objects with attributes


def test_an_object_keeps_what_it_has(tool, module):
    ufunc, cached = np.add, module.cached
    module.add, module.cached = ufunc, cached
    with bridge.wrap(module, ["add", "cached", "sqrt", "part"]):
        assert module.add(1, 2) == 3
        assert module.add.reduce([1, 2]) == 3
        assert isinstance(module.add, np.ufunc)
        assert module.add == ufunc
        assert {module.add: 1}[ufunc] == {ufunc: 1}[module.add] == 1
        assert str(module.add) == str(ufunc)
        assert module.add.__doc__ == ufunc.__doc__
        assert "outer" in dir(module.add)
        module.cached(2)
        assert module.cached(2) is module.cached(2)
        assert module.cached.cache_info().hits == 2
        assert isinstance(module.sqrt, types.BuiltinFunctionType)
        assert isinstance(module.part, functools.partial)
        assert module.part.args == (3,)
        module.part.note = 5
    assert module.part.note == 5
    assert tool.names() == ["my_module.add", *["my_module.cached"] * 3]


def test_a_kernel_is_launched_as_it_was(tool, module):
    with bridge.wrap(module, ["kernel"]):
        assert module.kernel[2, 3](4) == ((2, 3), 4)
        assert module.kernel(5) == 5
    assert module.kernel.grids == [(2, 3)]
    assert tool.names() == ["my_module.kernel"] * 2


def test_pickled_by_name(tool):
    with bridge.wrap(json, ["dumps"]), bridge.wrap(math, ["floor"]):
        for function in (json.dumps, math.floor):
            assert pickle.loads(pickle.dumps(function)) is function
    assert json.dumps([1]) == "[1]"
    assert tool.names() == []


# -- undoing


def test_twice_is_one_range_and_undone_in_any_order(tool, module):
    for order in permutations(range(3)):
        before = state_of(module, Model, Base)
        handles = [
            bridge.wrap(module, ["load", "Model.inherited"], prefix=f"p{n}") for n in range(3)
        ]
        for done, at in enumerate(order):
            tool.slices.clear()
            module.load(1)
            Model().inherited()
            assert tool.names() == ["p0.load", "p0.Model.inherited"], (order, done)
            handles[at].undo()
            handles[at].undo()
        assert same(state_of(module, Model, Base), before)


@pytest.mark.parametrize("base_first", [True, False])
def test_a_method_wrapped_where_it_is_and_where_it_is_inherited_has_one_range(tool, base_first):
    before = state_of(Model, Base)
    owners = [Base, Model] if base_first else [Model, Base]
    first, second = (bridge.wrap(owner, ["inherited"]) for owner in owners)
    model = Model()
    model.inherited()
    with bridge.wrap(model, ["inherited"]):
        model.inherited()
    assert tool.names() == [f"{__name__}.Model.inherited"] * 2
    first.undo()
    second.undo()
    assert same(state_of(Model, Base), before)


def test_an_alias_in_another_module_has_one_range(tool, module):
    other = types.ModuleType("other")
    with bridge.wrap(module, ["load", "kernel"]):
        other.load, other.kernel = module.load, module.kernel
        with bridge.wrap(other, ["load", "kernel"]):
            other.load(1)
            other.kernel(1)
    assert tool.names() == ["other.load", "other.kernel"]


def test_what_somebody_else_has_put_there_since_stays(tool, module):
    def theirs():
        pass

    first = bridge.wrap(module, ["load"])
    module.load = theirs
    second = bridge.wrap(module, ["load"])
    first.undo()
    module.load()
    second.undo()
    assert module.load is theirs
    assert tool.names() == ["my_module.load"]


# -- what cannot be


@pytest.mark.parametrize(
    ("names", "error", "said"),
    [
        (["load", "nothing"], AttributeError, "nothing"),
        (["load", "nothing.forward"], AttributeError, "nothing"),
        (["load", "Model.nothing"], AttributeError, "nothing"),
        (["load", "number"], TypeError, "number is not a function but 4"),
        (["load", "Model"], TypeError, "name the functions in it"),
        (["load", "math"], TypeError, "name the functions in it"),
        (["load", "Model.size"], TypeError, "Model.size is not a function"),
    ],
)
def test_what_is_no_function_is_said_at_once_and_nothing_is_wrapped(
    tool, module, names, error, said
):
    before = state_of(module, Model)
    with pytest.raises(error, match=said):
        bridge.wrap(module, names)
    assert same(state_of(module, Model), before)


def test_an_owner_that_takes_no_attributes_undoes_what_was_done(tool, module):
    module.array = np.ndarray
    before = state_of(module)
    with pytest.raises(TypeError, match="immutable"):
        bridge.wrap(module, ["load", "array.sum"])
    assert same(state_of(module), before)
    with pytest.raises(TypeError, match="a domain is a string"):
        bridge.wrap(module, ["load"], domain=1)
    with pytest.raises(TypeError, match="a name is a string"):
        bridge.wrap(module, ["load"], prefix=1)
    assert same(state_of(module), before)


def test_an_exception_passes_and_closes_the_range(tool, module):
    with (
        bridge.wrap(module, ["sqrt"]),
        pytest.raises(ValueError, match=r"math domain error|nonneg"),
    ):
        module.sqrt(-1)
    assert tool.popped == ["my_module.sqrt"]

"""What may be annotated, and how: functions, methods, blocks, arguments."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import pytest
from recorder import Recorder

from bridge import nvtx_op
from bridge.annotate import emit, emitter, instant, label, stack
from bridge.annotate.label import Label
from bridge.importers import frames


def test_a_function_is_a_range_of_its_own_name(tool: Recorder) -> None:
    @nvtx_op
    def forward(x: int, *, y: int = 2) -> int:
        """Say what it does."""
        assert tool.open()[-1].endswith("forward")
        return x + y

    assert forward(1, y=5) == 6
    assert tool.names() == ["test_a_function_is_a_range_of_its_own_name.forward"]
    assert forward.__doc__ == "Say what it does."
    assert list(inspect.signature(forward).parameters) == ["x", "y"]


def test_every_call_has_an_id_of_its_own(tool: Recorder) -> None:
    decorated: Any = nvtx_op("f")(lambda: None)
    for _ in range(5):
        decorated()
    assert tool.calls() == {"f": 5}
    assert stack.new_call_id() >> stack.CALL_ID_BITS == 0x4E42
    assert (frames.CALL_ID, frames.CALL_ID_SHIFT) == (0x4E42, stack.CALL_ID_BITS)
    assert (
        frames.COUNTER == instant.COUNTER
    )  # importers do not load the annotations, nor these importers
    assert -(1 << 63) <= stack.new_call_id() < 1 << 63


def test_a_range_closes_when_the_body_raises(tool: Recorder) -> None:
    @nvtx_op("bad")
    def bad() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        bad()
    with pytest.raises(ZeroDivisionError), nvtx_op("block"):
        _ = 1 / 0
    assert tool.all_closed()
    assert tool.names() == ["bad", "block"]


class Layer:
    @nvtx_op
    def forward(self, x: int) -> int:
        return x

    @staticmethod
    @nvtx_op
    def static(x: int) -> int:
        return x

    @classmethod
    @nvtx_op
    def of_class(cls, x: int) -> tuple[str, int]:
        return cls.__name__, x

    @property
    @nvtx_op
    def size(self) -> int:
        return 3

    @nvtx_op("above")
    @staticmethod
    def below(x: int) -> int:
        return x

    @nvtx_op
    @classmethod
    def also_below(cls) -> str:
        return cls.__name__

    @nvtx_op
    def __call__(self, x: int) -> int:
        return x


def test_methods_of_every_kind(tool: Recorder) -> None:
    layer = Layer()
    assert (layer.forward(1), layer.static(2), Layer.static(2)) == (1, 2, 2)
    assert layer.of_class(3) == ("Layer", 3)
    assert layer.size == 3
    assert (layer.below(4), Layer.below(4), layer.also_below(), layer(5)) == (4, 4, "Layer", 5)
    assert tool.names() == [
        "Layer.forward", "Layer.static", "Layer.static", "Layer.of_class", "Layer.size",
        "above", "above", "Layer.also_below", "Layer.__call__",
    ]  # fmt: skip


def test_callables_without_code_of_their_own(tool: Recorder) -> None:
    assert nvtx_op(len)("ab") == 2
    assert nvtx_op(functools.partial(max, 3))(7) == 7
    assert nvtx_op(Layer())(1) == 1
    assert tool.names() == ["len", "max", "Layer", "Layer.__call__"]


def test_everything_a_range_can_say(tool: Recorder) -> None:
    with nvtx_op("b", domain="d", category="c", color="red", payload=7):
        assert tool.open("d") == ("b",)
        assert tool.open() == ()
    piece = tool.slices[0]
    assert piece.label == Label("b", "d", "c", 0xFFFF0000)
    assert piece.payload == 7
    nvtx_op("f", payload=2.5)(lambda: None)()
    assert tool.slices[1].payload == 2.5


@pytest.mark.parametrize(
    ("color", "value"),
    [
        ("red", 0xFFFF0000), ("Green", 0xFF008000), ("#12abEF", 0xFF12ABEF), (0x80123456, 0x80123456),
        (0, 0), (None, None),
    ],
)  # fmt: skip
def test_colours(color: Any, value: int | None) -> None:
    assert label.argb(color) == value


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: nvtx_op(3),  # type: ignore[call-overload]
        lambda: nvtx_op(b"x"),  # type: ignore[call-overload]
        lambda: nvtx_op(Layer),
        lambda: nvtx_op("x", color="rouge"),
        lambda: nvtx_op("x", color="#12345"),
        lambda: nvtx_op("x", color="#12345g"),
        lambda: nvtx_op("x", color=-1),
        lambda: nvtx_op("x", color=True),
        lambda: nvtx_op("x", color=[1]),  # type: ignore[call-overload]
        lambda: nvtx_op("x", domain=1),  # type: ignore[call-overload]
        lambda: nvtx_op("x", category=1),  # type: ignore[call-overload]
        lambda: nvtx_op("x", payload=True),
        lambda: nvtx_op("x", payload="7"),  # type: ignore[call-overload]
        lambda: nvtx_op("x", payload=1 << 63),
        lambda: nvtx_op("x")(property(repr)),  # type: ignore[type-var]
    ],
)
def test_misuse_is_a_type_error_that_names_the_culprit(misuse: Any) -> None:
    with pytest.raises(TypeError, match="nvtx_op"):
        misuse()


def test_a_block_needs_a_name(tool: Recorder) -> None:
    with pytest.raises(TypeError, match="needs a name"), nvtx_op(color="red"):
        pass


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"shapes": True}, r"a block has no arguments: with nvtx_op\('b', shapes=\(a, b\)\)"),
        ({"args": ("n",)}, r"the args of a block are a mapping, not \('n',\)"),
        ({"flops": lambda n: n}, "the flops of a block are a number or 'auto'"),
    ],
)
def test_what_only_a_function_has_is_refused_of_a_block(
    tool: Recorder, details: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TypeError, match=f"nvtx_op: {reason}"), nvtx_op("b", **details):
        pass
    assert tool.names() == []


def test_a_range_whose_details_are_wanted_closes_as_others_do(tool: Recorder) -> None:
    @nvtx_op("inverse", args=("n",))
    def inverse(n: int) -> float:
        assert tool.open() == ("inverse",)
        return 1 / n

    assert inverse(2) == 0.5
    assert tool.open() == ()
    with pytest.raises(ZeroDivisionError):
        inverse(0)
    assert tool.open() == ()
    assert tool.calls() == {"inverse": 2}


def test_recursion(tool: Recorder) -> None:
    @nvtx_op("fib")
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib(6) == 8
    assert tool.calls() == {"fib": 25}
    assert ("fib",) * 5 in tool.parents("fib")


def test_one_annotation_used_again_and_inside_itself(tool: Recorder) -> None:
    op = nvtx_op("x")
    decorated = op(tool.open)
    with op:
        with op:
            assert tool.open() == ("x", "x")
            assert decorated() == ("x", "x", "x")
        assert tool.open() == ("x",)
    assert tool.open() == ()
    assert tool.calls() == {"x": 3}


def test_the_tool_may_come_and_go_within_a_block(tool: Recorder) -> None:
    with nvtx_op("before"):
        other = Recorder()
        emit.use(other)
        with nvtx_op("within"):
            emit.use(emitter.NullEmitter())
            with nvtx_op("unheard"):
                pass
            emit.use(tool)
        assert other.names() == ["within"]
        assert other.all_closed()
    assert tool.names() == ["before"]


@pytest.mark.parametrize("name", ["", "a\0b", "\udc80", "ünï", "☃" * 40_000, "x" * 70_000])
def test_any_name_becomes_text_that_c_can_take(name: str) -> None:
    made = label.text(name)
    assert b"\0" not in made
    assert len(made) <= label.MAX_BYTES
    made.decode()


# -- Callable objects keep what they have


@functools.lru_cache(maxsize=4, typed=True)
def squared(x: int) -> int:
    """Square."""
    return x * x


def test_a_cached_function_keeps_its_cache(tool: Recorder) -> None:
    plain = functools.lru_cache(maxsize=4, typed=True)(squared.__wrapped__)
    op: Any = nvtx_op(plain)
    assert [op(2), op(2), op(3)] == [4, 4, 9]
    assert op.cache_info() == plain.cache_info() == (1, 2, 4, 2)
    assert op.cache_parameters() == {"maxsize": 4, "typed": True}
    op.cache_clear()
    assert op.cache_info().currsize == 0
    assert (op.__name__, op.__doc__, op.__wrapped__) == ("squared", "Square.", squared.__wrapped__)
    assert tool.names() == ["squared"] * 3


def test_a_cached_method_is_bound_and_keeps_its_cache(tool: Recorder) -> None:
    class Model:
        @nvtx_op("size")
        @functools.lru_cache  # noqa: B019 - a few objects
        def size(self, n: int) -> int:
            return n + 1

        @classmethod
        @nvtx_op
        @functools.cache
        def of_class(cls, n: int) -> str:
            return f"{cls.__name__}{n}"

        @nvtx_op
        @staticmethod
        @functools.cache
        def static(n: int) -> int:
            return n

    model = Model()
    assert (model.size(1), model.size(1), Model.size(model, 2)) == (2, 2, 3)
    assert (model.of_class(1), Model.of_class(1), model.static(2)) == ("Model1", "Model1", 2)
    assert Model.size.cache_info().hits == 1
    assert Model.of_class.cache_info().hits == 1
    assert Model.static.cache_info().misses == 1
    names = [name.rpartition(".")[2] for name in tool.names()]
    assert names == ["size"] * 3 + ["of_class"] * 2 + ["static"]


def test_implementations_can_be_registered_with_an_op(tool: Recorder) -> None:
    @nvtx_op
    @functools.singledispatch
    def show(value: object) -> str:
        return "object"

    @show.register
    def _(value: int) -> str:
        return "int"

    assert (show(1), show("x"), show.dispatch(bool)(1)) == ("int", "object", "int")
    assert set(show.registry) == {object, int}
    assert [name.rpartition(".")[2] for name in tool.names()] == ["show"] * 2


def test_a_callable_object_is_still_that_object(tool: Recorder) -> None:
    class Counter:
        calls = 0

        def __call__(self, x: int) -> int:
            self.calls += 1
            return x

    counter = Counter()
    op: Any = nvtx_op("count")(counter)
    assert (op(5), op(6), op.calls, counter.calls) == (5, 6, 2, 2)
    op.calls = 9
    assert counter.calls == 9
    assert isinstance(op, Counter)
    part: Any = nvtx_op(functools.partial(max, 3))
    assert (part.func, part.args, part(7)) == (max, (3,), 7)
    assert tool.names() == ["count", "count", "max"]

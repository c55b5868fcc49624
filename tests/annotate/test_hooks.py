"""Hooks of functions: they see every call, and the program sees nothing of them."""

from __future__ import annotations

import inspect
import traceback
import warnings

import pytest

from bridge.annotate.hooks import FAILED, FunctionHook, Hooks


class Base:
    def method(self, x, *rest, scale=1, **options):
        """Return something of every kind of argument."""
        if x < 0:
            raise ValueError(x)
        if x == 0:
            return None
        return x, rest, scale, options


class Derived(Base):
    __private = 5

    def method(self, x, *rest, scale=1, **options):
        def inner(y):
            return y + self.__private  # a name of the class

        if x == 100:
            for _ in range(2):
                try:
                    return inner(x)
                finally:
                    x = 0
        return super().method(x, *rest, scale=scale, **options)


def closed(a, b):
    def function(x: Missing) -> Missing:  # noqa: F821
        def inner(y: Missing) -> Missing:  # noqa: F821
            return y * b

        return a + inner(x)

    return function


def warns(x):
    warnings.warn("mine", stacklevel=2)
    return x


CALLS = {
    "arguments": (Base.method, (Base(), 1, 2, 3), {"scale": 4, "y": 5}),
    "nothing": (Base.method, (Base(), 0), {}),
    "super": (Derived.method, (Derived(), 7), {"scale": 2}),
    "a name of the class, and a return in a loop": (Derived.method, (Derived(), 100), {}),
    "closure": (closed(3, 4), (5,), {}),
}


@pytest.mark.parametrize("kind", CALLS)
def test_a_hooked_function_returns_what_it_did(kind):
    function, args, kwargs = CALLS[kind]
    seen = []
    hook = FunctionHook(
        function, lambda *given: given, lambda token, result: seen.append((token, result)) or result
    )
    expected = function(*args, **kwargs)
    text, signature, code = (
        inspect.getsource(function),
        inspect.signature(function),
        function.__code__,
    )
    hook.enable()
    try:
        assert function(*args, **kwargs) == expected
        assert inspect.getsource(function) == text
        assert inspect.signature(function) == signature
        assert function.__code__.co_qualname == code.co_qualname
    finally:
        hook.disable()
    assert function.__code__ is code
    ((given, result),) = seen
    assert result == expected
    assert given[0] is args[0]
    if kind == "arguments":
        assert given[1:] == (1, (2, 3), 4, {"y": 5})


def traced() -> str:
    try:
        Derived().method(-1)
    except ValueError:
        return traceback.format_exc()
    raise AssertionError


def test_a_traceback_is_the_same_to_the_letter():
    results = []
    hooks = [
        FunctionHook(owner.method, lambda *_: 1, lambda _, result: results.append(result) or result)
        for owner in (Base, Derived)
    ]
    texts = []
    for switch in ("enable", "disable"):
        for hook in hooks:
            getattr(hook, switch)()
        texts.append(traced())
    assert texts[0] == texts[1]
    assert results == [FAILED, FAILED]


def test_a_warning_names_the_line_of_the_caller():
    hook = FunctionHook(warns, lambda _: None, lambda _, result: result)
    hook.enable()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert warns(3) == 3
    finally:
        hook.disable()
    assert caught[0].filename == __file__


def test_a_call_that_runs_at_the_end_ends_with_its_hook():
    ended = []

    def function(x):
        hook.disable()
        return x

    hook = FunctionHook(
        function, lambda _: "token", lambda token, result: ended.append(token) or result
    )
    hook.enable()
    assert function(1) == function(2) - 1 == 1
    assert ended == ["token"]


def test_hooks_are_enabled_while_anyone_wants_them():
    counted = []
    code = warns.__code__
    hooks = Hooks("these", lambda: [FunctionHook(warns, counted.append, lambda _, result: result)])
    hooks.request(+1)
    hooks.request(+1)
    hooks.request(-1)
    assert warns.__code__ is not code
    hooks.request(-1)
    assert warns.__code__ is code


def coroutine():
    async def function():
        return 1

    return function


def generator():
    yield 1


@pytest.mark.parametrize("function", [eval("lambda x: x"), coroutine(), generator, print])
def test_what_has_no_text_is_said_and_left_alone(function):
    hooks = Hooks("these", lambda: [FunctionHook(function, None, None)])
    with pytest.warns(RuntimeWarning, match="these are not recorded"):
        hooks.request(+1)
    hooks.request(-1)


def test_a_hook_warns_of_nothing_and_lets_no_warning_of_the_program_come_twice():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("of the program", stacklevel=1)
            FunctionHook(Base.method, lambda *_: None, lambda _, result: result)
    assert [str(one.message) for one in seen] == ["of the program"]

"""Errors of our own hooks are one warning and never the program's; the program's pass through untouched."""

from __future__ import annotations

import io
import signal
import sys
import time
import traceback
import warnings
from functools import partial

import pytest

import bridge
from bridge import counter, mark, nvtx_op, nvtx_range
from bridge.annotate import emit
from bridge.annotate.guard import Guard


class Failing:
    """A back end that fails at a call of one kind."""

    name, version = "failing", ""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.calls = 0

    def _call(self, kind: str) -> None:
        self.calls += 1
        if kind == self.kind:
            raise OSError("of the back end")

    def push(self, label: object, payload: float) -> None:
        self._call("push")

    def pop(self, domain: str | None) -> None:
        self._call("pop")

    def mark(self, label: object, payload: float) -> None:
        self._call("mark")

    def start(self, label: object, payload: float) -> int:
        self._call("start")
        return 1

    def end(self, label: object, handle: int) -> None:
        self._call("end")


@pytest.fixture
def use():
    previous, reason = emit.state.emitter, emit.state.reason
    yield emit.use
    emit.use(previous, reason)


def program() -> list[int]:
    """Annotate in every way; return what a program computes meanwhile."""
    result = []

    @nvtx_op
    def function(n: int) -> int:
        return n

    @nvtx_op
    def generator():
        yield 2
        yield 3

    result += [function(1), *generator()]
    with nvtx_op("block"), nvtx_range("phase"):
        result.append(4)
        mark("instant")
    counter("c", 5)
    bridge.push("by hand")
    bridge.pop()
    return result


@pytest.mark.parametrize("kind", ["push", "pop", "mark", "start", "end"])
def test_an_error_of_the_back_end_is_one_warning(use, kind):
    backend = Failing(kind)
    use(backend)
    with pytest.warns(RuntimeWarning) as warned:
        assert program() == [1, 2, 3, 4]
    (text,) = [str(one.message) for one in warned]
    assert "ranges are no longer recorded: OSError: of the back end (bridge/annotate/" in text
    assert emit.state.idle  # and the back end is asked no more
    calls = backend.calls
    assert program() == [1, 2, 3, 4]
    assert backend.calls == calls


@pytest.mark.parametrize("kind", ["push", "pop"])
def test_the_error_of_the_program_is_what_it_gets(use, kind):
    @nvtx_op
    def fails() -> None:
        raise KeyError("of the program")

    use(Failing(kind))
    with pytest.warns(RuntimeWarning), pytest.raises(KeyError, match="of the program") as raised:
        fails()
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert frames[-1].name == "fails"
    assert raised.value.__context__ is None


def shows_nothing(*_: object, **__: object) -> None:
    raise LookupError("of what shows warnings")


@pytest.mark.parametrize("has_stderr", [False, True])
@pytest.mark.parametrize("way", ["shown", "error"])
def test_a_warning_that_cannot_be_shown_does_not_reach_the_program(
    use, monkeypatch, way, has_stderr
):
    stderr = io.StringIO() if has_stderr else None
    monkeypatch.setattr(sys, "stderr", stderr)
    use(Failing("push"))
    with warnings.catch_warnings():
        warnings.simplefilter("error" if way == "error" else "always")
        monkeypatch.setattr(warnings, "showwarning", shows_nothing)
        assert program() == [1, 2, 3, 4]
    if stderr is not None:
        assert "bridge: ranges are no longer recorded: OSError" in stderr.getvalue()


def raises(number: int, frame: object) -> None:
    raise TimeoutError("of the program")


def raises_of_all(*_: object) -> None:
    raise TimeoutError("of the program")


def raises_once(number: int, frame: object) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise TimeoutError("of the program")


class Raising:
    def __call__(self, number: int, frame: object) -> None:
        raise TimeoutError("of the program")


HANDLERS = {
    "function": raises,
    "any arguments": raises_of_all,
    "object": Raising(),
    "method": Raising().__call__,
    "partial": partial(lambda _, number, frame: raises(number, frame), 1),
    "once": raises_once,
}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
def test_what_a_signal_handler_raises_is_the_programs(use, handler):
    class Waiting(Failing):
        def push(self, label: object, payload: float) -> None:
            signal.raise_signal(signal.SIGUSR1)
            time.sleep(0)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        use(Waiting(""))
        with pytest.raises(TimeoutError, match="of the program"):
            program()
        assert not emit.state.idle
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_limits_are_the_programs():
    guard = Guard("hooks")

    @guard.hook
    def hook(error: Exception) -> None:
        raise error

    for error in (RecursionError(), MemoryError()):
        with pytest.raises(type(error)):
            hook(error)
    assert not guard.broken


def test_a_hook_that_failed_is_gone_and_what_closes_is_not():
    ended: list[str] = []
    guard, calls = Guard("hooks", lambda: ended.append("end")), []

    @guard.hook
    def opens() -> None:
        calls.append("opens")
        raise ValueError("ours")

    @guard.closing
    def closes() -> None:
        calls.append("closes")

    with pytest.warns(RuntimeWarning, match=r"hooks are no longer recorded: ValueError: ours"):
        opens()
    opens()
    closes()
    assert (calls, ended) == (["opens", "closes"], ["end"])

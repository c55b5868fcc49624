"""Annotate JAX programs without touching their code: jitted functions, eager ops, waits, copies.

The invariant: a range is a call that runs something. What is only traced (within `jit`, `grad`, `vmap`)
has none there; what `grad` and `vmap` then run has.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial, wraps
from importlib import import_module
from threading import local
from types import FunctionType
from typing import Any

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.patch import Wanted, Wrapped, inside, proxy, replaced
from bridge.annotate.stack import Entry, close, push

try:
    jax: Any = import_module("jax")
    import_module("jax.numpy")
except ImportError as problem:
    raise ImportError(f"bridge.jax needs JAX (pip install jax): {problem}") from None

CALLED_BY_VECTOR = 1 << 11  # Py_TPFLAGS_HAVE_VECTORCALL: such a type never asks for `__call__`
JITS = ("jit", "pjit")  # the primitive that runs a jitted function, whatever the version calls it
OWN = ("jax.", "jaxlib.")  # whose functions are ops, though they are jitted as well
WAIT, COPY = "wait", "copy"

jit: Any = jax.jit  # as it is while nothing is annotated
Jitted: Any = type(jit(abs))


class Here(local):
    """What this thread runs: JAX calls what is jitted or eager through several layers of one name."""

    def __init__(self) -> None:
        self.name: str | None = None


_here = Here()


def _private(name: str, without: str) -> Any:
    """Return what JAX has under a private name; None if this version has no such thing."""
    try:
        return getattr(import_module("jax._src.core"), name)
    except (ImportError, AttributeError):
        warnings.warn(
            f"bridge.jax: this JAX has no {name}: {without}", RuntimeWarning, stacklevel=2
        )
        return None


_runs: Callable[[], Any] = _private("trace_state_clean", "what is only traced has ranges too") or (
    lambda: True
)


def annotate() -> Wrapped:
    """Make ranges of all that JAX runs, until `undo` or the end of the block.

    Calls of jitted functions are `jit:<name>`, eager ops `jax::<name>`; `jax.block_until_ready` is of the
    category "wait", `jax.device_put` and `jax.device_get` are of the category "copy". Warns where this JAX
    lacks a private name that is needed, and goes on without.
    """
    return replaced([*_jitted(), *_eager(), *_transfers()])


def _ranged(name: str, label: Label, call: Callable[..., Any]) -> Callable[..., Any]:
    """Put a range around a call, unless it is a layer of the same call, or is only traced."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if state.idle or _here.name == name or not _runs():
            return call(*args, **kwargs)
        return _run(name, label, partial(call, *args, **kwargs))

    return wraps(call)(run) if isinstance(call, FunctionType) else run


def _run(name: str, label: Label, call: Callable[[], Any]) -> Any:
    entry, around = Entry(label, stack.new_call_id()), _here.name
    _here.name = name
    push(entry)
    try:
        return call()
    finally:
        close(entry)
        _here.name = around


# -- jitted functions


def _jitted() -> Iterator[Wanted]:
    """Replace the call of all jitted functions, old and new.

    CPython takes a new `__call__` for such a type from 3.12 on. Before, the functions that are jitted
    from now on have proxies, and those that JAX shows in public.
    """
    if sys.version_info >= (3, 12) or not Jitted.__flags__ & CALLED_BY_VECTOR:
        yield Wanted(Jitted, "__call__", _every_call)
        return
    yield Wanted(jax, "jit", _jitting)
    yield Wanted(jax.numpy.ufunc, "__call__", _every_call)
    for name, module in list(sys.modules.items()):
        if name.startswith("jax.") and "._" not in name:
            found = [key for key, value in vars(module).items() if type(value) is Jitted]
            yield from (Wanted(module, key, _as_proxy) for key in found if key[0] != "_")


def _every_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Make the method `__call__` of a class of functions that know their names."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 (it becomes that)
        if state.idle:
            return call(self, *args, **kwargs)
        name = getattr(self, "__name__", None)  # JAX's own layers have none
        if name is None or _here.name == name or not _runs():
            return call(self, *args, **kwargs)
        return _run(name, _label(self, name), partial(call, self, *args, **kwargs))

    return __call__


def _jitting(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Make a `jax.jit` whose functions have ranges, also where it is given its options first."""

    @wraps(plain)
    def jitted(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        if type(made) is Jitted:
            return _as_proxy(made)
        return lambda *again, **more: _as_proxy(made(*again, **more))

    return jitted


def _as_proxy(function: Any) -> Any:
    """Make a proxy, whose calls are silent again when nothing is annotated any more."""
    name = getattr(function, "__name__", type(function).__name__)
    label = _label(function, name)

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return (call if jax.jit is jit else ranged)(*args, **kwargs)

        ranged = _ranged(name, label, call)
        return run

    return proxy(inside(function), around)


def _label(function: Any, name: str) -> Label:
    ours = f"{getattr(function, '__module__', '')}.".startswith(OWN)
    return Label(f"jax::{name}" if ours else f"jit:{name}")


# -- eager ops, waits, copies


def _eager() -> Iterator[Wanted]:
    """Replace the method that runs a primitive which is not traced, in `grad` and `vmap` too."""
    trace = _private(
        "EvalTrace", "eager ops have ranges only where they are jitted functions of JAX"
    )
    if trace is not None:
        yield Wanted(trace, "process_primitive", _every_primitive)


def _every_primitive(process: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(process)
    def run(self: Any, primitive: Any, args: Any, params: Any) -> Any:
        if state.idle:
            return process(self, primitive, args, params)
        is_jit = primitive.name in JITS
        name = str(params.get("name", primitive.name)) if is_jit else primitive.name
        if _here.name == name:
            return process(self, primitive, args, params)
        label = Label(f"jit:{name}" if is_jit else f"jax::{name}")
        return _run(name, label, partial(process, self, primitive, args, params))

    return run


def _transfers() -> Iterator[Wanted]:
    """Replace what waits for the device, and what copies to it and from it."""
    for name, category in (("block_until_ready", WAIT), ("device_put", COPY), ("device_get", COPY)):
        label = Label(f"jax.{name}", category=category)
        yield Wanted(jax, name, partial(_ranged, name, label))
        if category == WAIT:
            yield Wanted(type(jax.numpy.zeros(())), name, partial(_method, name, label))


def _method(name: str, label: Label, call: Callable[..., Any]) -> Any:
    """Put a range around a method of arrays, which is no function of Python's."""
    return proxy(call, partial(_ranged, name, label))

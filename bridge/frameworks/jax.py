"""Annotate JAX programs without changing their code: jitted functions, eager ops, waits, copies.

A range is a call that executes something. A call that is only traced (within `jit`, `grad`, `vmap`)
has no range; the calls that `grad` and `vmap` then execute have ranges.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial, wraps
from importlib import import_module
from threading import local
from typing import Any

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.hooks import FunctionHook, Hooks
from bridge.annotate.label import Label
from bridge.annotate.patch import (
    CallHooks,
    HookedCall,
    Patches,
    Replacement,
    original_of,
    proxy,
    replace_attributes,
)
from bridge.annotate.stack import Entry, close, push

try:
    jax: Any = import_module("jax")
    import_module("jax.numpy")
except ImportError as problem:
    raise ImportError(f"bridge.jax needs JAX (pip install jax): {problem}") from problem

JAX = Guard("calls of JAX")
CALLED_BY_VECTOR = 1 << 11  # Py_TPFLAGS_HAVE_VECTORCALL: such a type does not look up `__call__`
JITS = ("jit", "pjit")  # names of the primitive that runs a jitted function, by version
JAX_PACKAGES = ("jax.", "jaxlib.")  # packages whose jitted functions are ops
WAIT, COPY = "wait", "copy"

jit: Any = jax.jit  # the original
Jitted: Any = type(jit(abs))


class Here(local):
    """The call that runs on this thread.

    JAX calls a function through several layers of one name.
    """

    def __init__(self) -> None:
        self.name: str | None = None


_here = Here()


def _private(name: str, without: str) -> Any:
    """Return a private object of JAX; warns and returns None if this version lacks it."""
    try:
        return getattr(import_module("jax._src.core"), name)
    except (ImportError, AttributeError):
        warnings.warn(
            f"bridge.jax: this JAX has no {name}: {without}", RuntimeWarning, stacklevel=2
        )
        return None


_is_executing: Callable[[], Any] = _private(
    "trace_state_clean", "calls that are only traced have ranges too"
) or (lambda: True)


def annotate() -> Patches:
    """Record what JAX executes as ranges, until `undo` or the end of the block.

    Calls of jitted functions are named `jit:<name>`, eager ops `jax::<name>`.
    `jax.block_until_ready` has the category "wait", `jax.device_put` and `jax.device_get` have the
    category "copy". Warns if this version of JAX lacks a private name, and continues without it.
    """
    JAX.broken = False
    return replace_attributes([*_jitted(), *_arrays()], hooks=[_hooks])


Token = tuple[Entry, str | None]  # an open range, and the name of the call around it


def _begin(name: str, label: Label) -> Token | None:
    """Open a range, unless it is a layer of the same call or is only traced."""
    if state.idle or _here.name == name or not _executes():
        return None
    return _open(name, label)


@JAX.hook
def _executes() -> bool:
    return bool(_is_executing())


def _open(name: str | None, label: Label) -> Token:
    entry, outer = Entry(label, stack.new_call_id()), _here.name
    _here.name = name
    push(entry)
    return entry, outer


def _close(token: Token) -> None:
    entry, _here.name = token
    close(entry)


def _end(token: Token | None, result: Any) -> Any:
    """End the range of a function, and return its result."""
    if token is not None:
        _close(token)
    return result


# -- Jitted functions


def _jitted() -> Iterator[Replacement]:
    """Yield replacements for the calls of all jitted functions, existing and new.

    From 3.12 on, CPython respects a new `__call__` of such a type. Before, functions that are
    jitted later and the public functions of JAX get proxies.
    """
    if EVERY_CALL:
        yield Replacement(Jitted, "__call__", JittedCall)
        return
    yield Replacement(jax, "jit", _proxied_jit)
    for name, module in list(sys.modules.items()):
        if name.startswith("jax.") and "._" not in name:
            values = [key for key, value in vars(module).items() if type(value) is Jitted]
            yield from (Replacement(module, key, _as_proxy) for key in values if key[0] != "_")


EVERY_CALL = sys.version_info >= (3, 12) or not Jitted.__flags__ & CALLED_BY_VECTOR


class JittedCall:
    """The `__call__` of the class of jitted functions, with ranges."""

    def __init__(self, original: Any) -> None:
        self.original = original

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        call = self.original.__get__(instance, owner)
        if instance is None or state.idle:
            return call
        return HookedCall(call, CallHooks(partial(_begin_call, instance), _close))


@JAX.hook
def _begin_call(function: Any, *_: object) -> Token | None:
    """Open the range of a function that runs now; None for a layer of the same call or a trace."""
    name = getattr(function, "__name__", None)  # JAX's internal layers have no name
    if state.idle or name is None or _here.name == name or not _is_executing():
        return None
    return _open(name, _label(function, name))


def _proxied_jit(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `jax.jit` whose functions have ranges.

    Also supports options first, as a decorator.
    """

    @wraps(plain)
    def jitted(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        if type(result) is Jitted:
            return _proxied(result)
        return lambda *again, **more: _proxied(result(*again, **more))

    return jitted


def _proxied(function: Any) -> Any:
    return _as_proxy(function) or function


@JAX.hook
def _as_proxy(function: Any) -> Any:
    """Return a proxy with ranges, which stops recording when annotation ends."""
    name = getattr(function, "__name__", type(function).__name__)
    label = _label(function, name)

    def begin() -> Token | None:
        return None if jax.jit is jit else _begin(name, label)

    return proxy(original_of(function), lambda _: CallHooks(begin, _close))


def _label(function: Any, name: str) -> Label:
    is_jax = f"{getattr(function, '__module__', '')}.".startswith(JAX_PACKAGES)
    return Label(f"jax::{name}" if is_jax else f"jit:{name}")


# -- Eager ops, waits, copies


@JAX.hook
def _begin_primitive(_: Any, primitive: Any, __: Any, params: Any) -> Token | None:
    """Open the range of a primitive; None for a layer of the same call."""
    if state.idle:
        return None
    is_jit = primitive.name in JITS
    name = str(params.get("name", primitive.name)) if is_jit else primitive.name
    if _here.name == name:
        return None
    return _open(name, Label(f"jit:{name}" if is_jit else f"jax::{name}"))


TRANSFERS = {"block_until_ready": WAIT, "device_put": COPY, "device_get": COPY}


def _function_hooks() -> Iterator[FunctionHook]:
    """Yield hooks of what executes primitives, also in `grad` and `vmap`, and of waits and copies."""
    trace = _private("EvalTrace", "eager ops have ranges only if they are jitted functions of JAX")
    if trace is not None:
        yield FunctionHook(trace.process_primitive, _begin_primitive, _end)
    if not EVERY_CALL:
        yield FunctionHook(jax.numpy.ufunc.__call__, _begin_call, _end)
    for name, category in TRANSFERS.items():
        begin = partial(_begin_transfer, name, Label(f"jax.{name}", category=category))
        yield FunctionHook(getattr(jax, name), begin, _end)


def _begin_transfer(name: str, label: Label, *_: object) -> Token | None:
    return _begin(name, label)


_hooks = Hooks("eager ops, waits and copies of JAX", _function_hooks)


def _arrays() -> Iterator[Replacement]:
    """Yield the replacement of the method of arrays that waits, which is not a Python function."""
    label = Label("jax.block_until_ready", category=WAIT)
    hooks = CallHooks(partial(_begin, "block_until_ready", label), _close)
    method = partial(proxy, around=lambda _: hooks)
    yield Replacement(type(jax.numpy.zeros(())), "block_until_ready", method)

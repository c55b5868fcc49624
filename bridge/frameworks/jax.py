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
from types import FunctionType
from typing import Any

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.label import Label
from bridge.annotate.patch import Patches, Replacement, original_of, proxy, replace_attributes
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
    return replace_attributes([*_jitted(), *_eager(), *_transfers()])


def _with_range(name: str, label: Label, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``call`` with a range, unless it is a layer of the same call or is only traced."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if state.idle or _here.name == name or not _executes():
            return call(*args, **kwargs)
        return _run(name, label, partial(call, *args, **kwargs))

    return wraps(call)(run) if isinstance(call, FunctionType) else run


@JAX.hook
def _executes() -> bool:
    return bool(_is_executing())


def _run(name: str | None, label: Label, call: Callable[[], Any]) -> Any:
    entry, outer = Entry(label, stack.new_call_id()), _here.name
    _here.name = name
    push(entry)
    try:
        return call()
    finally:
        close(entry)
        _here.name = outer


# -- Jitted functions


def _jitted() -> Iterator[Replacement]:
    """Yield replacements for the calls of all jitted functions, existing and new.

    From 3.12 on, CPython respects a new `__call__` of such a type. Before, functions that are
    jitted later and the public functions of JAX get proxies.
    """
    if sys.version_info >= (3, 12) or not Jitted.__flags__ & CALLED_BY_VECTOR:
        yield Replacement(Jitted, "__call__", _every_call)
        return
    yield Replacement(jax, "jit", _proxied_jit)
    yield Replacement(jax.numpy.ufunc, "__call__", _every_call)
    for name, module in list(sys.modules.items()):
        if name.startswith("jax.") and "._" not in name:
            values = [key for key, value in vars(module).items() if type(value) is Jitted]
            yield from (Replacement(module, key, _as_proxy) for key in values if key[0] != "_")


def _every_call(call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `__call__` with ranges, for a class of functions that have names."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807 (it becomes this method)
        if state.idle or (label := _label_of_call(self)) is None:
            return call(self, *args, **kwargs)
        return _run(self.__name__, label, partial(call, self, *args, **kwargs))

    return __call__


@JAX.hook
def _label_of_call(function: Any) -> Label | None:
    """Return the label of a function that runs now, None for a layer of the same call or a trace."""
    name = getattr(function, "__name__", None)  # JAX's internal layers have no name
    if name is None or _here.name == name or not _is_executing():
        return None
    return _label(function, name)


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

    def around(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            return (call if jax.jit is jit else ranged)(*args, **kwargs)

        ranged = _with_range(name, label, call)
        return run

    return proxy(original_of(function), around)


def _label(function: Any, name: str) -> Label:
    is_jax = f"{getattr(function, '__module__', '')}.".startswith(JAX_PACKAGES)
    return Label(f"jax::{name}" if is_jax else f"jit:{name}")


# -- Eager ops, waits, copies


def _eager() -> Iterator[Replacement]:
    """Yield the replacement of the method that executes primitives, also in `grad` and `vmap`."""
    trace = _private("EvalTrace", "eager ops have ranges only if they are jitted functions of JAX")
    if trace is not None:
        yield Replacement(trace, "process_primitive", _every_primitive)


def _every_primitive(process: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(process)
    def run(self: Any, primitive: Any, args: Any, params: Any) -> Any:
        if state.idle:
            return process(self, primitive, args, params)
        name, label = _label_of_primitive(primitive, params) or (None, None)
        if label is None:
            return process(self, primitive, args, params)
        return _run(name, label, partial(process, self, primitive, args, params))

    return run


@JAX.hook
def _label_of_primitive(primitive: Any, params: Any) -> tuple[str, Label] | None:
    """Return the name and the label of a primitive, None for a layer of the same call."""
    is_jit = primitive.name in JITS
    name = str(params.get("name", primitive.name)) if is_jit else primitive.name
    return (
        None if _here.name == name else (name, Label(f"jit:{name}" if is_jit else f"jax::{name}"))
    )


def _transfers() -> Iterator[Replacement]:
    """Yield replacements of functions that wait for the device, or copy to or from it."""
    for name, category in (("block_until_ready", WAIT), ("device_put", COPY), ("device_get", COPY)):
        label = Label(f"jax.{name}", category=category)
        yield Replacement(jax, name, partial(_with_range, name, label))
        if category == WAIT:
            yield Replacement(type(jax.numpy.zeros(())), name, partial(_method, name, label))


def _method(name: str, label: Label, call: Callable[..., Any]) -> Any:
    """Return a method of arrays, which is not a Python function, with a range."""
    return proxy(call, partial(_with_range, name, label))

"""Annotate CuPy programs without changing their code: functions, ufuncs, own kernels, waits.

Only CuPy's public names are wrapped; calls inside CuPy do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from bridge.annotate.guard import Guard
from bridge.annotate.label import Label
from bridge.annotate.patch import (
    Patches,
    Replacement,
    proxy,
    ranged_callable,
    ranged_proxy,
    replace_attributes,
)

try:
    cupy: Any = import_module("cupy")
except ImportError as problem:
    raise ImportError(f"bridge.cupy needs CuPy (pip install cupy-cuda12x): {problem}") from problem

MODULES = ("cupy", "cupy.fft", "cupy.linalg", "cupy.random")
KERNELS = ("ElementwiseKernel", "RawKernel", "ReductionKernel")
# Without arithmetic: replacing `a + b` would add a Python call to each.
METHODS = (
    *"all any argmax argmin argsort astype clip copy cumprod cumsum dot fill max mean".split(),
    *"min prod repeat round sort std sum take trace var".split(),
)
COPIES = (("cupy", "asnumpy"), ("cupy.ndarray", "get"), ("cupy.ndarray", "set"))
WAITS = ("Stream", "ExternalStream", "Event")
WAIT, COPY = "wait", "copy"


def annotate() -> Patches:
    """Record the calls of CuPy's public functions as ranges, until `undo` or the end of the block.

    Functions and ufuncs are named `cupy.sum`, methods of arrays `cupy.ndarray.sum`, and
    user-defined kernels `kernel:<name>`. Calls that wait have the category "wait", copies from or
    to the host the category "copy".
    """
    KERNELS_GUARD.broken = False
    return replace_attributes([*_functions(), *_methods(), *_kernels(), *_waits()])


def _functions() -> Iterator[Replacement]:
    for path in MODULES:
        module = import_module(path)
        for name in public_functions(module):
            category = COPY if (path, name) in COPIES else None
            yield _replacement(module, name, Label(f"{path}.{name}", category=category))


def public_functions(module: Any) -> list[str]:
    """Return the names of CuPy's functions and ufuncs in a module, without decorators."""
    builders = ("fuse", "memoize", "clear_memo")
    return [
        name
        for name, value in vars(module).items()
        if name[0] != "_"
        and callable(value)
        and not isinstance(value, type)
        and _is_from_cupy(value)
        and name not in builders
    ]


def _is_from_cupy(value: Any) -> bool:
    module = getattr(value, "__module__", None) or type(value).__module__
    return f"{module}.".startswith("cupy")


def _methods() -> Iterator[Replacement]:
    for name in (*METHODS, "get", "set"):
        full = "cupy.ndarray", name
        if hasattr(cupy.ndarray, name):
            category = COPY if full in COPIES else None
            yield _replacement(cupy.ndarray, name, Label(".".join(full), category=category))


def _waits() -> Iterator[Replacement]:
    for name in WAITS:
        label = Label(f"cupy.cuda.{name}.synchronize", category=WAIT)
        yield _replacement(getattr(cupy.cuda, name), "synchronize", label)
    device = Label("cupy.cuda.runtime.deviceSynchronize", category=WAIT)
    yield _replacement(cupy.cuda.runtime, "deviceSynchronize", device)


def _replacement(owner: Any, name: str, label: Label) -> Replacement:
    return Replacement(owner, name, partial(ranged_callable, label=label))


# -- User-defined kernels


def _kernels() -> Iterator[Replacement]:
    """Replace the classes of kernels by proxies whose instances have ranges.

    Otherwise they stay classes.
    """
    for name in KERNELS:
        yield Replacement(cupy, name, partial(_factory, finish=_kernel))
    yield Replacement(cupy, "RawModule", lambda original: proxy(original, _module))


KERNELS_GUARD = Guard("kernels of CuPy")


def _factory(original: Any, finish: Callable[[Any], Any]) -> Any:
    def around(make: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            made = make(*args, **kwargs)
            finished = finish(made)
            return made if finished is None else finished

        return run

    return proxy(original, around)


@KERNELS_GUARD.hook
def _kernel(kernel: Any) -> Any:
    return ranged_proxy(kernel, Label(f"kernel:{kernel.name}"))


def _module(original: Any) -> Any:
    """Return a subclass of ``RawModule`` whose functions have ranges."""

    def get_function(self: Any, name: str) -> Any:
        function = original.get_function(self, name)
        return _kernel(function) or function

    return type(original.__name__, (original,), {"get_function": get_function})

"""Annotate CuPy programs without touching their code: functions, ufuncs, kernels of one's own, waits.

The invariant: what is wrapped is what `cupy` shows in public; CuPy's own way through its parts is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from bridge.annotate.label import Label
from bridge.annotate.patch import Wanted, Wrapped, around, proxy, ranged, replaced

try:
    cupy: Any = import_module("cupy")
except ImportError as problem:
    raise ImportError(f"bridge.cupy needs CuPy (pip install cupy-cuda12x): {problem}") from None

ROOMS = ("cupy", "cupy.fft", "cupy.linalg", "cupy.random")
KERNELS = ("ElementwiseKernel", "RawKernel", "ReductionKernel")
# Beside arithmetic: `a + b` is no call that could be replaced without a Python call for each.
METHODS = (
    *"all any argmax argmin argsort astype clip copy cumprod cumsum dot fill max mean".split(),
    *"min prod repeat round sort std sum take trace var".split(),
)
COPIES = (("cupy", "asnumpy"), ("cupy.ndarray", "get"), ("cupy.ndarray", "set"))
WAITS = ("Stream", "ExternalStream", "Event")
WAIT, COPY = "wait", "copy"


def annotate() -> Wrapped:
    """Make ranges of CuPy's public functions, until `undo` or the end of the block.

    Functions and ufuncs are `cupy.sum`, methods of arrays `cupy.ndarray.sum`, one's own kernels
    `kernel:<name>`; what waits is of the category "wait", what copies from or to the host "copy".
    """
    return replaced([*_functions(), *_methods(), *_kernels(), *_waits()])


def _functions() -> Iterator[Wanted]:
    for room in ROOMS:
        module = import_module(room)
        for name in public(module):
            category = COPY if (room, name) in COPIES else None
            yield _wanted(module, name, Label(f"{room}.{name}", category=category))


def public(module: Any) -> list[str]:
    """List a module's functions and ufuncs, none of NumPy's and none that only builds others."""
    builders = ("fuse", "memoize", "clear_memo")
    return [
        name
        for name, value in vars(module).items()
        if name[0] != "_"
        and callable(value)
        and not isinstance(value, type)
        and _is_cupys(value)
        and name not in builders
    ]


def _is_cupys(value: Any) -> bool:
    home = getattr(value, "__module__", None) or type(value).__module__
    return f"{home}.".startswith("cupy")


def _methods() -> Iterator[Wanted]:
    for name in (*METHODS, "get", "set"):
        full = "cupy.ndarray", name
        if hasattr(cupy.ndarray, name):
            category = COPY if full in COPIES else None
            yield _wanted(cupy.ndarray, name, Label(".".join(full), category=category))


def _waits() -> Iterator[Wanted]:
    for name in WAITS:
        label = Label(f"cupy.cuda.{name}.synchronize", category=WAIT)
        yield _wanted(getattr(cupy.cuda, name), "synchronize", label)
    device = Label("cupy.cuda.runtime.deviceSynchronize", category=WAIT)
    yield _wanted(cupy.cuda.runtime, "deviceSynchronize", device)


def _wanted(owner: Any, name: str, label: Label) -> Wanted:
    return Wanted(owner, name, partial(around, label=label))


# -- kernels of one's own


def _kernels() -> Iterator[Wanted]:
    """Replace the classes of kernels by what makes kernels with ranges; they stay classes for all else."""
    for name in KERNELS:
        yield Wanted(cupy, name, partial(_making, finish=_kernel))
    yield Wanted(cupy, "RawModule", lambda made: proxy(made, _module))


def _making(made: Any, finish: Callable[[Any], Any]) -> Any:
    return proxy(made, lambda make: lambda *args, **kwargs: finish(make(*args, **kwargs)))


def _kernel(kernel: Any) -> Any:
    return ranged(kernel, Label(f"kernel:{kernel.name}"))


def _module(made: Any) -> Any:
    """Derive a class of modules of kernels whose functions have ranges."""

    def get_function(self: Any, name: str) -> Any:
        return _kernel(made.get_function(self, name))

    return type(made.__name__, (made,), {"get_function": get_function})

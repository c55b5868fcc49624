"""Cache the results of a process by callable, shapes, dtypes, device and options.

Two calls have the same key only if a measurement of one is valid for the other, except for what
the key cannot contain: the values in tensors, and globals that the function reads. A part that may
change, such as a module or an object, has no key: the call is measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from types import ModuleType
from typing import Any

from bridge.annotate.details import dtype_name
from bridge.annotate.wrap import op_name_of
from bridge.bench.devices.base import Device

TYPE_NAMES = frozenset(
    ["dtype", "device", "slice", "range", "ellipsis", "memory_format", "layout"]
)  # types
SIMPLE = (int, float, complex, str, bytes, bool, type(None))

_results: dict[tuple[Hashable, ...], Any] = {}


class Identity:
    """Compares equal only for the same object, which it keeps alive: its id stays unique."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


class NoKey(Exception):  # noqa: N818 - internal
    """A part of the key may change while it stays the same object."""


def key(device: Device, options: Hashable, *parts: Any) -> tuple[Hashable, ...] | None:
    """Return the key of a measurement (device, options, parts), None if a part may change."""
    try:
        return (device.name, device.clock, options, *(describe(part) for part in parts))
    except (NoKey, RecursionError):
        return None


def describe(value: Any) -> Hashable:
    """Return a description, equal for values that take a call equally long; raises NoKey."""
    if isinstance(value, SIMPLE) or type(value).__name__ in TYPE_NAMES:
        return type(value).__name__, repr(value)  # as text: 1, 1.0 and True are equal
    if isinstance(value, tuple | list):
        return type(value).__name__, tuple(map(describe, value))
    if isinstance(value, dict):
        return "dict", tuple((describe(key), describe(item)) for key, item in value.items())
    if isinstance(value, partial):
        return "partial", describe(value.func), describe(value.args), describe(value.keywords)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _tensor(value) if len(value.shape) else _scalar(value)
    return _function(value)


def _scalar(value: Any) -> Hashable:
    """Describe a tensor without axes by its value, which may be an amount of work."""
    return type(value).__qualname__, dtype_name(value.dtype), repr(value.item())


def _tensor(value: Any) -> Hashable:
    strides = getattr(value, "strides", None) or getattr(value, "stride", None)
    strides = strides() if callable(strides) else strides
    return (
        type(value).__qualname__,
        tuple(value.shape),
        dtype_name(value.dtype),
        tuple(strides or ()),
        str(getattr(value, "device", "cpu")),
        bool(getattr(value, "requires_grad", False)),
    )


def _function(value: Any) -> Hashable:
    """Describe a function by its code and closure, or by its identity if it is written in C."""
    if not _is_function(value):
        raise NoKey
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, type | ModuleType):
        raise NoKey  # a method, whose object may change
    if not hasattr(value, "__code__"):
        return Identity(value)
    cells = map(_cell_content, getattr(value, "__closure__", None) or ())
    # By identity: a function may close over itself, directly or through another.
    closure = tuple(
        Identity(content) if _is_function(content) else describe(content) for content in cells
    )
    defaults = (
        describe(getattr(value, "__defaults__", None)),
        describe(getattr(value, "__kwdefaults__", None)),
    )
    return (
        value.__module__,
        op_name_of(value),
        value.__code__,
        closure,
        defaults,
        owner and Identity(owner),
    )


def _is_function(value: Any) -> bool:
    """Return whether a value is a function or class, and not an object that can be called."""
    return callable(value) and hasattr(value, "__name__")


def _cell_content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is empty
        return None


def measure_once(key: tuple[Hashable, ...] | None, measure: Callable[[], Any]) -> tuple[Any, bool]:
    """Return the result under a key, and whether it was cached; without a key measure."""
    if key is None:
        return measure(), False
    if key in _results:
        return _results[key], True
    _results[key] = result = measure()
    return result, False


def cache_size(device: str | None = None) -> int:
    """Return the number of cached results, of all devices or of the one with this name ("cpu")."""
    return sum(device in {None, result.device} for result in _results.values())


def reset_cache(device: str | None = None) -> None:
    """Delete the cached results, of all devices or of the one with this name."""
    for key, result in list(_results.items()):
        if device in {None, result.device}:
            del _results[key]

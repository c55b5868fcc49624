"""What was measured already in this process: by callable, shapes and dtypes, device, and options.

The invariant: two calls have one key only if a measurement of the one is one of the other, but for what the key cannot see:
the numbers in the tensors, and globals that the function reads. What may change without being told apart (a module, an
object) has no key: it is measured anew.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from types import ModuleType
from typing import Any

from bridge.annotate.plain_values import str_dtype
from bridge.annotate.wrap import own_name
from bridge.bench.devices.protocol import Device

WORDS = frozenset(
    ["dtype", "device", "slice", "range", "ellipsis", "memory_format", "layout"]
)  # types
SIMPLE = (int, float, complex, str, bytes, bool, type(None))

_results: dict[tuple[Hashable, ...], Any] = {}


class Same:
    """An object that is like none but itself; it is kept alive, so that no other gets its identity."""

    __slots__ = ("one",)

    def __init__(self, one: Any) -> None:
        self.one = one

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.one is self.one

    def __hash__(self) -> int:
        return id(self.one)


class Unknown(Exception):  # noqa: N818 - reads as what it says
    """A part may change while it stays the same object."""


def key(device: Device, options: Hashable, *parts: Any) -> tuple[Hashable, ...] | None:
    """Return the key of a measurement: the device first, then the options, then what each part is; None if one may change."""
    try:
        return (device.name, device.clock, options, *(described(part) for part in parts))
    except (Unknown, RecursionError):
        return None


def described(value: Any) -> Hashable:
    """Return what is the same for values that a call takes equally long for; raises Unknown for what may change."""
    if isinstance(value, SIMPLE) or type(value).__name__ in WORDS:
        return type(value).__name__, repr(value)  # as text, for 1, 1.0 and True are equal
    if isinstance(value, tuple | list):
        return type(value).__name__, tuple(map(described, value))
    if isinstance(value, dict):
        return "dict", tuple((described(k), described(v)) for k, v in value.items())
    if isinstance(value, partial):
        return "partial", described(value.func), described(value.args), described(value.keywords)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _tensor(value) if len(value.shape) else _number(value)
    return _function(value)


def _number(value: Any) -> Hashable:
    """Describe a tensor without axes by its value: it may be how much there is to do."""
    return type(value).__qualname__, str_dtype(value.dtype), repr(value.item())


def _tensor(value: Any) -> Hashable:
    strides = getattr(value, "strides", None) or getattr(value, "stride", None)
    strides = strides() if callable(strides) else strides
    return (
        type(value).__qualname__,
        tuple(value.shape),
        str_dtype(value.dtype),
        tuple(strides or ()),
        str(getattr(value, "device", "cpu")),
        bool(getattr(value, "requires_grad", False)),
    )


def _function(value: Any) -> Hashable:
    """Describe a function by its code and by what it has closed over, one that is written in C by itself."""
    if not _is_function(value):
        raise Unknown
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, type | ModuleType):
        raise Unknown  # a method: its object may change
    if not hasattr(value, "__code__"):
        return Same(value)
    cells = map(_content, getattr(value, "__closure__", None) or ())
    # A function that closes over itself, or over another that does, is described by identity there.
    closed = tuple(Same(one) if _is_function(one) else described(one) for one in cells)
    defaults = (
        described(getattr(value, "__defaults__", None)),
        described(getattr(value, "__kwdefaults__", None)),
    )
    return (
        value.__module__,
        own_name(value),
        value.__code__,
        closed,
        defaults,
        owner and Same(owner),
    )


def _is_function(value: Any) -> bool:
    """Tell functions and classes, of whatever implementation, from objects that can be called."""
    return callable(value) and hasattr(value, "__name__")


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def remembered(key: tuple[Hashable, ...] | None, measure: Callable[[], Any]) -> tuple[Any, bool]:
    """Return what was measured under a key, and whether it was there already; without a key measure."""
    if key is None:
        return measure(), False
    if key in _results:
        return _results[key], True
    _results[key] = found = measure()
    return found, False


def cache_size(device: str | None = None) -> int:
    """Return how many measurements are kept; of one device, by its name ("cpu"), or of all."""
    return sum(device in {None, found.device} for found in _results.values())


def reset_cache(device: str | None = None) -> None:
    """Forget what was measured; of one device, by its name, or of all."""
    for key, found in list(_results.items()):
        if device in {None, found.device}:
            del _results[key]

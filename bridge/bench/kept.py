"""What was measured already in this process: by callable, shapes and dtypes, device, and options.

The invariant: two calls have one key only if a measurement of the one is one of the other, but for what the key cannot see:
the numbers in the tensors, and globals that the function reads.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from bridge.annotate.kept import str_dtype
from bridge.annotate.wrap import own_name
from bridge.bench.devices.protocol import Device

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


def key(device: Device, options: Hashable, *parts: Any) -> tuple[Hashable, ...]:
    """Return the key of a measurement: the device first, then the options, then what each part is."""
    return (device.name, device.clock, options, *(described(part) for part in parts))


def described(value: Any) -> Hashable:
    """Return what is the same for values that a call takes equally long for."""
    if isinstance(value, SIMPLE):
        return type(value).__name__, repr(value)  # as text, for 1, 1.0 and True are equal
    if isinstance(value, tuple | list):
        return type(value).__name__, tuple(map(described, value))
    if isinstance(value, dict):
        return "dict", tuple((described(k), described(v)) for k, v in value.items())
    if isinstance(value, partial):
        return "partial", described(value.func), described(value.args), described(value.keywords)
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _tensor(value)
    return _function(value) if hasattr(value, "__code__") else Same(value)


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
    """Describe a function by its code and by what it has closed over; a method by its object as well."""
    cells = map(_content, getattr(value, "__closure__", None) or ())
    # A function that closes over itself, or over another that does, is described by identity there.
    closed = tuple(Same(one) if callable(one) else described(one) for one in cells)
    defaults = (
        described(getattr(value, "__defaults__", None)),
        described(getattr(value, "__kwdefaults__", None)),
    )
    owner = Same(value.__self__) if hasattr(value, "__self__") else None
    return value.__module__, own_name(value), value.__code__, closed, defaults, owner


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return None


def remembered(key: tuple[Hashable, ...], measure: Callable[[], Any]) -> tuple[Any, bool]:
    """Return what was measured under a key, and whether it was there already."""
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

"""What is kept of a call's values: numbers, texts, shapes and dtypes, so few that the call stays cheap.

The invariant: nothing of what is kept holds a tensor, nor an object of the program's; none waits for a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

MOST = 64  # tensors of one call, and entries of a list that is an argument
LONGEST = 200  # characters of a value that is no number
SCALARS = frozenset([type(None), bool, int, float])
BITS = 64  # of integers that are written as such

Tensor = tuple[tuple[int, ...] | None, Any]  # shape and dtype
NOTHING: Tensor = (None, "")


def plain(value: Any, most: int = MOST) -> Any:
    """Return what can be kept and written: numbers, texts, tuples of them; of others their text."""
    if type(value) in SCALARS and (type(value) is not int or value.bit_length() < BITS):
        return value
    if isinstance(value, str):
        return str(value)[:LONGEST]
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, tuple | list):
        return _list(value, most)
    shape = getattr(value, "shape", None)
    return _array(value, shape, most) if isinstance(shape, tuple) else repr(value)[:LONGEST]


def _number(value: float) -> Any:
    """Return a number of a class of its own, such as an enumeration's, and one of many digits."""
    if isinstance(value, float):
        return float(value)
    return int(value) if int(value).bit_length() < BITS else hex(value)[:LONGEST]


def _array(value: Any, shape: tuple[Any, ...], most: int) -> Any:
    """Return dtype and shape, of a number of NumPy's the number; no device is waited for."""
    if not shape and type(value).__module__ == "numpy" and most:
        return plain(value.item(), 0)
    return f"{str_dtype(getattr(value, 'dtype', ''))}{[_length(one) for one in shape]}"


def _list(values: tuple[Any, ...] | list[Any], most: int) -> Any:
    """Return the first entries, fewer and fewer of lists in lists; "…" stands for the rest."""
    first = tuple(plain(one, most // 8) for one in values[:most])
    return first if len(values) <= most else (*first, "…")


def tensors(values: Iterable[Any], most: int = MOST) -> tuple[Tensor, ...]:
    """Return shape and dtype of each value; of a list those of its first entries, as many as `plain` keeps."""
    found: list[Tensor] = []
    for value in values:
        try:
            shape = getattr(value, "shape", None)
            if isinstance(shape, tuple):
                found.append((shape, getattr(value, "dtype", "")))
                continue
        except Exception:  # noqa: BLE001 - a nested tensor has no one shape, and says so by raising
            shape = None
        if isinstance(value, tuple | list):
            found += _of_list(value, most) if len(found) < MOST else ()
        elif isinstance(shape, list):  # PaddlePaddle's
            found.append((tuple(shape), getattr(value, "dtype", "")))
        else:
            found.append(NOTHING)
    return tuple(found[:MOST] if len(found) > MOST else found)


def _of_list(values: tuple[Any, ...] | list[Any], most: int) -> Iterable[Tensor]:
    """Return the tensors of a list; a list without any, such as a stride, is one value."""
    found = tensors(islice(values, most), most // 8)
    return found if any(shape is not None for shape, _ in found) else (NOTHING,)


def plain_tensors(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Return shapes of plain integers, a symbolic length as -1, and dtypes as texts."""
    return tuple(
        (None if shape is None else tuple(map(_length, shape)), str_dtype(dtype))
        for shape, dtype in tensors
    )


def written_shapes(kind: str, tensors: tuple[Tensor, ...]) -> dict[str, Any]:
    """Return shapes and dtypes as they are written; what is no tensor is null, a symbolic length -1."""
    plain = plain_tensors(tensors)
    return {f"{kind}shapes": [shape for shape, _ in plain], f"{kind}dtypes": [d for _, d in plain]}


def _length(length: Any) -> int:
    return int(length) if isinstance(length, int) or type(length).__module__ == "numpy" else -1


def str_dtype(dtype: Any) -> str:
    """Return a dtype's name without its library's: `torch.float32` is `float32`."""
    return str(dtype).rpartition(".")[2][:LONGEST]

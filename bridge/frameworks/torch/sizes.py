"""The sizes of the inputs of a call as PyTorch writes them into the text of a range."""

from __future__ import annotations

from typing import Any

from torch import Tensor

MAX_BYTES = 1024  # of a text with sizes
SIZES = ", sizes = ["


def with_sizes(name: str, inputs: list[Any]) -> str:
    """Return the text of a call as PyTorch writes it, at most 1 KiB.

    The last inputs may be omitted.
    """
    room = MAX_BYTES - len(name.encode()) - len(SIZES) - len("]")
    sizes: list[str] = []
    for size in _sizes(inputs):
        room -= len(size) + (len(", ") if sizes else 0)
        if room < 0:
            break
        sizes.append(size)
    return f"{name}{SIZES}{', '.join(sizes)}]"


def _sizes(inputs: Any) -> list[str]:
    """Return the size of every input as text.

    Tensors in lists have their own, other values have `[]`.
    """
    sizes: list[str] = []
    for value in inputs:
        if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
            sizes += map(_size, value)
        else:
            sizes.append(_size(value))
    return sizes


def _size(value: Any) -> str:
    """Return the size of a value as text; a symbolic length, as in tracing, is -1."""
    if not isinstance(value, Tensor):
        return "[]"
    lengths = (length if isinstance(length, int) else -1 for length in _shape(value))
    return f"[{', '.join(map(str, lengths))}]"


def _shape(tensor: Any) -> Any:
    return () if tensor.is_nested else tensor.shape  # a nested tensor has no shape

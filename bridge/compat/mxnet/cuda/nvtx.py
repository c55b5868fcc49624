"""MXNet's NVTX ranges: `range_push`, `range_pop`, and `range` as a context manager."""

from __future__ import annotations

from typing import Any

from bridge import annotate

OPAQUE = 0xFF000000
COLOR_BITS = 0xFFFFFF

__all__ = ["range", "range_pop", "range_push"]


def range_push(name: str, color: str | int | None = None) -> None:
    """Open a range on this thread; a color is a name, "#rrggbb" or an integer 0xRRGGBB."""
    annotate.push(name, color=_with_alpha(color))


def range_pop() -> None:
    """Close the innermost range that `range_push` opened on this thread."""
    annotate.pop()


def range(name: str, color: str | int | None = None) -> Any:  # noqa: A001 - MXNet's name
    """Return a range for a block, or for a function as a decorator; an exception closes it, too."""
    return annotate.nvtx_op(name, color=_with_alpha(color))


def _with_alpha(color: str | int | None) -> str | int | None:
    """Return a color as NVTX takes it; one of MXNet without alpha is opaque."""
    return color | OPAQUE if isinstance(color, int) and color <= COLOR_BITS else color

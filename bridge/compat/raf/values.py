"""Numbers as RAF returns them: plain numbers that also have the attribute `value`."""

from __future__ import annotations

__all__ = ["FloatImm", "IntImm"]


class FloatImm(float):
    """A float whose ``value`` is itself, as the constants of TVM have it."""

    @property
    def value(self) -> float:
        """The number."""
        return float(self)


class IntImm(int):
    """An int whose ``value`` is itself, as the constants of TVM have it."""

    @property
    def value(self) -> int:
        """The number."""
        return int(self)

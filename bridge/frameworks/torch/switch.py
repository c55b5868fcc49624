"""What is enabled and disabled by hand, or for the time of a block."""

from __future__ import annotations

from typing import Self


class Switch:
    """Something with `enable` and `disable`; it surrounds a block as well."""

    def enable(self) -> None:
        """Begin to annotate; if that has been done, do nothing."""
        raise NotImplementedError

    def disable(self) -> None:
        """Leave all as it was before; if that has been done, do nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.enable()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.disable()

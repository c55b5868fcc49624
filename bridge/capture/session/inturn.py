"""Calls of which each is made, whatever the others raise."""

from __future__ import annotations

from collections.abc import Callable


def call_all(*calls: Callable[[], object]) -> None:
    """Call these in their order; what they raise goes on once all have been called."""
    if calls:
        try:
            calls[0]()
        finally:
            call_all(*calls[1:])

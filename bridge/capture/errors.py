"""Why a program was not profiled: one line for the user, and the exit status that goes with it."""

from __future__ import annotations

FAILED, MISUSED, NOT_EXECUTABLE, NOT_FOUND = 1, 2, 126, 127  # the last two as shells have them


class CaptureError(Exception):
    """A program cannot be profiled; ``status`` is what the launcher exits with."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


class MisuseError(CaptureError):
    """Options that make no sense together."""

    def __init__(self, message: str) -> None:
        super().__init__(message, MISUSED)

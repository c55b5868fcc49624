"""What is not told exactly of windows, and is refused."""

from __future__ import annotations

from importers.errors import ReportError


class WindowsError(ReportError):
    """The report does not fit into the memory at once, and windows of it do not tell this; said in a line."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: larger than --memory, and {what}; without --memory it works")

"""What a gate found, in words and figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Verdict:
    """One thing judged: which gate, what of the report, whether it passed, and a line that says so.

    ``note`` is a word on what passed, '' mostly.
    """

    gate: str
    subject: str
    passed: bool
    line: str
    note: str = ""

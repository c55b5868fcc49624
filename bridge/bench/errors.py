"""What a user can do wrong with a benchmark; the message is one line for people."""

from __future__ import annotations


class BenchError(ValueError):
    """A benchmark cannot be run as it was asked for; the message says what and why."""

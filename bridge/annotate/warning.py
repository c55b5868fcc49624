"""Warnings of ours, which never become exceptions of the program's, whatever its filters.

The invariant: `warn` returns.
"""

from __future__ import annotations

import sys
import warnings


def warn(message: str, stacklevel: int = 2) -> None:
    """Warn; where warnings are errors, say it on stderr: annotations do not fail a program."""
    try:
        warnings.warn(f"bridge: {message}", RuntimeWarning, stacklevel=stacklevel + 1)
    except RuntimeWarning as made:
        sys.stderr.write(f"{made}\n")

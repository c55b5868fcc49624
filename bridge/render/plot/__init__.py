"""Pictures for papers, drawn by matplotlib without a display: SVG, PNG and PDF.

The same input gives the same bytes. Only this package imports matplotlib, which is an optional
dependency.
"""

from __future__ import annotations

from importlib.util import find_spec


def missing() -> str:
    """Return what to install, '' if matplotlib is there."""
    return (
        "" if find_spec("matplotlib") else "matplotlib is needed: pip install 'nsight-bridge[plot]'"
    )

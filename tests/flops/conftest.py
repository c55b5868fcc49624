"""A report in the making."""

from __future__ import annotations

import pytest


@pytest.fixture
def made():
    """Begin an export of process 100, to which a test adds what it needs."""
    from made_reports import Made

    begun = Made()
    begun.names_of(100)
    return begun

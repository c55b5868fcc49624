"""What sessions must leave as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def all_as_before() -> Iterator[None]:
    """Check that a test leaves what it found: hooks, threads, environment (`watched.unchanged`)."""
    from watched import unchanged

    with unchanged():
        yield

"""State of a process that one test leaves to the next."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def _nothing_is_compiled() -> None:
    """Forget that an earlier test compiled something: composite ops have no ranges from then on."""
    module = sys.modules.get("bridge.frameworks.torch.composite")
    if module is not None:
        module.Compiler.has_run = False

"""The memory of a real training."""

from __future__ import annotations

from pathlib import Path

import pytest

TRAINING = Path(__file__).parent / "data" / "training.pt.trace.json.gz"


@pytest.fixture(scope="session")
def held():
    """Replay the allocations of a training that PyTorch traced."""
    import bridge
    from bridge.analyze.cost.memory import MemoryUsage

    return MemoryUsage.of(bridge.load(TRAINING).attributed)

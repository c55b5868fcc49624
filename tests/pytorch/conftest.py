"""A recording back end in place of a profiler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from annotate.recorder import Recorder

from bridge.annotate import emit


@pytest.fixture
def tool() -> Iterator[Recorder]:
    """Record what is emitted; at the end of every test all ranges must be closed."""
    recorder = Recorder()
    previous, reason = emit.state.emitter, emit.state.reason
    emit.use(recorder)
    yield recorder
    emit.use(previous, reason)
    assert recorder.all_closed()

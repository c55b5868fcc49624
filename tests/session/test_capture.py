"""What is told to the tool that is attached, with a driver of our own, and what is left alone without a tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorder import Recorder

import bridge
from bridge.annotate.label import Label
from bridge.annotate.memory import usage
from bridge.capture.session import control as module
from bridge.capture.session.control import CUDA_SIGNS, DOMAIN, NAME, capture_control, has_context

ROOT = Path(bridge.__file__).parent.parent
DRIVER = "cuda.bindings.driver"
RANGE = Label(NAME, DOMAIN)


class Result(int):
    """A CUresult."""

    name = "CUDA_ERROR_OF_SOME_KIND"


class Context(int):
    """A CUcontext: as the bindings have it, the one at address 0 is true as well."""

    def __bool__(self) -> bool:
        return True


class Driver:
    """Stands for `cuda.bindings.driver`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.results = {"cuProfilerStart": 0, "cuProfilerStop": 0, "cuCtxGetCurrent": 0}
        self.context: int | None = Context(0xC0)

    def _result(self, function: str) -> Result:
        self.calls.append(function)
        return Result(self.results[function])

    def cuProfilerStart(self) -> tuple[Result]:  # noqa: N802
        return (self._result("cuProfilerStart"),)

    def cuProfilerStop(self) -> tuple[Result]:  # noqa: N802
        return (self._result("cuProfilerStop"),)

    def cuCtxGetCurrent(self) -> tuple[Result, Any]:  # noqa: N802
        result = Result(self.results["cuCtxGetCurrent"])
        return result, None if result else self.context

    def taken(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin every test as a process begins: without a tool, a wish or a warning."""
    monkeypatch.setattr(module, "_warned", set())
    for name in (*CUDA_SIGNS, "BRIDGE_CAPTURE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """Attach a tool to a process that has loaded CUDA's library."""
    made = Driver()
    monkeypatch.setitem(sys.modules, DRIVER, made)
    monkeypatch.setattr(usage, "driver_is_loaded", lambda: True)
    monkeypatch.setenv("NV_TPS_LAUNCH_TOKEN", "x")
    return made


def test_the_range_is_there_from_start_to_stop(tool: Recorder) -> None:
    ranged = capture_control("nvtx")
    assert not tool.phases
    for times in (1, 2):
        ranged.start()
        ranged.start()
        assert [label for label, _ in tool.phases.values()] == [RANGE]
        ranged.stop()
        ranged.stop()
        assert tool.phases_ended == [NAME] * times


def test_every_capture_has_an_id_of_its_own(tool: Recorder) -> None:
    ids = set()
    ranged = capture_control("nvtx")
    for _ in range(3):
        ranged.start()
        ids |= {payload for _, payload in tool.phases.values()}
        ranged.stop()
    assert len(ids) == 3


def test_stop_without_start_does_nothing(tool: Recorder, driver: Driver) -> None:
    for kind in module.KINDS:
        capture_control(kind).stop()
    assert (tool.phases_ended, driver.calls) == ([], [])


def test_the_profiler_of_cuda_is_started_and_stopped(tool: Recorder, driver: Driver) -> None:
    profiled = capture_control("cudaProfilerApi")
    for _ in range(2):
        profiled.start()
        profiled.start()
        assert driver.taken() == ["cuProfilerStart"]
        profiled.stop()
        profiled.stop()
        assert driver.taken() == ["cuProfilerStop"]
    assert not tool.phases_ended


def test_captures_that_overlap_are_one_to_cuda(driver: Driver) -> None:
    first, second = capture_control("cudaProfilerApi"), capture_control("cudaProfilerApi")
    first.start()
    second.start()
    first.stop()
    assert driver.taken() == ["cuProfilerStart"]
    second.stop()
    assert driver.taken() == ["cuProfilerStop"]


@pytest.mark.parametrize("kind", ["none", "None", None])
def test_none_captures_nothing(kind: str | None, tool: Recorder, driver: Driver) -> None:
    silent = capture_control(kind)
    silent.start()
    silent.stop()
    assert (tool.phases_ended, driver.calls) == ([], [])


def test_auto_does_both_where_there_is_a_context(
    tool: Recorder, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, end = tool.start, tool.end
    monkeypatch.setattr(tool, "start", lambda *a: (driver.calls.append("range"), start(*a))[1])
    monkeypatch.setattr(tool, "end", lambda *a: (driver.calls.append("end"), end(*a))[1])
    both = capture_control("auto")
    both.start()
    both.stop()
    # The range is within what the other sign captures.
    assert driver.calls == ["cuProfilerStart", "range", "end", "cuProfilerStop"]


@pytest.mark.parametrize(("result", "context"), [(3, None), (201, None), (0, Context(0))])
def test_auto_is_the_range_alone_without_a_context(
    result: int, context: int | None, tool: Recorder, driver: Driver
) -> None:
    driver.results["cuCtxGetCurrent"], driver.context = result, context
    ranged = capture_control("auto")
    ranged.start()
    assert [label for label, _ in tool.phases.values()] == [RANGE]
    driver.results["cuCtxGetCurrent"], driver.context = 0, Context(0xC0)
    ranged.stop()  # what was not started is not stopped
    assert driver.taken() == []
    ranged.start()  # the context has come by now
    ranged.stop()
    assert driver.taken() == ["cuProfilerStart", "cuProfilerStop"]
    driver.results["cuCtxGetCurrent"] = result
    driver.context = context
    ranged.start()  # and has gone
    ranged.stop()
    assert driver.taken() == []


def test_auto_asks_no_library_that_nobody_loaded(
    tool: Recorder, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "driver_is_loaded", lambda: False)
    assert not has_context()
    monkeypatch.setattr(usage, "driver_is_loaded", lambda: True)
    assert has_context()
    monkeypatch.setitem(sys.modules, DRIVER, None)  # not installed
    assert not has_context()


def test_without_a_tool_cuda_is_left_alone(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, tool: Recorder
) -> None:
    monkeypatch.delenv("NV_TPS_LAUNCH_TOKEN")
    assert not has_context()
    alone = capture_control("cudaProfilerApi")
    alone.start()
    alone.stop()
    assert driver.calls == []


@pytest.mark.parametrize("sign", CUDA_SIGNS)
def test_every_sign_of_a_tool_counts(
    sign: str, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NV_TPS_LAUNCH_TOKEN")
    monkeypatch.setenv(sign, "x")
    assert has_context()


def without_driver() -> None:
    raise RuntimeError("no driver was found.\nMuch more about it.")


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (None, r"cuProfilerStart was not called \(.*\); pip install cuda-bindings$"),
        (
            SimpleNamespace(cuProfilerStart=without_driver),
            r"cuProfilerStart was not called \(no driver was found\.\); use CUDA before",
        ),
        (
            SimpleNamespace(cuProfilerStart=lambda: (Result(3),)),
            r"cuProfilerStart failed \(CUDA_ERROR_OF_SOME_KIND\); use CUDA before the first step",
        ),
    ],
    ids=["not installed", "no driver", "not initialised"],
)
def test_what_cannot_be_started_is_said_once_and_not_stopped(
    broken: object, said: str, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, DRIVER, broken)
    profiled = capture_control("cudaProfilerApi")
    with pytest.warns(RuntimeWarning, match=f"^bridge: {said}"):
        profiled.start()
    profiled.stop()
    profiled.start()  # a second warning would be an error
    profiled.stop()
    monkeypatch.setitem(sys.modules, DRIVER, driver)  # a later one may be
    profiled.start()
    profiled.stop()
    assert driver.calls == ["cuProfilerStart", "cuProfilerStop"]


def test_the_environment_decides_for_auto_alone(
    driver: Driver, tool: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDGE_CAPTURE", "cudaprofilerapi")
    assert (capture_control("auto").kind, capture_control("nvtx").kind) == (
        "cudaProfilerApi",
        "nvtx",
    )
    monkeypatch.setenv("BRIDGE_CAPTURE", "auto")
    assert capture_control("AUTO").kind == "auto"
    monkeypatch.setenv("BRIDGE_CAPTURE", "")
    assert capture_control("auto").kind == "auto"
    monkeypatch.setenv("BRIDGE_CAPTURE", "hotkey")
    with pytest.warns(
        RuntimeWarning, match="^bridge: BRIDGE_CAPTURE=hotkey is not one of nvtx, cuda"
    ) as told:
        assert [capture_control("auto").kind for _ in range(2)] == ["auto", "auto"]
    assert len(told) == 1


@pytest.mark.parametrize("kind", ["cuda", ""])
def test_another_kind_is_refused(kind: str) -> None:
    with pytest.raises(ValueError) as raised:
        capture_control(kind)
    assert str(raised.value).startswith(
        f"capture: no kind {kind!r}: one of nvtx, cudaProfilerApi, none, auto"
    )


CAPTURE_TWICE = """
import sys
bare = set(sys.modules)
from bridge.capture.session.control import capture_control
for kind in {kinds}:
    for _ in range(2):
        made = capture_control(kind)
        made.start()
        made.stop()
heavy = {{"nvtx", "ctypes", "cuda", "asyncio", "pandas", "numpy", "click", "inspect", "json", "torch"}}
print(*sorted((set(sys.modules) - bare) & heavy))
try:
    maps = open("/proc/self/maps").read()
except OSError:
    maps = ""
print("libcuda.so" in maps)
"""


def run(kinds: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CAPTURE_TWICE.format(kinds=kinds)],
        env={"PYTHONPATH": str(ROOT), **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )


@pytest.mark.slow
def test_without_a_tool_nothing_is_imported() -> None:
    done = run(list(module.KINDS))
    assert done.stdout.split() == ["False"]
    assert done.stderr == ""


@pytest.mark.slow
def test_auto_does_not_load_cuda() -> None:
    done = run(["auto"], NV_TPS_LAUNCH_TOKEN="x")
    assert done.stdout.split() == ["ctypes", "False"]
    assert done.stderr == ""


@pytest.mark.slow
def test_the_real_driver_is_not_initialised_for_a_capture() -> None:
    """Whether there is a driver or not: a program that has not begun to use CUDA is warned, and goes on."""
    done = run(["cudaProfilerApi"], NV_TPS_LAUNCH_TOKEN="x")
    assert done.stderr.count("RuntimeWarning: bridge: cuProfilerStart ") == 1
    assert len(done.stderr.splitlines()) <= 2  # the warning, and the line of it

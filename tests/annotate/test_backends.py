"""Which library emits the ranges, and what the user is told about it."""

from __future__ import annotations

import ctypes
import json
import struct
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from recorder import Recorder

import bridge
from bridge.annotate import backends, details, emit, stack
from bridge.annotate.emitter import NullEmitter
from bridge.annotate.label import Label
from bridge.annotate.recording import recorder
from bridge.annotate.recording.lines import RANKS

TOOL = {"NVTX_INJECTION64_PATH": "/x.so"}


def chain(monkeypatch: pytest.MonkeyPatch, nvtx: Any, library: Any) -> None:
    monkeypatch.setattr(backends, "connect_nvtx", lambda: nvtx)
    monkeypatch.setattr(backends, "connect_interop", lambda: library)


class Fake(NullEmitter):
    name = "fake"
    version = "1.2"


def test_no_tool_no_range() -> None:
    emitter, reason = emit.choose({})
    assert isinstance(emitter, NullEmitter)
    assert reason == "no tool attached"


@pytest.mark.parametrize("sign", emit.SIGNS)
def test_every_sign_of_a_tool_counts(sign: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    chain(monkeypatch, fake, "never asked")
    assert emit.choose({sign: "1"}) == (fake, "a tool is attached")
    assert isinstance(emit.choose({sign: "1", "BRIDGE_NVTX": "off"})[0], NullEmitter)


def test_a_dummy_domain_makes_way_for_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    chain(monkeypatch, "nvtx 9 is ignored here", fake)
    assert emit.choose(TOOL) == (fake, "nvtx 9 is ignored here")
    assert emit.choose({"BRIDGE_NVTX": "interop"}) == (fake, "BRIDGE_NVTX=interop")


def test_one_warning_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    chain(monkeypatch, "no nvtx", "no library")
    with pytest.warns(RuntimeWarning, match="no nvtx; no library.*pip install nvidia-nvtx"):
        emitter, reason = emit.choose(TOOL)
    assert isinstance(emitter, NullEmitter)
    assert reason == "no nvtx; no library"
    with pytest.warns(RuntimeWarning, match="leave BRIDGE_NVTX at auto"):
        emit.choose({"BRIDGE_NVTX": "nvtx"})
    with pytest.warns(RuntimeWarning, match="not one of auto, off, nvtx, interop"):
        emit.choose({"BRIDGE_NVTX": "nvtxx"})


def test_the_choice_is_made_at_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    chain(monkeypatch, Fake(), "never asked")
    monkeypatch.setenv("BRIDGE_NVTX", "auto")
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    previous = emit.use(None)
    try:
        assert not emit.state.idle
        assert str(bridge.backend()) == "fake 1.2: a tool is attached"
        monkeypatch.setenv("BRIDGE_NVTX", "off")
        assert bridge.backend().name == "fake"
        emit.use(None)
        assert bridge.backend() == ("off", "", "BRIDGE_NVTX=off")
        assert str(bridge.backend()) == "off: BRIDGE_NVTX=off"
        assert emit.state.idle
    finally:
        emit.use(previous)


@pytest.mark.parametrize(
    ("tool", "wanted", "attached"),
    [("1", "auto", True), ("1", "off", False), ("", "interop", False)],
)
def test_details_go_beside_a_report_where_a_tool_hears_the_ranges(
    monkeypatch: pytest.MonkeyPatch, tool: str, wanted: str, attached: bool
) -> None:
    chain(monkeypatch, Recorder(), Recorder())
    for sign in emit.SIGNS:
        monkeypatch.delenv(sign, raising=False)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", tool)
    monkeypatch.setenv("BRIDGE_NVTX", wanted)
    monkeypatch.setattr(emit.state, "attached", None)
    previous = emit.use(None)
    try:
        emit.current()
        assert emit.state.attached is attached
    finally:
        emit.use(previous)


@pytest.mark.parametrize(
    ("environ", "is_begun"),
    [
        ({"RANK": "3"}, True),
        ({"PMIX_RANK": "3"}, True),
        ({}, False),
        ({"RANK": "3", "BRIDGE_SIDECAR": ""}, False),
        ({"RANK": "3", "BRIDGE_SIDECAR": "off"}, False),
    ],
)
def test_a_process_with_a_rank_begins_its_recording_in_a_folder_that_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, environ: dict[str, str], is_begun: bool
) -> None:
    for name in (name for names in RANKS.values() for name in names):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"BRIDGE_SIDECAR": str(tmp_path / "r"), **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(recorder, "_sidecars", {})
    details.record_process()
    files = list(tmp_path.glob("r/bridge-*.jsonl"))
    assert [json.loads(path.read_text())["rank"] for path in files] == [3] * is_begun


def test_the_library_of_the_program_counts_before_that_beside_bridge(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, beside = (tmp_path / name / "cu13" / "lib" / backends.LIBRARY for name in "ab")
    for path in (own, beside):
        path.parent.mkdir(parents=True)
        path.touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "a")])
    monkeypatch.setattr(backends, "BESIDE", tmp_path / "b")
    monkeypatch.setattr(backends, "find_spec", lambda _: spec)
    assert backends.find_library() == own
    own.unlink()
    assert backends.find_library() == beside
    monkeypatch.setattr(backends, "find_spec", lambda _: None)
    assert backends.find_library() == beside


def test_without_the_libraries_there_is_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(backends, "find_spec", lambda _: None)
    monkeypatch.setattr(backends, "BESIDE", tmp_path / "none")
    assert backends.connect_interop() == "libnvtx3interop.so.1 was not found"
    broken = tmp_path / backends.LIBRARY
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(backends, "find_library", lambda: broken)
    assert "libnvtx3interop.so.1 is not usable" in str(backends.connect_interop())
    monkeypatch.setitem(sys.modules, "nvtx", None)
    assert "nvtx cannot be imported" in str(backends.connect_nvtx())


class Library:
    """Stands for the C library, and keeps what it is given."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.texts: list[bytes] = []
        self.answer: int | None = 77

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> int | None:
            self.calls.append((name, arguments))
            if name.endswith(("PushEx", "MarkEx")):
                kind, _, address = struct.unpack("=iiQ", arguments[1][32:])
                self.texts.append(ctypes.string_at(address) if kind == 1 else b"registered")
            return self.answer

        return call

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    fake = Library()
    monkeypatch.setattr(ctypes, "PyDLL", lambda _: fake)
    return fake


def test_the_event_attributes_are_what_nvtx_defines(library: Library) -> None:
    emitter = backends.Interop(Path("x"))
    emitter.push(Label("a", "d", "c", 0xFFFF0000), stack.CALL_ID_BASE + 5)
    emitter.mark(Label("a"), 2.5)
    emitter.pop("d")
    [(domain, event)] = library.of("nvtxDomainRangePushEx")
    assert domain.value == 77
    fields = struct.unpack("=HHIiIiiqiiQ", event)
    assert fields == (3, 48, 1, 1, 0xFFFF0000, 2, 0, stack.CALL_ID_BASE + 5, 3, 0, 77)
    [(default, mark)] = library.of("nvtxDomainMarkEx")
    assert default is None
    assert struct.unpack("=HHIiIiidiiQ", mark) == (3, 48, 0, 0, 0, 3, 0, 2.5, 3, 0, 77)
    assert [domain.value for (domain,) in library.of("nvtxDomainRangePop")] == [77]
    [(of_domain, *category)] = library.of("nvtxDomainNameCategoryA")
    assert (of_domain.value, category) == (77, [1, b"c"])


def test_a_phase_is_ended_by_the_number_that_the_library_gave_it(library: Library) -> None:
    emitter = backends.Interop(Path("x"))
    label = Label("epoch", "d")
    emitter.end(label, emitter.start(label, 1))
    [(domain, number)] = library.of("nvtxDomainRangeEnd")
    assert (domain.value, number.value) == (77, 77)


def test_a_phase_has_the_number_0_where_no_tool_gives_one(library: Library) -> None:
    library.answer = None  # what ctypes makes of a pointer that is 0
    emitter = backends.Interop(Path("x"))
    assert emitter.start(Label("epoch"), 1) == 0


class Package:
    """Stands for the `nvtx` package, and keeps what is marked: in which domain, and with what."""

    def __init__(self) -> None:
        self.marks: list[tuple[Any, Any]] = []

    class Domain:
        def __init__(self, name: str | None) -> None:
            self.handle = f"handle of {name}"

        def get_event_attributes(
            self, _: None, color: int | None, category: str | None, payload: float
        ) -> SimpleNamespace:
            return SimpleNamespace(color=color, category=category, payload=payload)

        def get_registered_string(self, text: str) -> str:
            return f"{text} of {self.handle}"

    get_domain = Domain

    def mark(self, attributes: SimpleNamespace, handle: str) -> None:
        self.marks.append((attributes, handle))

    push_range = pop_range = start_range = end_range = None


def test_a_mark_of_the_package_says_all_that_it_was_given() -> None:
    package = Package()
    backends.Nvtx(package, package).mark(Label("loss", "d", "c", 0xFF0000FF), 2.5)
    [(attributes, handle)] = package.marks
    assert handle == "handle of d"
    assert attributes.message == "loss of handle of d"
    assert (attributes.color, attributes.category, attributes.payload) == (0xFF0000FF, "c", 2.5)


def test_names_are_registered_once_and_not_without_end(library: Library) -> None:
    emitter = backends.Interop(Path("x"))
    for number in range(backends.MAX_LABELS + 10):
        emitter.push(Label(f"n{number}"), 1)
    emitter.push(Label("n0"), 1)
    assert len(library.of("nvtxDomainRegisterStringA")) == backends.MAX_LABELS
    assert library.texts[-3:] == [b"n4104", b"n4105", b"registered"]
    assert len(emitter._ready) == backends.MAX_LABELS


def test_both_libraries_take_any_text() -> None:
    for one in (backends.connect_interop(), lively_nvtx()):
        if isinstance(one, str):
            pytest.skip(one)
        for name in ("", "a\0b", "\udc80", "☃" * 40_000):
            one.push(Label(name, name or None, name, 0xFF0000FF), 1)
            one.mark(Label(name), 1.5)
            one.pop(name or None)


def lively_nvtx() -> backends.Nvtx | str:
    """Connect to nvtx although no tool listens to it."""
    made = backends.connect_nvtx()
    if not isinstance(made, str):
        return made
    nvtx = pytest.importorskip("nvtx")
    from nvtx._lib import lib

    class Domain(lib.Domain):  # type: ignore[misc]  # what it is while a tool listens
        def __new__(cls, name: str | None = None) -> Any:
            domain = object.__new__(cls)
            domain.handle = lib.DomainHandle(name)
            return domain

    class Lively:
        get_domain = staticmethod(Domain)

    assert nvtx
    return backends.Nvtx(Lively, lib)


def test_nvtx_keeps_no_payload_and_no_name_for_ever() -> None:
    emitter = lively_nvtx()
    assert not isinstance(emitter, str)
    for number in range(backends.MAX_LABELS + 10):
        emitter.push(Label(f"n{number}", "d", "c"), number)
        emitter.pop("d")
    assert len(emitter._messages) == backends.MAX_LABELS
    domain = emitter._domains["d"]
    cached = type(domain).get_registered_string
    assert cached.cache_info().currsize < 10


@pytest.mark.slow
def test_nothing_is_imported_before_it_is_needed() -> None:
    program = """
import sys
bare = set(sys.modules)
import bridge
@bridge.nvtx_op
def f(): pass
f()
with bridge.nvtx_op("x"): pass
assert bridge.backend().name == "off", bridge.backend()
heavy = "nvtx asyncio pandas numpy click sqlite3 inspect dataclasses ctypes importlib.metadata".split()
print(*sorted((set(sys.modules) - bare) & set(heavy)))
"""
    environ = {"PATH": "", "PYTHONPATH": str(Path(bridge.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_it_warns_once_per_process() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        previous = emit.use(None)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("NVTX_INJECTION64_PATH", "x")
                patch.delenv("BRIDGE_NVTX", raising=False)
                chain(patch, "no nvtx", "no library")
                for _ in range(3), bridge.nvtx_op("x"):
                    bridge.nvtx_op(len)("ab")
        finally:
            emit.use(previous)
    assert len(caught) == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["forked", "executed"])
def test_nsys_ends_no_child_that_is_forked_before_bridge_is_there(how: str) -> None:
    """It does if NVTX is used for the first time in one; a child that executes a program may use it."""
    program = """
import os, sys
if "forked" in sys.argv and os.fork():
    os.wait()
    sys.exit()
import bridge
print(bridge.backend().reason)
"""
    environ = {"PATH": "", "PYTHONPATH": str(Path(bridge.__file__).parent.parent)}
    environ |= {"NSYS_PROFILING_SESSION_ID": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", program, how]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert ("for the first time after a fork" in done.stdout) == (how == "forked")

"""What a version knows is read from its own help, whichever version it is."""

from __future__ import annotations

import re

import pytest
from pretended import HELP, VERSIONS

from bridge.capture import tool
from bridge.capture.tool import Tool, parse

TEXTS = [path.name for path in sorted(HELP.iterdir())]


def known(name: str) -> Tool:
    return Tool(name.partition("-")[0], "", parse((HELP / name).read_text()))


def test_there_is_a_text_of_every_version():
    assert sorted(f"{n}-{v}.txt" for n, every in VERSIONS.items() for v in every) == TEXTS


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith("nsys")])
def test_every_option_of_nsys_is_found(name):
    found = known(name)
    lines = re.findall(r"^\t-.*", (HELP / name).read_text(), re.MULTILINE)
    assert len(lines) > 50
    for line in lines:
        option = re.search(r"--[\w-]+", line)[0]
        assert option in found.options or f"{option}include" in found.options
    assert found.takes("--nvtx-domain-exclude", "anything")


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith("nsys")])
def test_values_of_nsys_are_those_that_are_listed(name):
    found = known(name)
    for value in ("none", "stop", "stop-shutdown", "repeat", "repeat:3", "repeat-shutdown:3"):
        assert found.takes("--capture-range-end", value)
    assert not found.takes("--capture-range-end", "restart")
    assert found.options["--capture-range"] == {"none", "cudaProfilerApi", "nvtx", "hotkey"}
    assert found.options["--cuda-graph-trace"] == {"graph", "node"}
    assert found.options["--sample"] == {"process-tree", "system-wide", "none"}
    assert found.takes("--output", "anything at all")
    assert found.takes("--nvtx-capture", "capture@nsight-bridge")
    assert not found.takes("--no-such-option", "anything")
    assert {"cuda", "nvtx", "osrt", "cudnn", "cublas"} < found.options["--trace"]
    assert "or" not in found.options["--trace"]


def test_versions_of_nsys_differ():
    old, middle, new = (known(f"nsys-{version}.txt") for version in VERSIONS["nsys"])
    assert "--python-backtrace" not in old.options
    assert middle.takes("--python-backtrace", "cuda")
    assert "--flush-on-cudaprofilerstop" not in old.options
    assert "--python-functions-trace" in new.options
    assert "--python-functions-trace" not in middle.options
    assert [one.takes("--trace", "cusolver") for one in (old, middle, new)] == [False, False, True]


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith("ncu")])
def test_options_and_values_of_ncu(name):
    found = known(name)
    assert found.options["--clock-control"] == {"base", "none", "reset"}
    assert {"kernel", "application", "range"} <= found.options["--replay-mode"]
    for option in (
        "--nvtx",
        "--nvtx-include",
        "--set",
        "--metrics",
        "--export",
        "--force-overwrite",
    ):
        assert found.options[option] == frozenset(), option
    assert ("--graph-profiling" in found.options) is ("2022" not in name)


def test_a_text_without_options_has_none():
    assert parse("usage: something else\n  with words\n") == {}


@pytest.mark.slow
def test_a_tool_that_does_not_run_is_an_error(tmp_path, monkeypatch):
    broken = tmp_path / "nsys"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tool.CaptureError, match="does not run"):
        tool.find_tool("nsys")
    broken.write_text("#!/bin/sh\necho hello\n")
    with pytest.raises(tool.CaptureError, match="lists no options"):
        tool.find_tool("nsys")

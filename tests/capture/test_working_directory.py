"""Programs of the working directory are never run, whatever the PATH says of it."""

from __future__ import annotations

import os
from pathlib import Path

import pretended
import pytest

from bridge.capture import doctor, tool
from bridge.cli import view
from bridge.importers import programs
from bridge.importers.errors import ExportFailed, NotAReport
from bridge.importers.ncu import printing
from bridge.importers.nsys.export_cache import read_export

PATHS = (":/usr/bin", "/usr/bin:", "/usr/bin::/bin", ".", "./", "bin:.", "", "~:..", ":", "x/../.")


@pytest.fixture(params=PATHS)
def path_of_the_folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work in a folder with programs that leave a trace when they run."""
    for folder in (tmp_path, tmp_path / "bin", tmp_path / "x"):
        folder.mkdir(exist_ok=True)
        for name in ("nsys", "ncu", "xdg-open", "firefox"):
            program = folder / name
            program.write_text(f"#!/bin/sh\n: > {tmp_path}/it-ran\n")
            program.chmod(0o755)
    inner = tmp_path / "bin"
    monkeypatch.chdir(inner if ".." in request.param else tmp_path)
    monkeypatch.setenv("PATH", request.param)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.delenv("BROWSER", raising=False)


@pytest.mark.usefixtures("path_of_the_folder")
def test_no_program_of_the_folder_is_found(tmp_path: Path) -> None:
    for name in ("nsys", "ncu"):
        found = (tool.find_program(name), programs.find_program(name))
        assert found[0] == found[1]
        assert found[0] is None or not Path(found[0]).is_relative_to(tmp_path)
        if found[0] is None:
            assert doctor.program(name) is None
            with pytest.raises(tool.CaptureError, match="not on the PATH"):
                tool.find_tool(name)
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("path_of_the_folder")
def test_no_program_of_the_folder_reads_a_report(tmp_path: Path) -> None:
    report = tmp_path / "r.nsys-rep"
    report.write_bytes(b"a report")
    with pytest.raises(ExportFailed):
        read_export(report, Path.read_bytes)
    with pytest.raises(NotAReport):
        printing.raw_page(report)
    assert not (tmp_path / "it-ran").exists()


@pytest.mark.usefixtures("path_of_the_folder")
def test_no_browser_of_the_folder_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(view.webbrowser, "open", lambda _: seen.append(os.environ["PATH"]) or True)
    before = os.environ["PATH"]
    assert view.opened("http://127.0.0.1/x")
    assert all(entry.startswith("/") for entry in seen[0].split(":") if seen[0])
    assert os.environ["PATH"] == before


def test_a_path_that_is_absent_stays_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setattr(view.webbrowser, "open", lambda _: True)
    assert view.opened("http://127.0.0.1/x")
    assert "PATH" not in os.environ


@pytest.mark.parametrize("path", ["/usr/bin:/bin", ":/usr/bin", "/bin:.", "", "a:b:/bin:c"])
def test_both_packages_search_in_the_same_folders(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path)
    expected = ":".join(entry for entry in path.split(":") if entry[:1] == "/")
    assert tool.search_path() == programs.search_path() == expected
    assert tool.find_program("sh") == programs.find_program("sh")


def test_an_absolute_entry_is_used_even_if_it_is_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = pretended.install(tmp_path, "nsys", "2024.2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f":{tmp_path}")
    assert tool.find_program("nsys") == programs.find_program("nsys") == str(found)

"""A report that only nsys reads, and an nsys that is a program of the tests."""

import sys

import pytest
from nsys_stand_in import NSYS, with_settings


@pytest.fixture
def made_nsys(tmp_path, monkeypatch):
    """Put an nsys on the PATH; give its folder, where tests put what it offers and exports, and read how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "nsys"
    program.write_text(NSYS.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def nsys_rep(tmp_path):
    path = tmp_path / "report.nsys-rep"
    path.write_bytes(b"what only nsys knows")
    return path


@pytest.fixture
def exported_settings(made_nsys):
    """What the nsys exports as SQLite: with the settings of the capture, as from 2023 on."""
    return with_settings(made_nsys / "sqlite")

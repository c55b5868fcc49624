"""The wheel and the sdist: what is in them, what is not, what they say of themselves; and the one makes the other."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from email import message_from_string
from email.message import Message
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from real_parts import ROOT

from release.built import build, of_wheel, unpacked

LARGEST_WHEEL = 2_000_000  # bytes
NOT_SHIPPED = re.compile(
    r"__pycache__|\.py[cod]$|\.db(-wal|-journal)?$|/\.git/|/\.venv/|node_modules"
    r"|_cache/|\.hypothesis/|/build/|/dist/|\.env$|\.pem$|id_rsa|/shared/|\.sqlite$"
)
SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bghp_[A-Za-z0-9]{36}|\bAKIA[A-Z0-9]{16}\b|\bpypi-Ag[A-Za-z0-9_-]{60}"
)
FETCHED = ("fetch.sh", "package.json", "package-lock.json", "SHA256SUMS", "charts.js")


class Built(NamedTuple):
    wheel: Path
    sdist: Path
    again: Path  # the wheel of the sdist
    source: Path  # the sdist, unpacked


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if find_spec("uv") is None:
        pytest.skip("uv is not installed: pip install -e '.[dev]'")
    folder = tmp_path_factory.mktemp("built")
    sdist = build(folder / "sdist", ROOT, what="sdist")
    return Built(
        build(folder / "wheel", ROOT, what="wheel"),
        sdist,
        build(folder / "again", sdist, what="wheel"),
        unpacked(sdist, folder / "unpacked"),
    )


@pytest.fixture(scope="module")
def metadata(built: Built) -> Message:
    with zipfile.ZipFile(built.wheel) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_string(wheel.read(name).decode("utf-8"))


def shipped(source: Path) -> list[str]:
    """List the files of the unpacked sdist."""
    return sorted(p.relative_to(source).as_posix() for p in source.rglob("*") if p.is_file())


def python_files(folder: Path, room: str) -> set[str]:
    found = (folder / room).rglob("*.py")
    return {path.relative_to(folder).as_posix() for path in found}


@pytest.mark.slow
def test_the_sdist_makes_the_same_wheel(built):
    assert of_wheel(built.again) == of_wheel(built.wheel)


@pytest.mark.slow
def test_the_wheel_holds_both_packages_whole(built):
    names = set(of_wheel(built.wheel))
    missing = {
        path for room in ("bridge", "importers") for path in python_files(ROOT, room) - names
    }
    assert not missing
    assert {"bridge/py.typed", "importers/py.typed", "bridge/knowledge/kernels/rules.toml"} <= names


def test_the_wheel_holds_nothing_else(built):
    top = {name.partition("/")[0] for name in of_wheel(built.wheel)}
    assert {re.sub(r"-[\d.]+\.dist-info", "-dist-info", name) for name in top} == {
        *("bridge", "importers", "nsight_bridge-dist-info"),
    }


def test_nothing_runs_at_the_start_of_python(built):
    """An installed package must not: each program of the environment would run it."""
    names = [n for n in of_wheel(built.wheel) if n.endswith((".pth", "sitecustomize.py"))]
    assert names == ["bridge/frameworks/autorun/start/sitecustomize.py"]  # beside no package


def test_the_wheel_has_the_page_s_libraries_and_not_how_they_were_fetched(built):
    names = {Path(name).name for name in of_wheel(built.wheel) if "/vendored/" in name}
    assert {"echarts.min.js", "tabulator.min.js", "echarts-LICENSE"} <= names
    assert not names & set(FETCHED)


def test_the_wheel_is_small(built):
    assert built.wheel.stat().st_size < LARGEST_WHEEL


def test_the_sdist_holds_tests_and_documentation(built):
    names = set(shipped(built.source))
    for room in ("tests", "docs", "examples", "benchmarks"):
        assert python_files(ROOT, room) <= names
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages | {".mkdocs.yml", "README.md", "CHANGELOG.md", "LICENSE"} <= names


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_nothing_is_shipped_that_lies_about_or_is_secret(built, kind):
    names = shipped(built.source) if kind == "sdist" else list(of_wheel(built.wheel))
    assert [name for name in names if NOT_SHIPPED.search(f"/{name}")] == []


@pytest.mark.slow
def test_no_key_is_shipped(built):
    files = [path for path in built.source.rglob("*") if path.is_file()]
    texts = {path: path.read_text(encoding="utf-8", errors="replace") for path in files}
    assert [path.name for path, text in texts.items() if SECRET.search(text)] == []


def test_keys_and_caches_would_be_found():
    planted = "-----BEGIN RSA " + "PRIVATE KEY-----"  # apart, or this file would be found
    assert SECRET.search(planted)
    for name in ("/bridge/__pycache__/a.cpython-311.pyc", "/tests/.hypothesis/x", "/bridge.db-wal"):
        assert NOT_SHIPPED.search(name)


@pytest.mark.slow
def test_a_package_index_would_take_both(built):
    if find_spec("twine") is None:
        pytest.skip("twine is not installed: pip install -e '.[dev]'")
    command = [sys.executable, "-m", "twine", "check", "--strict", built.wheel, built.sdist]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_stands_alone_where_no_files_are_beside_it(metadata):
    readme = metadata.get_payload()
    assert isinstance(readme, str)
    assert readme.startswith("# nsight-bridge")
    links = re.findall(r"\]\(([^)]*)\)", readme)
    assert [link for link in links if not link.startswith("https://")] == []
    assert "<!--" not in readme


def test_the_metadata_is_complete(metadata):
    for name in ("Summary", "License-Expression", "License-File", "Keywords", "Requires-Python"):
        assert metadata[name], name
    assert metadata["Description-Content-Type"] == "text/markdown"
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    assert metadata.get_all("Project-URL") is None  # none exists yet

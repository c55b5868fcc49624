"""The wheel and the sdist: what is in them, what is not, what they say of themselves; and the one makes the other."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
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
LICENCES = {  # SPDX: what the texts in the wheel say that is theirs alone
    "Apache-2.0": "Apache License",
    "MIT": "The MIT License",
    "BSD-3-Clause": "BSD 3-Clause License",
    "0BSD": "with or without fee",
}
FETCHED = (
    "nsight-bridge.cdx.json",
    "fetch.sh",
    "package.json",
    "package-lock.json",
    "SHA256SUMS",
    "charts.js",
    "tables.js",
)


class Built(NamedTuple):
    wheel: Path
    sdist: Path
    again: Path  # the wheel of the sdist
    source: Path  # the sdist, unpacked
    sdist_again: Path  # the sdist of that folder, whose files are newer


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    if find_spec("uv") is None:
        pytest.skip("uv is not installed: pip install -e '.[dev]'")
    folder = tmp_path_factory.mktemp("built")
    sdist = build(folder / "sdist", ROOT, what="sdist")
    source = unpacked(sdist, folder / "unpacked")
    return Built(
        build(folder / "wheel", ROOT, what="wheel"),
        sdist,
        build(folder / "again", sdist, what="wheel"),
        source,
        build(folder / "sdist-again", source, what="sdist"),
    )


@pytest.fixture(scope="module")
def metadata(built: Built) -> Message:
    return message_from_string(beside_metadata(built.wheel)["METADATA"].decode("utf-8"))


def beside_metadata(path: Path) -> dict[str, bytes]:
    """Return the files of a wheel's .dist-info, by their path in it."""
    with zipfile.ZipFile(path) as wheel:
        parted = ((name, name.partition(".dist-info/")[2]) for name in wheel.namelist())
        return {inside: wheel.read(name) for name, inside in parted if inside}


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
def test_the_same_tree_makes_the_same_bytes(built):
    """From another folder, with other times of files."""
    assert built.again.read_bytes() == built.wheel.read_bytes()
    assert built.sdist_again.read_bytes() == built.sdist.read_bytes()


@pytest.mark.slow
def test_the_wheel_holds_the_package_whole(built):
    names = set(of_wheel(built.wheel))
    importers = {f"bridge/{path}" for path in python_files(ROOT, "importers")}
    assert not (python_files(ROOT, "bridge") | importers) - names
    assert {"bridge/py.typed", "bridge/knowledge/kernels/rules.toml"} <= names


def test_the_sdist_holds_the_folder_of_importers_and_no_link(built):
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2]: archive.getmember(name) for name in archive.getnames()}
    assert "importers/__init__.py" in names
    assert not [name for name in names if name.startswith("bridge/importers")]
    assert all(member.isfile() or member.isdir() for member in names.values())


def test_the_wheel_holds_nothing_else(built):
    top = {name.partition("/")[0] for name in of_wheel(built.wheel)}
    assert {re.sub(r"-[\d.]+\.dist-info", "-dist-info", name) for name in top} == {
        *("bridge", "nsight_bridge-dist-info"),
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
    assert "pip install -q nsight-bridge && .venv/bin/bridge demo" in readme


def test_the_metadata_is_complete(metadata):
    for name in ("Summary", "License-Expression", "License-File", "Keywords", "Requires-Python"):
        assert metadata[name], name
    assert metadata["Description-Content-Type"] == "text/markdown"
    classifiers = metadata.get_all("Classifier") or []
    assert "Typing :: Typed" in classifiers
    urls = [line.split(", ")[0] for line in metadata.get_all("Project-URL") or []]
    assert urls == ["Homepage", "Documentation", "Changelog", "Issues", "Source"]


def test_pictures_and_links_of_the_readme_lead_to_files_of_this_version(metadata):
    readme = metadata.get_payload()
    assert isinstance(readme, str)
    at = rf"https://[^/]+/[^)]*?(?:blob|raw)/v{re.escape(metadata['Version'])}/"
    paths = re.findall(rf"\]\({at}([^)#]*)", readme)
    assert "docs/images/page-light.png" in paths
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_licences_are_those_of_all_that_is_in_the_wheel(built, metadata):
    files = beside_metadata(built.wheel)
    texts = {
        name: files[f"licenses/{name}"].decode("utf-8") for name in metadata.get_all("License-File")
    }
    bill = json.loads(files["sboms/nsight-bridge.cdx.json"])
    parts = [bill["metadata"]["component"], *bill["components"]]
    named = {licence["license"]["id"] for part in parts for licence in part["licenses"]}
    assert named == set(LICENCES)
    assert set(metadata["License-Expression"].split(" AND ")) == named
    for words in LICENCES.values():
        assert any(words in text for text in texts.values()), words
    shipped = {n for n in of_wheel(built.wheel) if "/licences/" in n and ".dist-info/" not in n}
    assert shipped == set(texts) - {"LICENSE"}


def test_the_list_of_libraries_has_versions_hashes_and_what_uses_what(built):
    bill = json.loads(beside_metadata(built.wheel)["sboms/nsight-bridge.cdx.json"])
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    lock = json.loads(
        (built.source / "bridge/render/page/vendored/package-lock.json").read_text(encoding="utf-8")
    )
    locked = {
        name.removeprefix("node_modules/"): one["version"]
        for name, one in lock["packages"].items()
        if name and "esbuild" not in name  # which bundles them and is not in the wheel
    }
    assert {part["name"]: part["version"] for part in bill["components"]} == locked
    for part in bill["components"]:
        assert part["purl"] == f"pkg:npm/{part['name']}@{part['version']}"
        assert [len(one["content"]) for one in part["hashes"]] == [128]
    refs = {part["bom-ref"] for part in bill["components"]}
    assert {ref for edge in bill["dependencies"] for ref in edge["dependsOn"]} == refs

"""A release: its version stands in every file, its changes are told, and a placeholder stops it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from real_parts import ROOT

from bridge.knowledge.package import VERSION

PROGRAM = ROOT / ".ci" / "release.py"
PLACES = {  # that may name the placeholder
    *("pyproject.toml", "docs/releasing.md", ".ci/release.py"),
    *("tests/release/test_release.py", "tests/release/test_distributions.py"),
}
CHANGES = """# Changelog

## Unreleased

## 1.2.0

### Added

- Something.

## 1.1.0 - 2026-01-01

- Older.
"""


@pytest.fixture(scope="module")
def release() -> ModuleType:
    if not PROGRAM.exists():
        pytest.skip("not in the source distribution")
    spec = spec_from_file_location("release_steps", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a copy of the files that the steps read and write."""
    names = ("pyproject.toml", "CHANGELOG.md", release.SBOM, *release.VERSIONED)
    for name in (*names, f"{release.VENDORED}/package-lock.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    return tmp_path


def filled_in(tree: Path) -> None:
    """Do what docs/releasing.md asks for, and write the changes of the version 1.2.0."""
    project = tree / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    project.write_text(text.replace("example.com", "code.test"), encoding="utf-8")
    (tree / "CHANGELOG.md").write_text(CHANGES, encoding="utf-8")


def test_the_version_is_the_same_everywhere(release):
    found = [pattern.findall(release.read(name)) for name, pattern in release.VERSIONED.items()]
    assert found == [[VERSION]] * len(found)
    assert json.loads(release.read(release.SBOM))["metadata"]["component"]["version"] == VERSION


def test_the_list_of_libraries_is_up_to_date(release):
    assert release.read(release.SBOM) == release.sbom()


def test_a_placeholder_stops_a_release(release, tree):
    filled_in(tree)
    release.set_version("1.2.0")
    assert release.refusals("v1.2.0") == []
    project = tree / "pyproject.toml"
    project.write_text(
        project.read_text(encoding="utf-8").replace("//code.test", "//example.com", 1)
    )
    [reason] = release.refusals("v1.2.0")
    assert re.match(r"pyproject\.toml:\d+: the placeholder example\.com is still there", reason)


def test_another_version_and_a_changelog_without_it_stop_a_release(release, tree):
    filled_in(tree)
    release.set_version("1.3.0")
    (tree / release.SBOM).write_text("{}", encoding="utf-8")
    reasons = release.refusals("v1.2.0")
    assert [reason.split()[0] for reason in reasons] == ["the", "CHANGELOG.md:", release.SBOM]


def test_the_notes_of_a_release_are_its_section(release):
    assert release.notes(CHANGES, "1.2.0") == "### Added\n\n- Something."
    assert release.notes(CHANGES, "1.1.0") == "- Older."
    assert release.notes(CHANGES, "1.2") == ""
    assert release.notes(CHANGES, "Unreleased") == ""


def test_the_changelog_tells_of_this_version_and_leaves_room_for_the_next(release):
    text = release.read("CHANGELOG.md")
    headings = re.findall(r"^## (\S+)", text, re.MULTILINE)
    assert headings[:2] == ["Unreleased", VERSION]
    assert release.notes(text, VERSION)


@pytest.mark.slow
def test_the_placeholder_stands_in_one_place():
    if not (ROOT / ".git").exists():
        pytest.skip("not in a repository")
    listed = subprocess.run(
        ["git", "grep", "-l", "-E", "example[.]com/nsight-bridge|nsight-bridge@example[.]com"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert set(listed.stdout.splitlines()) <= PLACES


def test_every_line_with_the_placeholder_is_found(release):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    urls = tomllib.loads(project)["project"]["urls"]
    lines = project.splitlines()
    found = [lines[number - 1] for number in release.placeholders(project)]
    for address in urls.values():
        assert "example.com" not in address or any(address in line for line in found)
    assert release.placeholders("a\nb = 'https://example.com/x'\n") == [2]


def test_the_documentation_names_the_libraries_of_the_wheel(release):
    rows = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8").casefold()
    for part in json.loads(release.sbom())["components"]:
        name = part["name"].removesuffix("-tables")
        assert (
            f"{name} {part['version']} | {part['licenses'][0]['license']['id']} |".casefold()
            in rows
        )

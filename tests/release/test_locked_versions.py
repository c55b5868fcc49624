"""The versions that CI installs are fixed, have hashes, and are what the project asks for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / ".ci" / "requirements.txt"
LOCKED = re.compile(
    r"^([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^ ;]+)(.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL
)


def wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    return [Requirement(text) for text in [*project["dependencies"], *extras["dev"]]]


@pytest.fixture(scope="module")
def locked() -> dict[str, list[tuple[str, str]]]:
    """Give the versions of each package, with what follows: markers and hashes."""
    if not LOCK.exists():
        pytest.skip("not in the source distribution")
    result: dict[str, list[tuple[str, str]]] = {}
    for name, version, rest in LOCKED.findall(LOCK.read_text(encoding="utf-8")):
        result.setdefault(canonicalize_name(name), []).append((version, rest))
    return result


def test_every_requirement_is_fixed_in_a_version_that_it_allows(locked) -> None:
    for requirement in wanted():
        versions = [version for version, _ in locked.get(canonicalize_name(requirement.name), ())]
        assert versions, requirement
        assert all(requirement.specifier.contains(version) for version in versions), requirement


def test_every_version_has_hashes_and_no_place(locked) -> None:
    assert len(locked) > 100
    for name, versions in locked.items():
        assert all("--hash=sha256:" in rest for _, rest in versions), name
    assert not re.search(r"https?://|file:", LOCK.read_text(encoding="utf-8"))

"""The recipe of conda asks for what the package asks for."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from real_parts import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RECIPE: dict[str, Any] = yaml.safe_load(
    (ROOT / "docker" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
)
NAMES = {"isal": "python-isal"}  # conda-forge's, where it is another
NOT_THERE = {"nvidia-nvtx", "ncu-report"}  # on conda-forge; the recipe says what takes their place


def in_conda(texts: list[str]) -> dict[str, str]:
    """Return requirements of Python as conda has them: the bounds by name."""
    wanted = [Requirement(text) for text in texts]
    return {NAMES.get(r.name, r.name): str(r.specifier) for r in wanted if r.name not in NOT_THERE}


def asked(section: str) -> dict[str, str]:
    """Return what a section of the recipe asks for, without Python and pip."""
    pairs = [line.partition(" ") for line in RECIPE["requirements"][section]]
    return {n: bound for n, _, bound in pairs if n not in {"python", "pip", "__linux"}}


def test_it_asks_for_the_same_packages_with_the_same_bounds():
    assert asked("run") == in_conda(PROJECT["project"]["dependencies"])


def test_it_is_built_with_the_same_tools():
    assert asked("host") == in_conda(PROJECT["build-system"]["requires"])


@pytest.mark.parametrize(
    ("key", "in_project"), [("summary", "description"), ("license", "license")]
)
def test_it_says_the_same_of_the_package(key, in_project):
    assert RECIPE["about"][key] == PROJECT["project"][in_project]


def test_the_oldest_python_and_the_licences_are_the_same():
    project = PROJECT["project"]
    assert f">={RECIPE['context']['python_min']}" == project["requires-python"]
    assert [name.rstrip("/") for name in RECIPE["about"]["license_file"]] == [
        name.removesuffix("/*") for name in project["license-files"]
    ]

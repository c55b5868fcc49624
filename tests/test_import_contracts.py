"""The contracts on imports, in pyproject.toml: they hold, they refuse what they are for, and no imports run in a circle."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from real_parts import ROOT

pytestmark = pytest.mark.slow
grimp = pytest.importorskip("grimp", reason="import-linter is not installed")

# What no contract may let pass, by the module that it is added to, and what the linter then says.
BREACHES = {
    "bridge/analyze/core/devices.py": (
        "from bridge.render import table",
        "from bridge.store import runs",
        "from bridge.cli import options",
        "from bridge.annotate import instant",
        "from bridge import report",
        "def later():\n    from bridge.importers.sqlite_columns import Database",
        "def later():\n    import sqlite3",
        "if TYPE_CHECKING:\n    from pathlib import Path",
    ),
    "bridge/join/steps.py": (
        "from bridge.analyze.core import totals",
        "from bridge.render import units",
    ),
    "bridge/render/units.py": ("import os", "from bridge.store import runs"),
    "bridge/annotate/op.py": ("from bridge.join import nesting", "from bridge import importers"),
    "importers/texts.py": ("from bridge.knowledge import kernels", "from bridge import output"),
    "bridge/analyze/core/totals.py": ("from bridge.analyze.run import steps",),
    "bridge/analyze/run/steps.py": ("def later():\n    from bridge.analyze.tables import build",),
    "bridge/analyze/tables/build.py": ("from bridge.analyze.draw import timeline",),
    "bridge/analyze/checks/why.py": ("from bridge.analyze.draw import timeline",),
    "bridge/capture/tool.py": ("from bridge.cli import run",),
    "bridge/scale/task.py": ("from bridge.store import runs",),
    "bridge/store/names.py": ("from bridge import source",),
    "bridge/source.py": ("from bridge.bench import sweep",),
}
REFUSED = (
    "bridge.analyze.core.devices -> bridge.render.table",
    "bridge.analyze.core.devices -> bridge.store.runs",
    "bridge.analyze.core.devices -> bridge.cli.options",
    "bridge.analyze.core.devices -> bridge.annotate.instant",
    "bridge.analyze.core.devices -> bridge.report",
    "bridge.analyze.core.devices -> bridge.importers.sqlite_columns",
    "bridge.analyze.core.devices -> sqlite3",
    "bridge.analyze.core.devices -> pathlib",
    "bridge.join.steps -> bridge.analyze.core.totals",
    "bridge.join.steps -> bridge.render.units",
    "bridge.render.units -> os",
    "bridge.render.units -> bridge.store.runs",
    "bridge.annotate.op -> bridge.join.nesting",
    "bridge.annotate.op -> bridge.importers",
    "bridge.importers.texts -> bridge.knowledge.kernels",
    "bridge.importers.texts -> bridge.output",
    "bridge.analyze.core.totals -> bridge.analyze.run.steps",
    "bridge.analyze.run.steps -> bridge.analyze.tables.build",
    "bridge.analyze.tables.build -> bridge.analyze.draw.timeline",
    "bridge.analyze.checks.why -> bridge.analyze.draw.timeline",
    "bridge.capture.tool -> bridge.cli.run",
    "bridge.scale.task -> bridge.store.runs",
    "bridge.store.names -> bridge.source",
    "bridge.source -> bridge.bench.sweep",
)


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the packages of a folder against the contracts of this checkout."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    options = ("--config", str(ROOT / "pyproject.toml"), "--no-cache")
    return subprocess.run(
        [sys.executable, "-P", "-c", program, *options],
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def imports() -> dict[str, set[str]]:
    """Return which modules every module imports, within functions and for types too."""
    graph = grimp.build_graph("bridge", cache_dir=None)
    return {one: graph.find_modules_directly_imported_by(one) for one in graph.modules}


def test_the_contracts_hold():
    found = linted(ROOT)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_contracts_refuse_what_they_are_for(tmp_path: Path):
    for package in ("bridge", "importers"):
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, tmp_path / package, symlinks=True, ignore=without)
    for path, lines in BREACHES.items():
        with (tmp_path / path).open("a", encoding="utf-8") as file:
            file.writelines(f"\n{line}\n" for line in ("from typing import TYPE_CHECKING", *lines))
    found = linted(tmp_path)
    assert found.returncode == 1, found.stdout + found.stderr
    assert [line for line in REFUSED if f"{line} " not in found.stdout] == []


def test_a_room_that_stands_nowhere_is_refused(tmp_path: Path):
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "bridge", tmp_path / "bridge", ignore=without)
    (tmp_path / "bridge" / "fresh.py").touch()
    (tmp_path / "bridge" / "analyze" / "new.py").touch()
    refused = linted(tmp_path)
    assert refused.returncode == 1
    assert "- bridge.fresh\n" in refused.stdout
    assert "- bridge.analyze.new\n" in refused.stdout


def test_the_contract_on_importers_names_every_other_room():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = contracts["tool"]["importlinter"]["contracts"]
    [forbidden] = [one["forbidden_modules"] for one in contracts if one["id"] == "importers"]
    inside = {module.split(".")[1] for module in imports() if module.count(".")}
    assert set(forbidden) == {f"bridge.{name}" for name in inside - {"importers"}}


def test_no_imports_run_in_a_circle():
    TopologicalSorter(imports()).prepare()
    with pytest.raises(CycleError):
        TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


def importers_of_the_face(graph: dict[str, set[str]]) -> list[str]:
    return [module for module, others in graph.items() if "bridge" in others]


def test_no_module_imports_the_table_of_names_that_users_see():
    assert importers_of_the_face(imports()) == []
    assert importers_of_the_face({"bridge.a": {"bridge.b"}, "bridge.b": {"bridge"}}) == ["bridge.b"]

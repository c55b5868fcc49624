"""docs/diff.md lists what there is; the examples for CI are files that work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import made_reports
import pytest
import yaml
from docs.pages import bridge_lines
from real_parts import ROOT

from bridge.analyze.compare import COMPARABLE
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.cli import main
from bridge.cli.diff import read_budget as read
from bridge.comparison import diff

PAGE = ROOT / "docs" / "diff.md"
EXAMPLES = ROOT / "examples"
WORKFLOW = EXAMPLES / "github-actions.yml"


def test_the_page_lists_every_column_and_dimension(tmp_path: Path) -> None:
    report = made_reports.small(tmp_path / "a.sqlite")
    text = PAGE.read_text(encoding="utf-8")
    for by in ("op", "op-kernel"):
        found = diff(report, report, by)
        assert [c for c in found.rows if f"`{c}`" not in text and c not in ("op", "kernel")] == []
    left_out = re.search(r"except (thread, [^.]*)\.", text)[1]
    assert set(re.split(r",\s+|\s+and\s+", left_out)) == set(DIMENSIONS) - set(COMPARABLE)


def test_its_budgets_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text(
        re.search(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    )
    assert set(read(tmp_path / "b.toml").columns) == {"gpu_total_ns", "calls", "gpu_self_ns"}
    assert read(EXAMPLES / "budget.toml").whole


def steps() -> list[dict]:
    [job] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"].values()
    return job["steps"]


def test_the_workflow_uses_commands_and_options_that_there_are() -> None:
    lines = [line for step in steps() for line in bridge_lines(step.get("run", ""))]
    assert len(lines) == 3
    for line in lines:
        _, name, *words = shlex.split(line.partition("||")[0])
        params = main.get_command(click.Context(main), name).params
        options = {opt for parameter in params for opt in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= options, line


@pytest.mark.slow
def test_the_workflow_compares_and_reports(tmp_path: Path) -> None:
    for name, count in (("baseline", 30), ("after", 30)):
        made_reports.small(tmp_path / f"{name}.sqlite", steps=count)
    (tmp_path / "budget.toml").write_text("[ops]\ngemm = {calls = 20}")
    assert ran("compare", tmp_path) == 0
    assert (tmp_path / "summary.md").read_text().startswith("### baseline.sqlite → after.sqlite")
    (tmp_path / "budget.toml").write_text("[ops]\ngemm = {calls = 19}")
    assert ran("compare", tmp_path) == 3
    assert ran("junit", tmp_path) == 0
    assert "gemm calls: 20, over the budget of 19" in (tmp_path / "gates.xml").read_text()


def ran(step: str, folder: Path) -> int:
    """Run a step of the workflow as GitHub does, on exports under the names that it uses."""
    [script] = [one["run"] for one in steps() if one.get("id") == step]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script.replace(".nsys-rep", ".sqlite")],
        cwd=folder,
        env={"PATH": path, "GITHUB_STEP_SUMMARY": "summary.md", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode

"""The workflows: what they may do, what they take from others, and that a release runs what docs/releasing.md says."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from real_parts import ROOT

FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (FOLDER / "ISSUE_TEMPLATE").glob("*.yml") if p.name != "config.yml")
if not WORKFLOWS:
    pytest.skip("not in the source distribution", allow_module_level=True)
PINNED = re.compile(r"[\w.-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})")
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")
MAY_WRITE = {  # the only jobs that may do more than read the code
    "attest": {"contents": "read", "id-token": "write", "attestations": "write"},
    "publish": {"id-token": "write"},
    "release": {"contents": "write"},
}
FIELDS = {"textarea", "input", "dropdown", "checkboxes", "markdown"}


def loaded(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job.get("steps", ())


def loose(workflow: dict[str, Any]) -> list[str]:
    """List the actions of others whose version is not fixed."""
    used = [one["uses"] for one in [*workflow["jobs"].values(), *steps(workflow)] if "uses" in one]
    return [name for name in used if not name.startswith("./") and not PINNED.fullmatch(name)]


def release() -> dict[str, Any]:
    return loaded(FOLDER / "workflows" / "release.yml")


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_reads_alone_fixes_versions_and_ends(path):
    workflow = loaded(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert loose(workflow) == []
    for name, job in workflow["jobs"].items():
        if "uses" not in job:
            assert job["timeout-minutes"] <= 180, name
        if "permissions" in job:
            assert job["permissions"] == MAY_WRITE[name], name
        needed = job.get("needs", [])
        assert {needed} if isinstance(needed, str) else set(needed) <= set(workflow["jobs"])
    assert "secrets." not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_text_from_elsewhere_is_pasted_into_a_command(path):
    assert [step for step in steps(loaded(path)) if EXPRESSION.search(step.get("run", ""))] == []


@pytest.mark.slow
def test_the_commands_are_bash():
    scripts = [step["run"] for path in WORKFLOWS for step in steps(loaded(path)) if "run" in step]
    text = "\n".join(f"f{number}() {{\n{script}\n}}" for number, script in enumerate(scripts))
    done = subprocess.run(
        ["bash", "-n"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""


def test_files_that_the_workflows_run_are_there():
    for path in WORKFLOWS:
        for step in steps(loaded(path)):
            words = shlex.split(step.get("run", ""), comments=True)
            for word in words:
                if re.match(r"\.ci/|docker/[\w-]+\.sh|tests/", word):
                    assert (ROOT / word).exists(), f"{path.name}: {word}"


def test_the_job_allows_a_little_more_time_than_the_script_allows_itself():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    itself = int(re.search(r"^most_seconds=(\d+)", script, re.MULTILINE)[1])
    job = loaded(FOLDER / "workflows" / "ci.yml")["jobs"]["debian"]
    assert ".ci/run" in commands(job)
    assert itself < 60 * job["timeout-minutes"] <= itself + 600


def test_a_release_acts_on_a_tag_and_is_refused_first():
    workflow = release()
    assert workflow[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as true
    build = workflow["jobs"]["build"]
    first = next(step["run"] for step in build["steps"] if "run" in step)
    assert first == 'python .ci/release.py check "$GITHUB_REF_NAME"'
    for words in ("diff -r dist again", "twine check --strict", "SOURCE_DATE_EPOCH", "verified"):
        assert words in commands(build)


def test_nothing_is_published_before_all_is_tried():
    jobs = release()["jobs"]
    assert jobs["attest"]["needs"] == ["tests", "wheel"]
    assert (jobs["publish"]["needs"], jobs["release"]["needs"]) == ("attest", "publish")
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert "workflow_call" in loaded(FOLDER / "workflows" / "ci.yml")[True]
    [action] = [step["uses"] for step in jobs["publish"]["steps"] if "pypi" in step["uses"]]
    assert action.startswith("pypa/gh-action-pypi-publish@")
    assert not [step for step in jobs["publish"]["steps"] if "password" in step.get("with", {})]


def test_the_wheel_is_tried_on_every_python_that_it_claims():
    claimed = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert release()["jobs"]["wheel"]["strategy"]["matrix"]["python"] == claimed


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_an_issue_form_is_one(path):
    form = loaded(path)
    assert {"name", "description", "body"} <= set(form)
    fields = form["body"]
    assert {field["type"] for field in fields} <= FIELDS
    ids = [field["id"] for field in fields]
    assert len(ids) == len(set(ids))
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_an_action_without_a_version_is_found():
    bad = {"jobs": {"a": {"steps": [{"uses": "x/y@main"}, {"uses": "x/y@v4"}, {"uses": "x/y"}]}}}
    assert loose(bad) == ["x/y@main", "x/y"]

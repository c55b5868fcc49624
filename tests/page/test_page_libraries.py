"""The libraries in the repository are those that their script makes, with their licences, and in the wheel."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from real_parts import ROOT

FOLDER = ROOT / "bridge" / "render" / "page" / "vendored"


def listed() -> dict[str, str]:
    lines = (FOLDER / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    return {name: sha for sha, name in (line.split(maxsplit=1) for line in lines)}


def sums(folder: Path) -> dict[str, str]:
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in listed()}


def test_the_libraries_are_those_listed():
    assert sums(FOLDER) == listed()
    there = {p.relative_to(FOLDER).as_posix() for p in FOLDER.rglob("*") if p.is_file()}
    ours = {"SHA256SUMS", "fetch.sh", "charts.js", "tables.js", "package.json", "package-lock.json"}
    ours.add("nsight-bridge.cdx.json")  # written by .ci/release.py
    assert there == set(listed()) | ours


def test_every_library_has_its_licence():
    texts = {
        path.name: path.read_text(encoding="utf-8") for path in (FOLDER / "licences").iterdir()
    }
    assert "The MIT License" in texts["tabulator-LICENSE"]
    assert "Apache License" in texts["echarts-LICENSE"]
    assert "The Apache Software Foundation" in texts["echarts-NOTICE"]
    assert "Redistribution and use in source and binary forms" in texts["zrender-LICENSE"]
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    packages = {name.removeprefix("node_modules/") for name in lock["packages"] if name}
    shipped = {name for name in packages if "esbuild" not in name}
    assert shipped == {"tabulator-tables", "echarts", "zrender", "tslib"}


def test_versions_are_exact_and_hashed():
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    wanted = json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))
    for name, version in {**wanted["dependencies"], **wanted["devDependencies"]}.items():
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    assert all(one["integrity"] for name, one in lock["packages"].items() if name)
    assert not [one for one in lock["packages"].values() if "resolved" in one]


@pytest.mark.slow
def test_the_script_makes_the_same_bytes(tmp_path):
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    try:
        done = subprocess.run(
            ["sh", FOLDER / "fetch.sh", tmp_path],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip("npm reaches no registry")
    if done.returncode and not (tmp_path / "echarts.min.js").exists():
        pytest.skip(f"npm fetched nothing: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    assert sums(tmp_path) == listed()


def test_a_changed_library_is_noticed(tmp_path):
    copy = tmp_path / "vendored"
    shutil.copytree(FOLDER, copy)
    (copy / "tabulator.min.js").write_text("changed", encoding="utf-8")
    assert sums(copy) != listed()

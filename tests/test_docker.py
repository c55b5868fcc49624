"""The image cannot be built everywhere, so what it is built of is tried here."""

import re
import shutil
import subprocess

import pytest
from real_parts import ROOT

SCRIPTS = sorted((ROOT / "docker").glob("*.sh"))
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_scripts_are_bash(script):
    assert run("bash", "-n", script).stderr == ""


def test_every_copied_file_is_there():
    copied = re.findall(r"^COPY (?:--\S+ )?(.+) \S+$", DOCKERFILE, re.MULTILINE)
    names = " ".join(copied).split()
    assert "bridge" in names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_image_runs_as_nobody_special_and_is_the_default():
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "\nUSER bridge\n" in last
    assert 'ENTRYPOINT ["bridge"]' in last


@pytest.mark.slow
def test_installing_nsys_again_does_nothing(nsys_tool):
    again = run(ROOT / "docker" / "install-nsys.sh")
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True), again.stderr


@pytest.mark.slow
def test_installing_chromium_again_does_nothing(chromium):
    if not chromium.endswith("/chromium"):
        pytest.skip("this Chromium is not Debian's")
    again = run(ROOT / "docker" / "install-chromium.sh")
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True), again.stderr


@pytest.mark.slow
def test_installing_npm_again_does_nothing():
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    again = run(ROOT / "docker" / "install-npm.sh")
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True), again.stderr

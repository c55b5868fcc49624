"""The image cannot be built everywhere, so what it is built of is tried here."""

import os
import re
import shutil
import subprocess

import pytest
from real_parts import NIGHT, ROOT
from release.built import build

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


def test_the_image_is_built_from_a_wheel():
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "from=wheel" in last
    assert "install-bridge.sh /dist/*.whl" in last


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [[], ["no.whl", "no.tar"], ["--try"], ["--try", __file__], ["--on", "x.whl"]]
)
def test_an_image_without_a_wheel_is_refused_in_one_line(words):
    done = run(ROOT / "docker" / "build-image.sh", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("build-image.sh: names no wheel")


if NIGHT:  # minutes for pip and Debian, which the Docker image takes on every change

    @pytest.fixture(scope="module")
    def wheel(tmp_path_factory):
        return build(tmp_path_factory.mktemp("wheel"), ROOT, what="wheel")

    @pytest.mark.slow
    @pytest.mark.parametrize("words", [["--try"], ["--on", "trixie"], ["--on", "forky"]])
    def test_a_bare_system_installs_a_wheel_that_runs(words, wheel):
        if os.geteuid() or not overlays():
            pytest.skip("needs root and an overlay of the root folder")
        if "--on" in words and not shutil.which("debootstrap"):
            pytest.skip("debootstrap is not installed")
        script = ROOT / "docker" / "build-image.sh"
        done = subprocess.run(
            [script, *words, wheel], capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "cannot remove" not in done.stderr
        assert done.stdout.splitlines()[-1].startswith("build-image.sh: done: ")


def overlays() -> bool:
    """Say whether this system can show its root folder under a layer of memory."""
    script = (
        "mount -t tmpfs t /mnt && mkdir /mnt/u /mnt/w /mnt/r"
        " && mount -t overlay o -o lowerdir=/,upperdir=/mnt/u,workdir=/mnt/w /mnt/r"
    )
    return run("unshare", "--mount", "sh", "-c", script).returncode == 0


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
def test_installing_go_again_does_nothing(go):
    again = run(ROOT / "docker" / "install-go.sh")
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True), again.stderr


@pytest.mark.slow
def test_installing_npm_again_does_nothing():
    if not shutil.which("npm"):
        pytest.skip("npm is not installed")
    again = run(ROOT / "docker" / "install-npm.sh")
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True), again.stderr

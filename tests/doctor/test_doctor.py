"""Each trap is set up for real where that can be done, and `bridge doctor` names it and the way out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command import assert_misused, assert_refused, bridge

from bridge.capture import doctor as traps
from bridge.capture.doctor import CALLS, Machine, Program, SelfTest

HERE = Machine("3.11.7", Program(Path("/usr/bin/nsys"), "2022.4.2.1"), None, "535.1", {}, 2, "")
PASSED = SelfTest("interop 13.0: a tool is attached", CALLS)


def doctor(environ: dict[str, str] | None = None) -> tuple[int, dict[str, list[str]]]:
    """Run it as a user does; return its status, and what it found by kind, with the remedies."""
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "doctor", "--format", "json"],
        env={**os.environ, **(environ or {})}, capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert done.stderr == ""
    found: dict[str, list[str]] = {"ok": [], "note": [], "lost": []}
    for one in json.loads(done.stdout)["findings"]:
        found[one["kind"]].append(f"{one['what']} -> {one['remedy']}")
    return done.returncode, found


@pytest.mark.slow
def test_a_sound_machine(nsys: str) -> None:
    status, found = doctor()
    assert (status, found["lost"]) == (0, [])
    assert found["ok"][0].startswith("nsys 20")
    assert f" recorded all {CALLS} annotated calls, through " in found["ok"][0]


@pytest.mark.slow
def test_an_nvtx_that_is_not_heard(nsys: str) -> None:
    if "DummyDomain" not in doctor()[1]["ok"][0]:
        pytest.skip("this nsys records the installed nvtx package")
    _, found = doctor()
    assert any(
        "does not record ranges of the nvtx package" in note and "nvtx<0.2.12" in note
        for note in found["note"]
    )


@pytest.mark.slow
def test_no_library_that_is_heard(nsys: str, folder: Path) -> None:
    (folder / "nvidia").mkdir()
    (folder / "nvidia" / "__init__.py").touch()  # hides the wheels of NVIDIA's libraries
    (folder / "nvtx.py").write_text("raise ImportError('broken')")
    status, found = doctor({"PYTHONPATH": str(folder)})
    assert status == 1
    assert found["lost"][0].startswith(f"nsys recorded 0 of {CALLS} annotated calls, through off")


@pytest.mark.slow
def test_switched_off(nsys: str) -> None:
    status, found = doctor({"BRIDGE_NVTX": "off"})
    assert status == 1
    assert any("BRIDGE_NVTX=off" in lost and "unset" in lost for lost in found["lost"])


@pytest.mark.slow
def test_no_nsys(folder: Path) -> None:
    status, found = doctor({"PATH": str(folder)})
    assert status == 1
    assert "no nsys on the PATH" in found["lost"][0]


@pytest.mark.slow
def test_an_nsys_without_its_importer(nsys: str, folder: Path) -> None:
    """As Debian packages it: the program in one folder, the importer in another, and no link."""
    real = Path(nsys).resolve()
    if not (real.parent.parent / "host-linux-x64").exists():
        pytest.skip("this nsys is not laid out as Debian's")
    target = folder / "target-linux-x64"
    target.mkdir()
    for file in real.parent.iterdir():
        if file != real:
            (target / file.name).symlink_to(file)
    shutil.copy2(real, target / real.name)  # it looks for the importer beside itself
    status, found = doctor({"PATH": f"{target}{os.pathsep}{os.environ['PATH']}"})
    assert status == 1
    [missing] = [lost for lost in found["lost"] if "finds no importer" in lost]
    assert "-> ln -s" in missing or "-> install" in missing
    if "-> ln -s" in missing:
        subprocess.run(missing.partition("-> ")[2].split(), check=True)
        assert doctor({"PATH": f"{target}{os.pathsep}{os.environ['PATH']}"})[0] == 0


@pytest.mark.slow
def test_what_a_forked_child_annotates_is_not_recorded(nsys: str, folder: Path) -> None:
    """What the note about workers says is so, and its remedy is one."""
    program = (
        "import os, sys, bridge\n"
        "bridge.nvtx_op('parent')(len)('')\n"
        "if not os.fork():\n    bridge.nvtx_op('child')(len)('')\n    sys.exit()\n"
        "os.wait()\n"
    )
    from bridge import importers

    names = {}
    for option in ("false", "true"):
        report = folder / f"{option}.nsys-rep"
        command = [
            nsys,
            "profile",
            "-t",
            "nvtx",
            "-s",
            "none",
            "--cpuctxsw=none",
            f"--trace-fork-before-exec={option}",
        ]
        command += ["-o", str(report.with_suffix("")), sys.executable, "-c", program]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        names[option] = set(importers.load(report).ranges["name"])
    assert names == {"false": {"parent"}, "true": {"parent", "child"}}


@pytest.mark.slow
def test_a_report_that_cannot_be_read(nsys: str, folder: Path) -> None:
    report = folder / "newer.nsys-rep"
    report.write_bytes(b"from the future")
    result = bridge("doctor", report)
    assert_refused(result, "newer.nsys-rep: nsys export failed", "take a newer nsys (here: 20")


def test_a_remedy_for_exports_is_for_reports_that_need_one(folder: Path) -> None:
    (folder / "text.sqlite").write_text("no report" * 100)
    result = bridge("doctor", folder / "text.sqlite")
    assert_refused(result, "text.sqlite")
    assert "newer nsys" not in result.stderr


def test_the_check_of_the_machine_is_no_markdown() -> None:
    assert_misused(bridge("doctor", "--format", "md"), "--format md goes with a report")


@pytest.mark.parametrize(
    ("here", "test", "trap", "kind", "words"),
    [
        (replace(HERE, paranoid=4), PASSED, traps.no_sampling, "note", "perf_event_paranoid is 4"),
        (replace(HERE, paranoid=None), PASSED, traps.no_sampling, None, ""),
        (HERE, PASSED, traps.no_sampling, None, ""),
        (replace(HERE, driver=""), PASSED, traps.no_driver, "note", "no NVIDIA driver"),
        (HERE, PASSED, traps.no_driver, None, ""),
        (HERE, SelfTest("off: nvtx 0.2.17 is ignored here: its domain is a DummyDomain; no libnvtx3"), traps.nvtx_unheard, "lost", "nvidia-nvtx"),
        (HERE, PASSED, traps.nvtx_unheard, None, ""),
        (HERE, PASSED, traps.no_importer, None, ""),
        (HERE, PASSED, traps.switched_off, None, ""),
    ],
)  # fmt: skip
def test_traps_that_cannot_be_set_up_here(here, test, trap, kind, words) -> None:
    found = trap(here, test)
    assert (found and found.kind) == kind
    assert kind is None or words in f"{found.what} {found.remedy}"


@pytest.mark.slow
def test_what_cannot_be_asked_for_is_missing(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(traps, "PARANOID", folder / "none")
    monkeypatch.setattr(traps, "DRIVER", folder / "none")
    (folder / "ncu").write_text("#!/bin/sh\nexit 3\n")
    (folder / "ncu").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    found = traps.inspect_machine()
    assert (found.paranoid, found.driver, found.nsys) == (None, "", None)
    assert found.ncu == Program(folder / "ncu", "")

"""The real nsys captures the active steps of a schedule, and no other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import captured
import pytest
from captures import exported, with_bridge

import bridge
from bridge import importers
from bridge.annotate import stack
from bridge.capture.session.control import DOMAIN, NAME
from bridge.importers.capture import Capture

pytestmark = pytest.mark.slow


ROOT = Path(bridge.__file__).parent.parent
TERMINATED = 128 + 15


def profile(
    nsys: str, folder: Path, *options: str, kind: str = "auto"
) -> subprocess.CompletedProcess[str]:
    """Run the program under nsys, to capture what it says, with these options."""
    call = [
        nsys, "profile", "--trace=nvtx", "--sample=none", "--cpuctxsw=none",
        "-c", "nvtx", "-p", f"{NAME}@{DOMAIN}", *options, "-o", str(folder / "report"),
        sys.executable, captured.__file__, kind,
    ]  # fmt: skip
    environ = with_bridge(BRIDGE_NVTX="auto", BRIDGE_CAPTURE="")
    return subprocess.run(
        call, env=environ, capture_output=True, text=True, check=False, timeout=120
    )


def reports(nsys: str, folder: Path) -> list[Capture]:
    """Load what nsys has written, in its order."""
    written = sorted(folder.glob("*.nsys-rep"))
    return [importers.load(exported(nsys, one)) for one in written]


def steps(report: Capture) -> list[int]:
    ranges = report.ranges
    return sorted(ranges.payload[ranges.name == "step"].tolist())


def test_every_cycle_is_a_report_of_its_active_steps(nsys: str, tmp_path: Path) -> None:
    done = profile(nsys, tmp_path, "--capture-range-end=repeat:2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to its end" in done.stdout
    first, second = reports(nsys, tmp_path)
    assert [steps(first), steps(second)] == [captured.ACTIVE[:2], captured.ACTIVE[2:4]]
    for report in (first, second):
        ranges = report.ranges.to_pandas()
        [around] = ranges[ranges["name"] == NAME].to_dict("records")
        assert (around["kind"], around["domain_name"]) == ("start_end", DOMAIN)
        assert around["payload"] >> stack.CALL_ID_BITS == stack.CALL_ID_BASE >> stack.CALL_ID_BITS
        inside = ranges[ranges["name"] == "step"]
        assert around["start"] <= inside["start"].min()
        assert inside["end"].max() <= around["end"]


def test_the_first_cycle_alone_is_a_report_and_the_program_goes_on(
    nsys: str, tmp_path: Path
) -> None:
    done = profile(nsys, tmp_path, "--capture-range-end=stop", kind="nvtx")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to its end" in done.stdout
    [only] = reports(nsys, tmp_path)
    assert steps(only) == captured.ACTIVE[:2]


def test_one_report_may_go_on_from_the_first_cycle_to_the_end(nsys: str, tmp_path: Path) -> None:
    done = profile(nsys, tmp_path, "--capture-range-end=none")
    assert done.returncode == 0, done.stdout + done.stderr
    [only] = reports(nsys, tmp_path)
    assert steps(only) == list(range(captured.ACTIVE[0], captured.STEPS))
    assert (only.ranges["name"] == NAME).sum() == 4


@pytest.mark.parametrize(("options", "ends"), [((), False), (("--kill=none",), True)])
def test_what_nsys_does_by_itself_ends_the_program(
    nsys: str, tmp_path: Path, options: tuple[str, ...], ends: bool
) -> None:
    done = profile(nsys, tmp_path, *options)
    assert done.returncode == (0 if ends else TERMINATED)
    assert ("to its end" in done.stdout) is ends
    [only] = reports(nsys, tmp_path)
    assert steps(only) == captured.ACTIVE[:2]


def test_without_a_range_nothing_is_captured(nsys: str, tmp_path: Path) -> None:
    done = profile(nsys, tmp_path, "--capture-range-end=repeat", kind="none")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "to its end" in done.stdout
    assert not list(tmp_path.glob("*.nsys-rep"))

"""The heap that keeps what is freed: fewer pages are asked of the system, for large reports alone."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from bridge.scale import malloc

PROGRAM = """
import resource, sys
from pathlib import Path

import numpy as np

from bridge.scale import malloc

kept = malloc.keep_for([Path(sys.argv[1])])
arrays = [np.ones(40 << 17) for _ in range(2)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    arrays[0] = np.ones(40 << 17)
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(report: Path) -> tuple[str, int]:
    """Return whether the heap keeps, and how many pages it took to make an array of 40 MB twenty times."""
    words = [sys.executable, "-c", PROGRAM, report]
    # Pages of 4 KiB, which every system counts alike.
    said = subprocess.run(
        words, env={"NUMPY_MADVISE_HUGEPAGE": "0"}, capture_output=True, text=True, check=True
    ).stdout.split()
    return said[0], int(said[1])


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Make a file that takes as much as a large report, and no room on the disk."""
    report = tmp_path / "large.sqlite"
    with report.open("wb") as file:
        file.truncate(malloc.LARGE)
    return report


@pytest.mark.slow
def test_pages_are_used_again_for_a_large_report(large, tmp_path):
    if not hasattr(ctypes.CDLL(None), "mallopt"):
        pytest.skip("the C library has no mallopt")
    small = tmp_path / "small.sqlite"
    small.write_bytes(b"")
    kept, few = faults(large)
    left, many = faults(small)
    assert (kept, left) == ("True", "False")
    assert (
        few < many / 5
    )  # of 10 240 for each array, fewer where the system makes large pages by itself


def test_what_is_no_file_is_not_counted(tmp_path):
    assert not malloc.keep_for([tmp_path, tmp_path / "absent"])

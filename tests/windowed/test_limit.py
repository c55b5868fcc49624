"""How much memory a report is said to take, by the figures of docs/memory-limit.md, and in how many windows it fits into less."""

from __future__ import annotations

import pytest
from command import assert_misused, bridge
from made_reports import report

from bridge.scale.requests import Asked
from bridge.scale.windows import window
from importers.errors import ReportError

MB = 10**6
OPS, KERNELS = Asked("op", ()), Asked("kernel", ())


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("2GB", 2 * 10**9),
        ("1.5G", 15 * 10**8),
        ("300 mb", 3 * 10**8),
        ("4kB", 4_000),
        ("2T", 2 * 10**12),
        ("1000", 1000),
        ("1KiB", 1024),
        ("512MiB", 1 << 29),
        ("3GiB", 3 << 30),
        ("2tib", 2 << 40),
    ],
)
def test_amounts(text, amount):
    assert window.amount(text) == amount


@pytest.mark.parametrize("text", ["", "2 apples", "-1GB", "1iB", "GB", "1e9", "nan", "0.1"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match="is no amount of memory"):
        window.amount(text)


def test_a_command_refuses_it_too(tmp_path):
    path = report(tmp_path / "made.sqlite")
    assert_misused(bridge("report", path, "--memory", "1iB"), "is no amount of memory")


def test_what_a_report_takes_is_by_its_rows_and_the_tables_asked_for(tmp_path):
    path = report(tmp_path / "made.sqlite", steps=50)
    rows = window.windows.rows(path)
    all_rows = rows.launches + rows.activities + rows.annotations
    assert all_rows > 50 * 7
    assert window.memory_needed(path, [KERNELS]) == 200 * all_rows
    assert window.memory_needed(path, [OPS]) == 340 * all_rows
    assert window.memory_needed(path, [KERNELS, OPS]) == 500 * all_rows


@pytest.fixture
def of_gigabytes(tmp_path, monkeypatch):
    """Give a report that is said to take so many gigabytes, besides 26 bytes for each of its few calls."""

    def made(gigabytes: int):
        monkeypatch.setattr(window, "memory_needed", lambda _path, _tables: gigabytes * 10**9)
        return report(tmp_path / "made.sqlite")

    return made


def test_a_report_that_fits_is_read_at_once(of_gigabytes):
    path = of_gigabytes(1)
    assert window.count(path, [OPS], 1_170 * MB) == 1
    assert window.count(path, [OPS], 1_170 * MB - 1) == 2
    assert window.count(path, [OPS, KERNELS], 1_430 * MB) == 1  # several tables: 260 MB more
    assert window.count(path, [OPS, KERNELS], 1_430 * MB - 1) == 2


def test_less_memory_takes_more_windows(of_gigabytes):
    path = of_gigabytes(1)
    assert window.count(path, [OPS], 421 * MB) == 4  # a little less than 251 MB for each
    assert window.count(path, [OPS], 211 * MB) == 25


@pytest.mark.parametrize(("gigabytes", "least"), [(1, 211), (100, 271)])
def test_the_least_is_forty_megabytes_a_window_and_a_thousand_windows(
    of_gigabytes, gigabytes, least
):
    path = of_gigabytes(gigabytes)
    assert window.count(path, [OPS], least * MB) > 1
    with pytest.raises(ReportError, match=rf"200MB is too little: {least}MB is the least"):
        window.count(path, [OPS], 200 * MB)


@pytest.mark.skipif(
    not window.STATUS.exists(), reason="/proc says what a process had on Linux alone"
)
def test_what_was_taken_is_what_the_system_says():
    before = window.taken()
    assert before > 10**7
    held = bytearray(before + 10**7)
    held[::4096] = b"x" * len(held[::4096])
    assert window.taken() > before + 10**7

"""What fuzzing found in inputs of the corpus, made small: each was another exception, or a message of a page."""

from __future__ import annotations

import re
from pathlib import Path

import made_reports
import pytest
from ncu import made_ncu

from bridge import importers, load
from bridge.importers.errors import NotAReport
from bridge.importers.nsys import schema
from fuzz import opening
from fuzz.judge import READ, judged

PAGE = 4096
DIGITS = "9" * 30


def ncu(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", ["1e400", "-1e400", DIGITS, "1e300", "1e999999", "9" * 5_000, "1e-400"]
)
def test_a_metric_beyond_all_numbers_is_read(value: str, tmp_path: Path) -> None:
    metrics = dict.fromkeys(
        ("launch__registers_per_thread", made_ncu.DURATION, "other.sum"), (value, "")
    )
    path = ncu(tmp_path, made_ncu.raw([made_ncu.kernel(metrics=metrics)]))
    verdict = judged(path, opening.report)
    assert verdict.what == READ, verdict
    assert load(path).capture.activities.registers.tolist() in ([-1], [0])


@pytest.mark.slow
def test_numbers_of_processes_threads_and_extents_beyond_64_bits_are_read(tmp_path: Path) -> None:
    one = made_ncu.kernel(
        pid=DIGITS,
        thread=DIGITS,
        pushed=["a", ("b", "d", f"i:{DIGITS}:n:n:n:n")],
        grid=(10**30, 1, 1),
    )
    path = ncu(tmp_path, made_ncu.raw([one]))
    verdict = judged(path, opening.report)
    assert verdict.what == READ, verdict
    found = load(path).capture
    assert found.activities["grid_x"].tolist() == [-1]
    assert found.processes["process"].tolist() == [0]
    assert (found.launches["thread"] >> 24 == 0).all()


def test_a_report_whose_kernels_lost_their_names_is_read(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("ncu_report", reason="NVIDIA's ncu-report is not installed")
    path = tmp_path / "k.ncu-rep"
    data = bytearray((corpus / "ncu" / "simple-divergence.ncu-rep").read_bytes())
    data[7 * PAGE : 8 * PAGE] = data[
        13 * PAGE : 14 * PAGE
    ]  # NVIDIA's library reads on, and has no names
    path.write_bytes(data)
    verdict = judged(path, opening.report)
    assert verdict.what == READ, verdict


def test_a_schema_that_sqlite_cannot_read_is_one_short_line(tmp_path: Path) -> None:
    table = schema.KERNELS.name
    path = made_reports.changed(
        made_reports.small(tmp_path / "report.sqlite"),
        "PRAGMA writable_schema = ON",
        f"UPDATE sqlite_master SET sql = sql || ' \x1b[2J -- {'word ' * 2_000}' WHERE name = '{table}'",
    )
    with pytest.raises(NotAReport) as caught:
        importers.load(path)
    said = str(caught.value)
    assert said.isprintable()
    assert len(said) < 500
    assert re.match(r"report\.sqlite: damaged \(.*malformed", said)

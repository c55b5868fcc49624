"""Correlation ids that match nothing, or the wrong calls: one warning says so, and no real report has it."""

from __future__ import annotations

from pathlib import Path

import made_reports
import pytest
from command import bridge, done

from bridge import importers
from bridge.analyze.core import correlation
from bridge.importers.nsys import schema
from bridge.report import join

pytestmark = pytest.mark.usefixtures("rows_at_a_time")

CALLS, STRINGS = schema.LAUNCHES.name, schema.STRINGS.name
STEPS = 20
MATCHED = STEPS * 6  # activities of a made report that have a call; STEPS more have none
KERNELS = STEPS * 3

UNMATCHED = f"{STEPS * 7} of {STEPS * 7} activities match none of the {MATCHED} API calls"
WRONG = f"{KERNELS} of {KERNELS} kernels match API calls that launch none (first: cudaMalloc)"

CHANGES = {
    "negated": (f"UPDATE {CALLS} SET correlationId = -correlationId", UNMATCHED),
    "of another capture": (
        f"UPDATE {CALLS} SET correlationId = correlationId + 100000",
        UNMATCHED,
    ),
    "of calls that launch nothing": (
        f"UPDATE {STRINGS} SET value = 'cudaMalloc_v3020' WHERE value = 'cudaLaunchKernel_v7000'",
        WRONG,
    ),
    "in reverse": (
        f"UPDATE {CALLS} SET correlationId = (SELECT max(correlationId) FROM {CALLS}) + 1 - correlationId",
        "activities began before the API call that they match",
    ),
}


def warned(path: Path) -> list[str]:
    return list(correlation.warnings(join(importers.load(path)).attributed))


@pytest.fixture
def some_steps(tmp_path: Path) -> Path:
    return made_reports.small(tmp_path / "made.sqlite", steps=STEPS)


@pytest.mark.parametrize("what", CHANGES)
def test_wrong_ids_are_one_warning(what: str, some_steps: Path) -> None:
    assert not warned(some_steps)
    statement, text = CHANGES[what]
    made_reports.changed(some_steps, statement)
    (line,) = warned(some_steps)
    assert line.startswith("made.sqlite: ")
    assert text in line
    assert "correlation ids were changed" in line
    assert "nsys profile --trace=cuda,nvtx" in line
    assert "\n" not in line


@pytest.mark.slow
@pytest.mark.parametrize("command", ["report", "summary", "import", "doctor"])
def test_commands_print_the_warning(command: str, some_steps: Path, tmp_path: Path) -> None:
    made_reports.changed(some_steps, CHANGES["negated"][0])
    store = ["--db", tmp_path / "runs.db"] if command == "import" else []
    result = bridge(command, some_steps, *store)
    assert result.exit_code == 0
    assert result.stderr.count(UNMATCHED) == 1
    assert UNMATCHED not in result.stdout


def test_limits(tmp_path: Path) -> None:
    """One call of twenty is enough, one of thirty is not; and of a few activities nothing is said."""
    for steps, kept, count in ((STEPS, 8, 0), (STEPS, 6, 1), (3, 0, 0)):
        path = made_reports.small(tmp_path / f"{steps}-{kept}.sqlite", steps=steps)
        made_reports.changed(
            path, f"UPDATE {CALLS} SET correlationId = -correlationId WHERE correlationId > {kept}"
        )
        assert len(warned(path)) == count


def test_each_file_is_judged_alone(some_steps: Path, tmp_path: Path) -> None:
    good = made_reports.small(tmp_path / "good.sqlite", steps=STEPS)
    made_reports.changed(some_steps, CHANGES["negated"][0])
    result = bridge("report", good, some_steps)
    assert result.stderr.count("match none of the") == 1
    assert "made.sqlite: " in result.stderr


@pytest.mark.slow
def test_names_of_calls_that_nobody_knows_are_not_judged(some_steps: Path) -> None:
    for name in ("", "zeCommandListAppend", "hipLaunchKernel", "cuGraphLaunch", "cudaLaunch_v3020"):
        made_reports.changed(
            some_steps,
            f"UPDATE {STRINGS} SET value = '{name}' WHERE id = (SELECT nameId FROM {CALLS})",
        )
        assert not warned(some_steps)


def test_a_report_without_calls_has_another_warning(tmp_path: Path) -> None:
    path = made_reports.small(tmp_path / "r.sqlite", steps=STEPS, without="launches")
    assert not warned(path)
    assert "no CUDA API calls" in bridge("report", path).stderr


@pytest.mark.slow
def test_real_reports_have_no_warning(corpus: Path) -> None:
    for path in sorted((corpus / "nsys").glob("*.sqlite")):
        try:
            assert not warned(path), path.name
        except importers.ReportError:
            assert "failed" in path.name or "osrt" in path.name


SHIFTED = ("pytorch-forward", "mnist-training", "two-processes", "gtls-no-nvtx")


@pytest.mark.slow
@pytest.mark.parametrize("change", ["-correlationId", "correlationId + 1", "correlationId - 1"])
@pytest.mark.parametrize("name", SHIFTED)
def test_real_reports_with_shifted_ids_have_one(
    corpus: Path, tmp_path: Path, name: str, change: str
) -> None:
    path = tmp_path / "shifted.sqlite"
    path.write_bytes((corpus / "nsys" / f"{name}.sqlite").read_bytes())
    made_reports.changed(path, f"UPDATE {CALLS} SET correlationId = {change}")
    assert len(warned(path)) == 1
    assert done("report", path, "--by", "kernel")

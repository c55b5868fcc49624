"""What `bridge report` says of steps and launches that could be mistaken for others, or for none."""

import json
import shutil

import pytest
from command import done

pytestmark = pytest.mark.slow


def test_steps_that_are_only_left_out_are_not_said_to_be_missing(demo):
    said = done("report", demo, "--by", "step", "--filter", "wall>3600s")
    assert "\n\nno row meets the condition\n3 steps: median " in said
    assert "no work that repeats" not in said


def test_one_step_is_not_said_to_vary(demo):
    said = done("report", demo, "--by", "step", "--step", "1")
    assert "\n1 step: 2.190 ms\n" in said
    assert "varying" not in said


@pytest.mark.parametrize("by", ["step", "launch"])
def test_rows_of_several_files_say_which(demo, tmp_path, by):
    other = shutil.copy(demo, tmp_path / "other.sqlite")
    rows = json.loads(done("report", demo, other, "--by", by, "--format", "json"))["rows"]
    assert {row["report"] for row in rows} == {"demo.sqlite", "other.sqlite"}
    [alone, *_] = json.loads(done("report", demo, "--by", by, "--format", "json"))["rows"]
    assert "report" not in alone
    if by == "step":
        assert "in other.sqlite: median" in done("report", demo, other, "--by", by)

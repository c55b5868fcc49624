"""Limits of evaluation: a time limit, and a warning before a trace that is too large for viewers."""

from __future__ import annotations

import signal
import time

import made_reports
import pytest
from command import assert_refused
from command import bridge as command

from bridge import exports
from bridge.cli import options, timeout


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return made_reports.small(tmp_path_factory.mktemp("limits") / "report.sqlite")


def test_a_command_stops_after_its_time_and_writes_nothing(path, folder, monkeypatch):
    def slow(*_, **__):
        with options.doing(f"reading {path.name}"):
            time.sleep(5)

    monkeypatch.setattr("bridge.source.read_files", slow)
    before = signal.getsignal(signal.SIGALRM)
    for words in (
        ("report", path),
        ("trace", path, "-o", "t.json"),
        ("html", path, "-o", "t.html"),
    ):
        refused = command(*words, "--timeout", "300ms")
        assert_refused(
            refused,
            "stopped after 300ms (--timeout) while reading report.sqlite",
            "nothing was written",
        )
    assert not list(folder.iterdir())
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert timeout.running_stage() == ""


def test_a_command_within_its_time_is_as_without(path):
    assert command("report", path, "--timeout", "60s").stdout == command("report", path).stdout
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


@pytest.mark.parametrize("text", ["0s", "soon"])
def test_no_time(path, text):
    result = command("report", path, "--timeout", text)
    assert result.exit_code == 2
    assert "--timeout" in result.stderr


def test_a_large_trace_is_announced_with_what_is_in_it(path, folder, monkeypatch):
    monkeypatch.setattr(exports, "MAX_SLICES", 3)
    written = command("trace", path, "-o", "t.json")
    assert written.exit_code == 0
    (line,) = [line for line in written.stderr.splitlines() if "slow in viewers" in line]
    assert "--step 1" in line
    assert "--max-events" in line
    less = command("trace", path, "-o", "less.json", "--max-events", "3")
    assert "slow in viewers" not in less.stderr
    assert "shorter slices left out" in less.stderr
    assert (folder / "t.json").stat().st_size > (folder / "less.json").stat().st_size


def test_the_largest_parts_of_a_timeline_come_first(path):
    import bridge
    from bridge.analyze.draw.dialects import draw
    from bridge.analyze.draw.timeline import WHOLE

    timeline = draw(bridge.load(path).attributed, "native", WHOLE)
    largest = timeline.largest()
    assert [count for _, count in largest] == sorted((count for _, count in largest), reverse=True)
    assert sum(count for _, count in largest) == sum(len(s) for s in timeline.all_slices())
    assert exports.size_warning(timeline, "t.json") == ""

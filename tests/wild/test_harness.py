"""What the harness compares, and what it takes for output of nsys and of `bridge run`."""

from __future__ import annotations

from wild.cleaning import alike, errors_of_the_program, of_the_program
from wild.harness import Difference, Outcome, Program, counted_differences, differences, programs
from wild.ways import PLAIN, WAYS

PLAIN_RUN = Outcome("loss 1.0\n", "warning\n", 0, {"main": {"aten::mm": 2, "aten::t": 1}})


def test_equal_runs_have_no_difference() -> None:
    again = Outcome(
        "loss 1.0\n", "warning\n", 0, {"main": {"aten::t": 1, "aten::mm": 2}}, 5.0, (1,)
    )
    assert differences(PLAIN_RUN, again) == []
    assert counted_differences(PLAIN_RUN, again, []) == []


def test_each_respect_is_compared() -> None:
    other = Outcome("loss 1.5\n", "", 3, {"main": {"aten::mm": 4, "aten::add": 1}})
    found = differences(PLAIN_RUN, other)
    assert [one.what for one in found] == ["status", "stdout", "stderr"]
    assert found[0].text == "3 instead of 0"
    assert "-loss 1.0\n+loss 1.5" in found[1].text
    (ops,) = counted_differences(PLAIN_RUN, other, found)
    assert ops == Difference(
        "ops",
        "main: aten::add: 1 instead of 0\nmain: aten::mm: 4 instead of 2\nmain: aten::t: 0 instead of 1",
    )


def test_a_missing_line_end_is_a_difference() -> None:
    (found,) = differences(PLAIN_RUN, Outcome("loss 1.0", "warning\n", 0))
    assert found.text == "line ends differ"


def test_parts_that_were_not_counted_are_a_difference() -> None:
    (found,) = counted_differences(PLAIN_RUN, Outcome("loss 1.0\n", "warning\n", 0), [])
    assert found.text == "main: no counts of the watched run"


def test_what_the_counted_run_alone_does_is_marked() -> None:
    other = Outcome("loss 1.0\n", "", 0, PLAIN_RUN.counts)
    (found,) = counted_differences(PLAIN_RUN, other, [])
    assert found.what == "counted: stderr"


def test_output_of_nsys_is_cut_off() -> None:
    stdout = "loss\nGenerating '/tmp/nsys-report-1.qdstrm'\n[1/1] [0%  ] r.nsys-rep\nGenerated:\n"
    assert of_the_program(stdout) == "loss\n"
    assert of_the_program("Generating text\n") == "Generating text\n"


def test_lines_of_bridge_run_are_cut_off_at_the_ends_alone() -> None:
    own = "warning: of the program\nTraceback\n"
    before = "BRIDGE_SIDECAR=/x nsys profile python a.py\nbridge run annotates nothing: x\n"
    after = "the program ended with status 1\nnote: bridge run --auto a.py\n"
    assert errors_of_the_program(before + own + after) == own
    assert errors_of_the_program(own + "bridge: x\n") == own + "bridge: x\n"


def test_what_changes_from_run_to_run_is_replaced() -> None:
    one = alike("/tmp/a1/work at 0x7f0012345678, pid 12, 2026-01-02 03:04:05.678 a.py:4", "/tmp/a1")
    assert one == "FOLDER/work at 0xADDRESS, pid N, TIME a.py:4"


def test_heads_of_all_programs_are_read() -> None:
    for name in programs():
        program = Program.named(name)
        assert program.about.endswith(".")
        assert program.requires


def test_ways_tell_the_program_what_to_do() -> None:
    assert PLAIN.environment() == {"WILD_WAY": "plain"}
    assert WAYS["auto"].environment()["WILD_WAY"] == "auto"
    assert WAYS["auto"].under_nsys
    assert not WAYS["profile"].under_nsys

"""How the program is named, where the report goes, and schedules as text."""

from __future__ import annotations

import sys

import pytest
from pretended import install

from bridge import Action, schedule
from bridge.autorun import LAUNCHER
from bridge.capture import interpreter, plan
from bridge.capture.plan import program_command as command
from bridge.capture.session.schedule import parse_schedule
from bridge.capture.tool import CaptureError, MisuseError


def made(
    *words: str, module: bool = False, plain: bool = False, auto: list[str] | None = None
) -> list[str]:
    return command(words, module=module, plain=plain, auto=auto)


def refused(*words: str, **how: bool) -> CaptureError:
    with pytest.raises(CaptureError) as raised:
        made(*words, **how)
    return raised.value


def test_a_script_a_module_and_a_command(folder):
    (folder / "a.py").touch()
    assert made("a.py", "-x", "--") == [sys.executable, "a.py", "-x", "--"]
    assert made("pkg.mod", "1", module=True) == [sys.executable, "-m", "pkg.mod", "1"]
    assert made("sh", "-c", "true", plain=True) == ["sh", "-c", "true"]
    auto = [sys.executable, LAUNCHER]
    assert made("a.py", "1", auto=["--shapes"]) == [*auto, "--shapes", "a.py", "1"]
    assert made("pkg", auto=[], module=True) == [*auto, "-m", "pkg"]
    assert made(".") == [sys.executable, "."]  # a folder may be a program
    assert made("sh", "x", plain=True, auto=[]) == ["sh", "x"]  # its environment annotates it


def program(path, text, mode=0o755):
    path.write_bytes(text)
    path.chmod(mode)
    return path


def test_a_program_is_a_command_without_dashes_unless_a_script_has_its_name(folder, monkeypatch):
    def is_command(word, **how):
        return plan.is_command([word], **{"module": False, "plain": False, **how})

    assert is_command("sh")
    assert not is_command("none.py")
    assert not is_command("sh", module=True)
    assert is_command("none.py", plain=True)
    program(folder / "sh", b"print()", 0o644)
    program(folder / "tool", b"#!/usr/bin/env python3\n")
    assert not is_command("sh")
    assert not is_command("tool")
    program(folder / "a.out", plan.ELF)
    program(folder / "run.sh", b"#!/bin/sh\n")
    assert is_command("a.out")
    assert made("a.out", plain=True) == ["./a.out"]
    assert is_command("./run.sh")
    (folder / "env").mkdir()
    assert is_command("env")  # a folder of that name is no program
    (folder / "env" / "__main__.py").touch()
    assert not is_command("env")


def test_a_line_says_what_is_annotated(folder):
    def line(*command, plain=False, auto=()):
        return plan.annotation_line(command, plain=plain, auto=auto)

    what = "annotates PyTorch (modules, on a GPU ops, optimizer steps, data loading), JAX and CuPy"
    assert line("python", "a.py") == what
    assert line("python", "a.py", plain=True) == f"{what} in all Python processes of the command"
    assert "ops" not in line("python", "a.py", auto=["--no-ops"])
    assert "(modules, ops, optimizer" in line("python", "a.py", auto=["--ops"])
    assert "ops with input shapes" in line("python", "a.py", auto=["--ops", "--shapes"])
    own = "annotates nothing: the ranges are the program's own"
    assert line("./a.out", plain=True, auto=None) == own
    for plain in (True, False):
        advised = line("python", "a.py", plain=plain, auto=None)
        assert advised.startswith(f"{own}; --auto adds PyTorch modules")


@pytest.mark.parametrize(
    ("options", "blocking"),
    [
        ("a.py -I", ""), ("-u -B -X dev -W error -O -P -s -m a", ""), ("-c 1 -E", ""), ("-", ""), ("", ""),
        ("-Xdev -Wignore a.py -S", ""), ("-X -I a.py", ""), ("-um x -I", ""), ("-- -I", ""),
        ("-I a.py", "-I"), ("-uE a.py", "-E"), ("-BS", "-S"), ("-W error -I -m a", "-I"), ("-Pu -sS", "-S"),
    ],
)  # fmt: skip
def test_options_with_which_python_cannot_be_annotated(options, blocking):
    line = interpreter.unannotated(["/x/python3.11", *options.split()])
    assert line == (
        f"annotates child processes alone: with {blocking}, Python does not load what annotates it; leave {blocking} away"
        if blocking
        else ""
    )


@pytest.mark.parametrize(
    ("head", "python"),
    [
        ("#!/v/bin/python3 -I", "/v/bin/python3"),
        ("#! /usr/bin/env -S python3 -uE", "python3"),
        ("#!/bin/sh\n'''exec' \"/a b/python\" -S \"$0\" \"$@\"\n' '''", "'/a b/python'"),
        ("#!/v/bin/python3 -su", ""), ("#!/bin/sh\necho python -I", ""), ("", ""), ("python -I", ""),
        ("#!/bin/sh\necho 'python -I", ""),
    ],
)  # fmt: skip
def test_a_console_script_with_such_options_is_told_apart(folder, monkeypatch, head, python):
    program(folder / "tool", head.encode())
    monkeypatch.setenv("PATH", str(folder))
    line = interpreter.unannotated(["tool", "a b"])
    assert bool(line) == bool(python)
    if python:
        assert f"the first line of {folder}/tool has it" in line
        assert line.endswith(
            f"this annotates it: bridge run --auto -- {python} {folder}/tool 'a b'"
        )


AUTO = "{} annotates PyTorch, JAX and CuPy; for other code, mark its functions with @bridge.nvtx_op"


@pytest.mark.parametrize(
    ("words", "how", "line"),
    [
        (["a.py", "b c"], {}, AUTO.format("bridge run --auto a.py 'b c'")),
        (["pkg.mod", "-x"], {"module": True}, AUTO.format("bridge run --auto -m pkg.mod -x")),
        (
            ["python3", "-u", "a.py"],
            {"plain": True},
            AUTO.format("bridge run --auto -- python3 -u a.py"),
        ),
        (["a.py"], {"auto": True}, "--auto found no PyTorch, JAX or CuPy in the program; mark its"),
        (["./a.out"], {"plain": True}, "annotate it with NVTX ranges (C, C++: nvtxRangePush and"),
    ],
)
def test_a_line_says_how_to_record_ranges_of_a_program_that_has_none(words, how, line):
    options = {"module": False, "plain": False, "auto": False, **how}
    assert plan.unrecorded_remedy(words, **options).startswith(line)


def test_what_is_not_there_or_no_program(folder):
    assert refused("none.py").status == 127
    assert str(refused("none.py")) == "none.py: no such script"
    assert str(refused("none")) == "none: no such script, and no such program"
    program(folder / "a.out", plan.ELF, 0o644)
    binary = refused("a.out")
    assert binary.status == 126
    assert str(binary) == "a.out: no script of Python, and no program that may be executed"
    assert refused("no-such-command", plain=True).status == 127
    (folder / "plain").write_text("text")
    assert refused("./plain", plain=True).status == 126


def test_a_command_is_no_module():
    with pytest.raises(MisuseError, match="not with a command after --: leave"):
        plan.is_command(["python3.11", "a.py"], module=True, plain=True)
    with pytest.raises(MisuseError, match=r"not with a command after --$"):
        plan.is_command(["./a.out"], module=True, plain=True)


@pytest.mark.slow
def test_dashes_are_seen_only_before_the_program(folder, tmp_path, monkeypatch):
    from command import bridge

    install(tmp_path, "nsys", "2022.4")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (folder / "a.py").touch()

    def end(*words: str) -> str:
        return bridge("run", "--print", *words).stdout.partition("report1.nsys-rep ")[2].strip()

    assert end("a.py", "--", "-o", "b") == f"{sys.executable} a.py -- -o b"
    assert end("--", "sh", "--", "a.py") == end("sh", "--", "a.py") == "sh -- a.py"
    assert end("-m", "a", "--print", "-m") == f"{sys.executable} -m a --print -m"


def test_the_report_is_named_or_the_first_free_one(folder):
    def chosen(output=None, *, force=False):
        return plan.report_path(output and folder / output, ".nsys-rep", force=force).name

    assert chosen() == "report1.nsys-rep"
    (folder / "report1.nsys-rep").touch()
    (folder / "report2.1.nsys-rep").touch()
    assert chosen() == "report3.nsys-rep"
    assert chosen("a") == chosen("a.nsys-rep") == "a.nsys-rep"
    assert chosen("a.sqlite") == "a.sqlite.nsys-rep"
    with pytest.raises(CaptureError, match=r"report1\.nsys-rep: exists; .* --force"):
        chosen("report1")
    with pytest.raises(CaptureError, match=r"report2\.1\.nsys-rep: exists"):
        chosen("report2")
    assert chosen("report2", force=True) == "report2.nsys-rep"
    with pytest.raises(CaptureError, match="too long a name; give one of at most 244 bytes"):
        chosen("r" * 245)
    assert chosen("r" * 244)
    with pytest.raises(CaptureError, match="there is no folder"):
        chosen("no/such")
    (folder / "sub").mkdir()
    with pytest.raises(CaptureError, match="sub: a folder"):
        chosen("sub")


def test_reports_that_came_out_are_in_the_order_of_capture(folder):
    name = folder / "r.nsys-rep"
    for number in (1, 2, 3, 10, 11):
        (folder / f"r.{number}.nsys-rep").write_text("old")
    others = [folder / "r.x.nsys-rep", folder / "other.1.nsys-rep"]
    for other in others:
        other.write_text("kept")
    before = plan.existing_reports(name)
    assert [path.name for path in before][-2:] == ["r.10.nsys-rep", "r.11.nsys-rep"]
    assert plan.new_reports(name, before) == []
    assert len(plan.existing_reports(name)) == 5
    for number in (1, 2, 10):
        (folder / f"r.{number}.nsys-rep").write_text("new one")
    (folder / "r.11.nsys-rep").write_text("")  # nothing was written to it
    fresh = [path.name for path in plan.new_reports(name, before)]
    assert fresh == ["r.1.nsys-rep", "r.2.nsys-rep", "r.10.nsys-rep"]
    assert len(plan.existing_reports(name)) == 3  # what was not replaced is of another launch
    assert all(other.exists() for other in others)


def test_a_schedule_as_text_is_what_schedule_takes():
    steps = parse_schedule(" wait=1, warmup = 1,active=2,repeat=1 ")
    assert steps == {"wait": 1, "warmup": 1, "active": 2, "repeat": 1}
    actions = schedule(**steps)
    assert [actions(step) for step in range(5)] == [
        Action.NONE, Action.WARMUP, Action.RECORD, Action.RECORD_AND_SAVE, Action.NONE
    ]  # fmt: skip
    assert parse_schedule("active=1,skip_first=3") == {
        "wait": 0,
        "warmup": 0,
        "active": 1,
        "skip_first": 3,
    }
    assert schedule(**parse_schedule("active=1,skip_first=3"))(3) is Action.RECORD_AND_SAVE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no key '': one of wait, warmup"),
        ("wait=1", "active=NUMBER is missing"),
        ("active", "active needs a number: write active=NUMBER"),
        ("active=1,active=2", "active is given twice"),
        ("active=0", "active is a whole number of at least 1, not '0'"),
        ("active=1,wait=-1", "wait is a whole number of at least 0, not '-1'"),
        ("active=1.5", "not '1.5'"),
        ("active=²", "not '²'"),
        ("active=1,steps=2", "no key 'steps': one of"),
        ("active=1,warm-up=2", "did you mean warmup?"),
        ("active=1,", "no key ''"),
    ],
)
def test_what_is_no_schedule(text, reason):
    with pytest.raises(ValueError) as raised:
        parse_schedule(text)
    assert reason in str(raised.value)

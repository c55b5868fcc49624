"""``python -m bridge.autorun script.py``: run an unchanged program with annotations."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib.machinery import SourceFileLoader
from pkgutil import get_importer
from types import ModuleType, TracebackType
from typing import Any

from bridge.frameworks.autorun import HELP, START, USAGE, Options, arm, missing, parse_options, say

# -- Running a script or a module as `python` does: same names, paths, status and tracebacks


MAIN = "__main__"
CANNOT_OPEN = 2  # status of python if it cannot read the script

Hook = Callable[..., Any]


def run(words: list[str]) -> None:
    """Run `-m module` or a script with the following words as its arguments.

    Raises what it raises.
    """
    try:
        if words[0] == "-m":
            _run_module(words[1], words[2:])
        else:
            _run_script(words[0], words[1:])
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook = partial(_show_error, sys.excepthook)
        raise


def _run_module(name: str, arguments: list[str]) -> None:
    sys.argv[:] = ["-m", *arguments]
    sys.modules[MAIN] = _main()
    _execute(runpy._run_module_as_main, name)  # type: ignore[attr-defined]  # noqa: SLF001 (what python calls)


def _run_script(path: str, arguments: list[str]) -> None:
    sys.argv[:] = [path, *arguments]
    sys.modules[MAIN] = main = _main()
    if get_importer(path) is not None:  # a folder or an archive with a __main__
        _replace_first_path(os.path.abspath(path))
        _execute(runpy._run_module_as_main, MAIN, False)  # type: ignore[attr-defined]  # noqa: SLF001 (what python calls)
        return
    full_path = os.path.join(os.getcwd(), path)
    source = _read(full_path)
    _replace_first_path(os.path.dirname(os.path.realpath(path)))
    main.__file__, main.__loader__ = full_path, SourceFileLoader(MAIN, full_path)
    code = _execute(compile, source, full_path, "exec", 0, True)
    _execute(exec, code, main.__dict__)


def _main() -> ModuleType:
    """Return an empty `__main__`, as python creates it."""
    main = ModuleType(MAIN)
    if sys.version_info < (3, 14):
        vars(main)["__annotations__"] = {}
    vars(main)["__builtins__"] = builtins
    vars(main).update(__file__=None, __cached__=None)
    return main


def _read(path: str) -> bytes:
    try:
        with io.open_code(path) as file:
            return file.read()
    except OSError as problem:
        text = f"can't open file {path!r}: [Errno {problem.errno}] {problem.strerror}"
        sys.stderr.write(f"{sys.executable}: {text}\n")
        raise SystemExit(CANNOT_OPEN) from problem


def _replace_first_path(path: str) -> None:
    """Replace the current folder, which `python -m` puts on the path, by the program's."""
    if not sys.flags.safe_path:
        sys.path[0] = path


def _execute(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


def _show_error(hook: Hook, kind: type[BaseException], error: BaseException, _: object) -> None:
    """Call the program's hook, without the frames of this package."""
    error.__traceback__ = _program_frames(error.__traceback__)
    hook(kind, error, error.__traceback__)


def _program_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return the part of a traceback below `_execute`."""
    part = trace
    while part is not None:
        if part.tb_frame.f_code is _execute.__code__:
            return part.tb_next
        part = part.tb_next
    return trace


# -- The command


MISUSED = 2


def main(
    arguments: list[str], recording: Callable[[str | None], AbstractContextManager[None]]
) -> None:
    """Run the program in ``arguments`` within a ``recording``.

    Exits with status 2 for wrong arguments.
    """
    options, program = _parse_arguments(arguments)
    arm(options)
    wrapped = {name for name, _ in options.wraps}
    try:
        with recording(options.record):
            run(program)
    finally:
        for name in sorted(wrapped.intersection(missing())):
            say(f"--wrap {name}: not imported by this process")


def _parse_arguments(arguments: list[str]) -> tuple[Options, list[str]]:
    if {"-h", "--help"} & set(arguments[:1]):
        sys.stdout.write(HELP)
        sys.exit()
    if arguments == ["--path"]:
        sys.stdout.write(f"{START}\n")
        sys.exit()
    problem = "no program"
    try:
        options, program = parse_options(arguments)
    except ValueError as error:
        problem, program = str(error), []
    if program == ["-m"] or (program and program[0].startswith("-") and program[0] != "-m"):
        problem, program = "no module" if program == ["-m"] else f"no option {program[0]}", []
    if not program:
        say(f"{problem}\nusage: {USAGE}")
        sys.exit(MISUSED)
    return options, program

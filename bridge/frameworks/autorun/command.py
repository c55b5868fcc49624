"""``python -m bridge.autorun script.py``: run a program unchanged, annotated."""

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

from bridge.frameworks.autorun import arm
from bridge.frameworks.autorun.import_hooks import HELP, USAGE, Options, missing, parsed, say

# -- Run a script or a module as `python` itself does: names, paths, status and tracebacks are the same


MAIN = "__main__"
NOT_OPENED = 2  # python's status when it cannot read the script

Hook = Callable[..., Any]


def run(words: list[str]) -> None:
    """Run `-m module` or a script, with what follows as its arguments; raise what it raises."""
    try:
        if words[0] == "-m":
            _run_module(words[1], words[2:])
        else:
            _run_script(words[0], words[1:])
    except SystemExit:
        raise
    except BaseException:
        sys.excepthook = partial(_shown, sys.excepthook)
        raise


def _run_module(name: str, arguments: list[str]) -> None:
    sys.argv[:] = ["-m", *arguments]
    sys.modules[MAIN] = _main()
    _execute(runpy._run_module_as_main, name)  # type: ignore[attr-defined]  # noqa: SLF001 (what python calls)


def _run_script(path: str, arguments: list[str]) -> None:
    sys.argv[:] = [path, *arguments]
    sys.modules[MAIN] = main = _main()
    if get_importer(path) is not None:  # a folder or an archive, with a __main__ in it
        _replace_first_path(os.path.abspath(path))
        _execute(runpy._run_module_as_main, MAIN, False)  # type: ignore[attr-defined]  # noqa: SLF001 (what python calls)
        return
    whole = os.path.join(os.getcwd(), path)
    source = _read(whole)
    _replace_first_path(os.path.dirname(os.path.realpath(path)))
    main.__file__, main.__loader__ = whole, SourceFileLoader(MAIN, whole)
    code = _execute(compile, source, whole, "exec", 0, True)
    _execute(exec, code, main.__dict__)


def _main() -> ModuleType:
    """Make an empty `__main__`, as python begins with."""
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
        said = f"can't open file {path!r}: [Errno {problem.errno}] {problem.strerror}"
        sys.stderr.write(f"{sys.executable}: {said}\n")
        raise SystemExit(NOT_OPENED) from None


def _replace_first_path(path: str) -> None:
    """Put the program's folder where `python -m` has put the current one, unless told to put none."""
    if not sys.flags.safe_path:
        sys.path[0] = path


def _execute(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


def _shown(hook: Hook, kind: type[BaseException], error: BaseException, _: object) -> None:
    """Show an error as the program's hook does, without the frames that are not the program's."""
    error.__traceback__ = _of_the_program(error.__traceback__)
    hook(kind, error, error.__traceback__)


def _of_the_program(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from below `_execute` on."""
    part = trace
    while part is not None:
        if part.tb_frame.f_code is _execute.__code__:
            return part.tb_next
        part = part.tb_next
    return trace


# -- ``python -m bridge.autorun script.py``: run a program unchanged, annotated


MISUSED = 2


def main(
    arguments: list[str], recording: Callable[[str | None], AbstractContextManager[None]]
) -> None:
    """Run what the arguments name, within a ``recording``; leave with status 2 where they name nothing."""
    options, program = _checked(arguments)
    arm(options)
    wanted = {name for name, _ in options.wraps}
    try:
        with recording(options.record):
            run(program)
    finally:
        for name in sorted(wanted.intersection(missing())):
            say(f"--wrap {name}: not imported by this process")


def _checked(arguments: list[str]) -> tuple[Options, list[str]]:
    if {"-h", "--help"} & set(arguments[:1]):
        sys.stdout.write(HELP)
        sys.exit()
    problem = "no program"
    try:
        options, program = parsed(arguments)
    except ValueError as error:
        problem, program = str(error), []
    if program == ["-m"] or (program and program[0].startswith("-") and program[0] != "-m"):
        problem, program = "no module" if program == ["-m"] else f"no option {program[0]}", []
    if not program:
        say(f"{problem}\nusage: {USAGE}")
        sys.exit(MISUSED)
    return options, program

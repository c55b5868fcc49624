"""``python -m bridge.compat.megengine.tools.profiler script.py``: run a program in the profiler."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser, Namespace
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from bridge.compat.megengine.profiler import Profiler, merge_trace_events
from bridge.frameworks.autorun.command import run

OPTIONS = tuple(Profiler.valid_options)
MISUSED = 2


def main(arguments: list[str] | None = None) -> None:
    """Run a program in MegEngine's profiler; exit with the status of the program.

    Exits with status 2 for wrong arguments and for a script that cannot be read.
    """
    words = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    request = parser.parse_args(words)
    if not request.program and not request.merge_trace_events and not request.clean:
        parser.error("name a script, or a module with -m")
    folder = Path(request.output)
    if request.clean:
        _clean(folder)
    try:
        if request.program:
            _profile(request)
    finally:
        if request.merge_trace_events and folder.is_dir():
            merge_trace_events(request.output)


def _profile(request: Namespace) -> None:
    """Run the program; what was recorded is written however it ends."""
    words = ["-m", *request.program] if request.module else request.program
    if not request.module and not Path(words[0]).exists():
        run(words)  # says so and exits
    with suppress(ImportError):
        import_module("torch.nn")  # as the profiled framework: its ops are known from the start
    options = {name: getattr(request, name) for name in OPTIONS}
    given = {name: value for name, value in options.items() if value is not None}
    profiler = Profiler(request.output, formats=request.format or None, **given)
    try:
        with profiler:
            run(words)
    finally:
        profiler.dump()


def _clean(folder: Path) -> None:
    """Delete earlier files of the profiler in the folder, and nothing else."""
    for format_ in Profiler.valid_formats:
        for file in folder.glob(f"*.{format_}"):
            file.unlink()


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="python -m bridge.compat.megengine.tools.profiler", description="Profile a program."
    )
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    parser.add_argument(
        "-o", "--output", default="profile", help="folder of the files (default: profile)"
    )
    parser.add_argument(
        "-f",
        "--format",
        action="append",
        choices=Profiler.valid_formats,
        help="a format of the files; may be repeated",
    )
    parser.add_argument("--clean", action="store_true", help="delete earlier files of the folder")
    parser.add_argument(
        "--merge_trace_events", action="store_true", help="merge the timelines of the folder"
    )
    for name in OPTIONS:
        parser.add_argument(f"--{name}", type=int, help=f"as {name} of Profiler")
    parser.add_argument("program", nargs=REMAINDER, help="a script or a module, and its arguments")
    return parser


if __name__ == "__main__":
    main()

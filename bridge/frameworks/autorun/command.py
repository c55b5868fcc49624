"""``python -m bridge.autorun script.py``: run a program unchanged, annotated."""

from __future__ import annotations

import sys

from bridge.frameworks.autorun import arm, recorded
from bridge.frameworks.autorun.arrivals import missing, say
from bridge.frameworks.autorun.options import HELP, USAGE, Options, parsed
from bridge.frameworks.autorun.program import run

MISUSED = 2


def main(arguments: list[str]) -> None:
    """Run what the arguments name; leave with status 2 where they name nothing."""
    options, program = _checked(arguments)
    arm(options)
    wanted = {name for name, _ in options.wraps}
    try:
        with recorded(options.record):
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

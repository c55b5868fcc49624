"""The installed profiler: its options, read from its help, and command lines for it.

An option counts as known only if the help of the tool lists it; reading the help takes 15 - 50 ms.
An option that the installed version lacks is never passed to it. It is omitted with a note, or is
an error if the user requested it.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bridge.knowledge.package import UserError

LOG = logging.getLogger("bridge.capture")

FAILED, MISUSED, NOT_EXECUTABLE, NOT_FOUND = 1, 2, 126, 127  # the last two as in shells


class CaptureError(UserError):
    """A program cannot be profiled; ``status`` is what the launcher exits with."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


class MisuseError(CaptureError, ValueError):
    """Options that exclude each other, or are incomplete."""

    def __init__(self, message: str) -> None:
        super().__init__(message, MISUSED)


HELP = {"nsys": ("profile", "--help"), "ncu": ("--help",)}
REMEDIES = {
    "nsys": "install Nsight Systems, https://developer.nvidia.com/nsight-systems"
    " (Debian's non-free: nsight-systems)",
    "ncu": "install Nsight Compute, https://developer.nvidia.com/nsight-compute"
    " (Debian's non-free: nsight-compute)",
}
TIME_LIMIT_S = 60

# A line that starts an option: for nsys `<tab>-t, --trace=`, for ncu `  -o [ --export ] arg`.
OPTION = re.compile(
    r"^(?:\t|  )(?:-\w(?:, | \[ ))?(--[a-z0-9][\w-]*(?:\[[a-z|]+\])?)", re.MULTILINE
)
CHOICE = re.compile(r"\[([a-z|]+)\]")  # --nvtx-domain-[include|exclude]
LISTED = re.compile(r"Possible values (?:for <[^>]+> )?are:?\s+(.*?)\.(?:\s|$)", re.DOTALL)
PROSE = re.compile(r"e\.g|between|list of|example|`")  # then the list of values is incomplete
WORD = re.compile(r"[A-Za-z][\w-]*")
PLACE = re.compile(r"\[?:N\]?")  # repeat[:N]
ALONE = re.compile(r"^ {20,}([a-z][a-z-]*)(?: \(default\))?$", re.MULTILINE)


@dataclass(frozen=True)
class Tool:
    """A profiler: its name, its path, and its options with their known values."""

    name: str
    path: str
    options: Mapping[str, frozenset[str]]

    def takes(self, option: str, value: str) -> bool:
        """Return whether an option accepts a value; an option without listed values accepts any."""
        listed = self.options.get(option)
        return listed is not None and (not listed or value.partition(":")[0] in listed)

    def name_and_version(self) -> str:
        """Return the name of the tool with its version, for messages."""
        version = re.search(r"[Vv]ersion (\d+(?:\.\d+)*)", tool_output(self.path, "--version"))
        return f"{self.name} {version[1]}" if version else self.name


def search_path() -> str:
    """Return the entries of the PATH that are absolute.

    An empty or relative entry (``PATH=:/usr/bin``) stands for the working directory, where a file
    may be called like a program. `bridge.importers.programs` is the twin of this function and the next one
    in the package of importers, which loads pandas.
    """
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())


def find_program(name: str) -> str | None:
    """Return the absolute path of a program on the PATH, None if there is none."""
    path = shutil.which(name, path=search_path())
    return path if path and Path(path).is_absolute() else None


def find_tool(name: str) -> Tool:
    """Find `nsys` or `ncu` on the PATH and read its options; raises CaptureError."""
    path = find_program(name)
    if path is None:
        raise CaptureError(f"{name} is not on the PATH: {REMEDIES[name]}", NOT_FOUND)
    options = parse(tool_output(path, *HELP[name]))
    if not options:
        command = " ".join((name, *HELP[name]))
        raise CaptureError(f"{path}: `{command}` lists no options; is it NVIDIA's {name}?")
    return Tool(name, path, options)


def parse(text: str) -> dict[str, frozenset[str]]:
    """Return the options in a help text with their listed values (empty: any value)."""
    starts = list(OPTION.finditer(text))
    ends = [*(match.start() for match in starts), len(text)][1:]
    result: dict[str, frozenset[str]] = {}
    for start, end in zip(starts, ends, strict=True):
        values = _values(text[start.end() : end])
        result |= dict.fromkeys(_spelled(start[1]), values)
    return result


def _spelled(option: str) -> list[str]:
    """Return all options that an option with a choice stands for."""
    choice = CHOICE.search(option)
    if not choice:
        return [option]
    return [option.replace(choice[0], name) for name in choice[1].split("|")]


def _values(text: str) -> frozenset[str]:
    listed = LISTED.search(text)
    if not listed:
        return frozenset(ALONE.findall(text))
    if PROSE.search(listed[1]):
        return frozenset()
    return frozenset(WORD.findall(PLACE.sub("", listed[1]))) - {"or", "and"}


def tool_output(path: str, *words: str) -> str:
    """Return the output of the tool; raises CaptureError if it does not run."""
    LOG.debug("running %s", [path, *words])
    try:
        done = subprocess.run(
            [path, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CaptureError(f"{path} does not run: {error}") from error
    return done.stdout


# -- Requests of the user, and the command line made from them


@dataclass(frozen=True)
class LaunchFilter:
    """Which launches ncu measures, and where it writes what it says.

    ``kernel_id`` is the value of its ``--kernel-id``, ``base`` that of ``--kernel-name-base``. ``most`` is the number
    of launches after which it measures no more, 0 if it is not known.
    """

    kernel_id: str
    base: str
    most: int = 0
    log: Path | None = None


@dataclass(frozen=True)
class Request:
    """The options of `bridge run` that become options of the profiler.

    None or empty if not given. ``launches`` are those that `--deep` chose.
    """

    preset: str | None = None
    schedule: Mapping[str, int] = field(default_factory=dict)
    capture: str | None = None
    kill: bool = False
    graphs: str | None = None
    memory: bool = False
    backtrace: bool = False
    force: bool = False
    ops: tuple[str, ...] = ()
    replay: str | None = None
    section_set: str | None = None
    metrics: str | None = None
    no_clock_control: bool = False
    witness: bool = False
    live: bool = False
    launches: LaunchFilter | None = None

    def given_options(self, *names: str) -> list[str]:
        """Return which of the named options were given, as the user writes them."""
        written = {"ops": "--op", "section_set": "--set"}
        return [written.get(n, f"--{n.replace('_', '-')}") for n in names if getattr(self, n)]


class ToolOption(NamedTuple):
    """A requested option of the profiler."""

    name: str
    value: str | None = None
    without: str = ""  # the consequence if the version lacks the option
    requested_by: str = ""  # the option of `bridge run` that requested it, if the user gave one


class Line(NamedTuple):
    """Options that the installed version knows, and a note for each that it does not know."""

    words: list[str]
    notes: list[str]


def command_line(tool: Tool, requested: Iterable[ToolOption]) -> Line:
    """Return the command line for requested options.

    Raises CaptureError if the tool lacks an option that the user gave.
    """
    result = Line([], [])
    for option in requested:
        value, lacking = _known_value(tool, option)
        if lacking:
            LOG.debug("%s: its help does not list %s", tool.path, lacking)
        if lacking and option.requested_by:
            raise CaptureError(f"{option.requested_by}: {tool.name_and_version()} has no {lacking}")
        if lacking:
            result.notes.append(f"{tool.name_and_version()} has no {lacking}: {option.without}")
        if value is not None:
            result.words.append(f"{option.name}={value}" if value else option.name)
    return result


def _known_value(tool: Tool, requested: ToolOption) -> tuple[str | None, str]:
    """Return the known part of a value (None for an unknown option) and the unknown part."""
    if requested.name not in tool.options:
        return None, requested.name
    if requested.value is None:
        return "", ""
    values = requested.value.split(",") if requested.name == "--trace" else [requested.value]
    known = [value for value in values if tool.takes(requested.name, value)]
    lacking = ",".join(value for value in values if value not in known)
    return ",".join(known) or None, lacking and f"{requested.name}={lacking}"


def escape_placeholders(report: Path) -> str:
    """Return a file name with % escaped, which starts placeholders of the profilers."""
    return str(report).replace("%", "%%")

"""The profiler that is installed, and what it says of itself: options, and the values that they take.

The invariant: only what the tool's own help names counts as known. Asking takes 15 - 50 ms.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

FAILED, MISUSED, NOT_EXECUTABLE, NOT_FOUND = 1, 2, 126, 127  # the last two as shells have them


class CaptureError(Exception):
    """A program cannot be profiled; ``status`` is what the launcher exits with."""

    def __init__(self, message: str, status: int = FAILED) -> None:
        super().__init__(message)
        self.status = status


class MisuseError(CaptureError):
    """Options that make no sense together."""

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

# A line that begins an option: of nsys `<tab>-t, --trace=`, of ncu `  -o [ --export ] arg`.
OPTION = re.compile(
    r"^(?:\t|  )(?:-\w(?:, | \[ ))?(--[a-z0-9][\w-]*(?:\[[a-z|]+\])?)", re.MULTILINE
)
CHOICE = re.compile(r"\[([a-z|]+)\]")  # --nvtx-domain-[include|exclude]
LISTED = re.compile(r"Possible values (?:for <[^>]+> )?are:?\s+(.*?)\.(?:\s|$)", re.DOTALL)
PROSE = re.compile(r"e\.g|between|list of|example|`")  # then not all of them are named
WORD = re.compile(r"[A-Za-z][\w-]*")
PLACE = re.compile(r"\[?:N\]?")  # repeat[:N]
ALONE = re.compile(r"^ {20,}([a-z][a-z-]*)(?: \(default\))?$", re.MULTILINE)


@dataclass(frozen=True)
class Tool:
    """A profiler: what it is called, where it is, and its options with the values they are known to take."""

    name: str
    path: str
    options: Mapping[str, frozenset[str]]

    def takes(self, option: str, value: str) -> bool:
        """Tell whether an option takes a value; one whose values are not listed takes any."""
        listed = self.options.get(option)
        return listed is not None and (not listed or value.partition(":")[0] in listed)

    def named(self) -> str:
        """Return the tool's name with its version, for messages."""
        said = re.search(r"[Vv]ersion (\d+(?:\.\d+)*)", answer(self.path, "--version"))
        return f"{self.name} {said[1]}" if said else self.name


def find(name: str) -> Tool:
    """Find `nsys` or `ncu` on the PATH and ask for its options; raises CaptureError."""
    path = shutil.which(name)
    if path is None:
        raise CaptureError(f"{name} is not on the PATH: {REMEDIES[name]}", NOT_FOUND)
    options = parse(answer(path, *HELP[name]))
    if not options:
        command = " ".join((name, *HELP[name]))
        raise CaptureError(f"{path}: `{command}` lists no options; is it NVIDIA's {name}?")
    return Tool(name, path, options)


def parse(text: str) -> dict[str, frozenset[str]]:
    """Read the options of a help text, each with the values that are listed for it (none: any)."""
    starts = list(OPTION.finditer(text))
    ends = [*(one.start() for one in starts), len(text)][1:]
    found: dict[str, frozenset[str]] = {}
    for start, end in zip(starts, ends, strict=True):
        values = _values(text[start.end() : end])
        found |= dict.fromkeys(_spelled(start[1]), values)
    return found


def _spelled(option: str) -> list[str]:
    """Spell out an option that stands for several."""
    choice = CHOICE.search(option)
    if not choice:
        return [option]
    return [option.replace(choice[0], one) for one in choice[1].split("|")]


def _values(text: str) -> frozenset[str]:
    listed = LISTED.search(text)
    if not listed:
        return frozenset(ALONE.findall(text))
    if PROSE.search(listed[1]):
        return frozenset()
    return frozenset(WORD.findall(PLACE.sub("", listed[1]))) - {"or", "and"}


def answer(path: str, *words: str) -> str:
    """Return what the tool answers; raises CaptureError if it does not run."""
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

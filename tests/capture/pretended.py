"""Profilers that are none: they answer `--help` with a recorded text, and otherwise do as told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

HELP = Path(__file__).parent / "help"
VERSIONS = {"nsys": ("2022.4", "2023.4", "2024.2"), "ncu": ("2022.3", "2024.1")}

# An nsys that is none says so that it began the program.
BEGINS = 'for word in "$@"; do case "$word" in */.begun) chmod 400 "$word" ;; esac; done; '

SCRIPT = """#!/bin/sh
case "$*" in
  --help | "profile --help") exec cat '{help}' ;;
  --version) echo 'NVIDIA Nsight version {version}.1-abc' ;;
  *) {otherwise} ;;
esac
"""


def answers(versions: Mapping[str, str]) -> Callable[..., str]:
    """Answer as those tools do that `install` writes, without a process."""

    def answer(path: str, *words: str) -> str:
        name = Path(path).name
        version = versions[name]
        if words == ("--version",):
            return f"NVIDIA Nsight version {version}.1-abc\n"
        return (HELP / f"{name}-{version}.txt").read_text(encoding="utf-8")

    return answer


def install(folder: Path, name: str, version: str, otherwise: str = "exit 99") -> Path:
    """Write a tool that has the options of a version into a folder, and return it."""
    tool = folder / name
    text = SCRIPT.format(help=HELP / f"{name}-{version}.txt", version=version, otherwise=otherwise)
    tool.write_text(text)
    tool.chmod(0o755)
    return tool

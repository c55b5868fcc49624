"""Programs in processes of their own, annotated as under a tool, and the recordings that they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from bridge.importers.recording.lines import Recording, read_recording

HERE = Path(__file__).parent
PATH = os.pathsep.join([str(HERE), str(HERE.parent.parent)])
# Newer Pythons warn of every fork of a process with threads, which is what is tried here.
QUIET = "ignore:This process:DeprecationWarning"
BEGIN = "import os, sys, threading, time\nimport attached\nattached.attach()\n"


def environ(folder: Path) -> dict[str, str]:
    own = {"PYTHONPATH": PATH, "BRIDGE_SIDECAR": str(folder), "PYTHONWARNINGS": QUIET}
    return {**os.environ, **own}


def run(folder: Path, program: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a program; what it warns of is in its stderr."""
    command = [sys.executable, "-c", BEGIN + dedent(program), *more]
    return subprocess.run(
        command, env=environ(folder), capture_output=True, text=True, check=False, timeout=120
    )


def ran(folder: Path, program: str) -> str:
    done = run(folder, program)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def recordings(folder: Path) -> dict[int, Recording]:
    """Read all recordings, by process; each is whole, and the only one of its process."""
    found = [read_recording(path) for path in sorted(folder.glob("bridge-*.jsonl"))]
    by_process = {one.header["pid"]: one for one in found}
    assert len(by_process) == len(found)
    return by_process


def arguments(found: Recording) -> dict[int, int]:
    """Return the argument ``n`` of each call, by the call's number."""
    call, place = (column.tolist() for column in found.columns["calls"])
    assert len(set(call)) == len(call)
    return {c: json.loads(found.details[p])["args"]["n"] for c, p in zip(call, place, strict=True)}

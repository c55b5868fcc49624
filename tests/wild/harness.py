"""Runs programs in each way, and says exactly what differs from the plain run."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from wild.cleaning import alike, errors_of_the_program, of_the_program
from wild.ways import PLAIN, PYTHON, Way

PROGRAMS = Path(__file__).parent / "programs"
LIMIT = 240  # seconds for a run
MOST_LINES = 60  # of a difference
QUIET = {
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "DO_NOT_TRACK": "1",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "100",
}
NOT_PYTHON = {"c++": ("c++", "g++", "clang++")}  # requirements that are programs


@dataclass(frozen=True)
class Program:
    """A program, and what its first lines say of it."""

    name: str
    path: Path
    requires: tuple[str, ...]  # the library that it is about comes first
    about: str

    @classmethod
    def named(cls, name: str) -> Program:
        """Read the head of a program."""
        path = PROGRAMS / f"{name}.py"
        text = path.read_text()
        head = re.match(r'# requires: (.+)\n"""(.+?)(?:\n\n|""")', text, re.DOTALL)
        if not head:
            raise RuntimeError(f"{path}: no line `# requires: …` and docstring at its head")
        return cls(name, path, tuple(head[1].split(", ")), " ".join(head[2].split()))

    @property
    def missing(self) -> list[str]:
        """Name the requirements that are not there."""
        return [name for name in self.requires if not version(name)]

    @property
    def library(self) -> str:
        """Return name and version of the library that the program is about."""
        return f"{self.requires[0]} {version(self.requires[0])}"


def programs() -> list[str]:
    """Name all programs."""
    return sorted(path.stem for path in PROGRAMS.glob("*.py") if path.stem != "watched")


@cache
def version(requirement: str) -> str:
    """Return the version of a requirement in the Python of the programs; "" if it is not there."""
    if requirement in NOT_PYTHON:
        return "found" if any(map(shutil.which, NOT_PYTHON[requirement])) else ""
    ask = f"from importlib.metadata import version; print(version({requirement!r}))"
    ran = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=False)
    return ran.stdout.strip()


@dataclass(frozen=True)
class Outcome:
    """What a run did: what is compared, and how long it and its steps took."""

    stdout: str
    stderr: str
    status: int | str
    counts: dict[str, dict[str, int]] = field(default_factory=dict)  # per part: op → number
    seconds: float = 0.0
    steps: tuple[int, ...] = ()  # ns


def run(program: Program, way: Way, *, count: bool = False, steps: bool = False) -> Outcome:
    """Run a program once in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="wild-") as text:
        folder = Path(text)
        for name in ("work", "counts", "steps", "tmp"):
            (folder / name).mkdir()
        began = time.monotonic()
        status, stdout, stderr = _start(program, way, folder, count=count, steps=steps)
        seconds = time.monotonic() - began
        if way.under_nsys:
            stdout, stderr = of_the_program(stdout), errors_of_the_program(stderr)
        return Outcome(
            alike(stdout, text),
            alike(stderr, text),
            status,
            {path.stem: json.loads(path.read_text()) for path in (folder / "counts").iterdir()},
            seconds,
            tuple(_lengths(folder / "steps")),
        )


def _start(
    program: Program, way: Way, folder: Path, *, count: bool, steps: bool
) -> tuple[int | str, str, str]:
    keep = {name: value for name, value in os.environ.items() if not _is_ours(name)}
    environment = keep | QUIET | way.environment() | {"TMPDIR": str(folder / "tmp")}
    environment["TORCHINDUCTOR_CACHE_DIR"] = _compiled().name
    if count:
        environment["WILD_COUNTS"] = str(folder / "counts")
    if steps:
        environment["WILD_STEPS"] = str(folder / "steps")
    process = subprocess.Popen(
        way.command(program.path),
        cwd=folder / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        return f"none within {LIMIT} s", stdout, stderr
    return process.returncode, stdout, stderr


@cache
def _compiled() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for what torch.compile makes: equal graphs are compiled once."""
    return tempfile.TemporaryDirectory(prefix="wild-compiled-")


def _is_ours(name: str) -> bool:
    return name.startswith(("WILD_", "BRIDGE_", "PYTEST_", "COV_"))


def _lengths(folder: Path) -> list[int]:
    return [length for path in sorted(folder.iterdir()) for length in json.loads(path.read_text())]


@dataclass(frozen=True)
class Difference:
    """Something that is not as in the plain run."""

    what: str  # status, stdout or stderr; the same of the counted run; ops
    text: str


def differences(plain: Outcome, watched: Outcome) -> list[Difference]:
    """Compare a run with the plain one: status, stdout and stderr."""
    found = []
    if plain.status != watched.status:
        found.append(Difference("status", f"{watched.status} instead of {plain.status}"))
    for what in ("stdout", "stderr"):
        if text := _unlike(getattr(plain, what), getattr(watched, what)):
            found.append(Difference(what, text))
    return found


def counted_differences(
    plain: Outcome, watched: Outcome, known: list[Difference]
) -> list[Difference]:
    """Compare runs whose ops were counted: the counts, and what is not known of the runs that were not."""
    found = [
        Difference(f"counted: {one.what}", one.text)
        for one in differences(plain, watched)
        if one not in known
    ]
    if text := _counted_unlike(plain.counts, watched.counts):
        found.append(Difference("ops", text))
    return found


def _unlike(plain: str, watched: str) -> str:
    if plain == watched:
        return ""
    pieces = (plain.splitlines(), watched.splitlines())
    lines = [*difflib.unified_diff(*pieces, "plain", "watched", lineterm="", n=1)][2:]
    lines = ["@@" if line.startswith("@@") else line for line in lines]
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return "\n".join(lines[:MOST_LINES] + more) or "line ends differ"


def _counted_unlike(plain: dict[str, dict[str, int]], watched: dict[str, dict[str, int]]) -> str:
    lines = []
    for part in sorted(plain.keys() | watched.keys()):
        if part not in plain or part not in watched:
            lines.append(
                f"{part}: no counts of the {'plain' if part in watched else 'watched'} run"
            )
            continue
        ours, theirs = plain[part], watched[part]
        lines += [
            f"{part}: {name}: {theirs.get(name, 0)} instead of {ours.get(name, 0)}"
            for name in sorted(ours.keys() | theirs.keys())
            if ours.get(name, 0) != theirs.get(name, 0)
        ]
    return "\n".join(lines)


@dataclass
class Compared:
    """A program in all ways."""

    program: Program
    unsteady: list[Difference] = field(default_factory=list)  # between plain runs: its own fault
    found: dict[str, list[Difference]] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def compare(
    program: Program, ways: list[Way], counted: Collection[str] = (), *, rounds: int = 0
) -> Compared:
    """Run a program in these ways for its results, and in those named `counted` once more to count ops.

    With `rounds`, so many times more for the lengths of its steps.
    """
    made = Compared(program)
    plain = run(program, PLAIN)
    made.seconds[PLAIN.name] = plain.seconds
    for way in ways:
        watched = run(program, way)
        made.seconds[way.name] = watched.seconds
        made.found[way.name] = differences(plain, watched)
    if any(made.found.values()):  # is it the program itself?
        made.unsteady = differences(plain, run(program, PLAIN))
    _compare_counted(made, [way for way in ways if way.name in counted])
    if rounds:
        made.costs = costs(program, ways, rounds)
    return made


def _compare_counted(made: Compared, ways: list[Way]) -> None:
    plain = run(made.program, PLAIN, count=True) if ways else None
    if not plain:
        return
    unlike = False
    for way in ways:
        known = made.found[way.name]
        found = counted_differences(plain, run(made.program, way, count=True), known)
        unlike = unlike or bool(found)
        known += found
    if unlike:
        again = run(made.program, PLAIN, count=True)
        made.unsteady += counted_differences(plain, again, made.unsteady)


def costs(program: Program, ways: list[Way], rounds: int) -> dict[str, float]:
    """Return the median length of a step in each way, as a multiple of the plain one: the median of several rounds."""
    ratios: dict[str, list[float]] = {way.name: [] for way in ways}
    for _ in range(rounds):
        plain = _median_step(program, PLAIN)
        if not plain:
            return {}
        for way in ways:
            if length := _median_step(program, way):
                ratios[way.name].append(length / plain)
    return {name: statistics.median(some) for name, some in ratios.items() if some}


def _median_step(program: Program, way: Way) -> float:
    """Return the median length of the steps of one run but the first two, which warm up; 0 if it has no loop."""
    steps = run(program, way, steps=True).steps[2:]
    return statistics.median(steps) if steps else 0.0

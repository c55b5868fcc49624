"""Programs of common libraries do the same when bridge watches them, bit for bit, and run the same ops.

On changes a few programs, in the ways that need no nsys; at night all that this Python has the libraries of, in all ways.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest
from real_parts import NIGHT, need

from wild.harness import Outcome, Program, counted_differences, differences, programs, run
from wild.ways import PLAIN, QUICK, WAYS

pytestmark = pytest.mark.slow
ALL = ("run-auto", "auto", "profile")
COUNTED = {("encoder_eval", "run-auto")}  # on changes: whose ops are counted
ON_CHANGES = {
    "encoder_eval": ("run-auto", "profile"),
    "functional_transforms": ("run-auto",),
    "lazy_mapping": ("auto",),
    "logging_tensors": ("run-auto",),
    "warns": ("run-auto",),
    "raises": ("auto",),
    "compile_graphs": ("run-auto",),
    "ddp_gloo": ("run-auto",),
}
Plain = Callable[[Program, bool], Outcome]


def cases() -> list[tuple[str, str]]:
    """Pair programs with ways; neighbours are of different programs, lest workers wait for the same plain run."""
    if NIGHT:
        return [(name, way) for way in WAYS for name in programs()]
    return [(name, way) for way in ALL for name, ways in ON_CHANGES.items() if way in ways]


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Plain:
    """Give the outcome of a plain run, which all workers of pytest share."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder if worker_id == "master" else folder.parent) / "wild"
    folder.mkdir(exist_ok=True)

    def outcome(program: Program, count: bool) -> Outcome:
        path: Path = folder / f"{program.name}-{count}"
        with path.open("ab+") as file:
            flock(file, LOCK_EX)
            if path.stat().st_size == 0:
                path.write_bytes(pickle.dumps(run(program, PLAIN, count=count)))
            return pickle.loads(path.read_bytes())

    return outcome


@pytest.mark.parametrize(("name", "way"), cases())
def test_does_the_same(name: str, way: str, plain: Plain) -> None:
    program = Program.named(name)
    need("wild", not program.missing, f"no {', '.join(program.missing)}")
    chosen = (WAYS if NIGHT else QUICK)[way]
    if chosen.under_nsys:
        need("nsys", shutil.which("nsys"), "no nsys on the path")
    found = differences(plain(program, False), run(program, chosen))
    if NIGHT or (name, way) in COUNTED:
        found += counted_differences(plain(program, True), run(program, chosen, count=True), found)
    assert not found, "\n\n".join(f"{one.what}:\n{one.text}" for one in found)


def test_programs_of_changes_need_pytorch_alone() -> None:
    assert {name: Program.named(name).requires for name in ON_CHANGES} == dict.fromkeys(
        ON_CHANGES, ("torch",)
    )

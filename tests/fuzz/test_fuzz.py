"""Mutants of real inputs, some of each importer, by fixed seeds; and those that once misbehaved."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from real_parts import NIGHT

from fuzz.inputs import IMPORTERS
from fuzz.judge import READ, REFUSED, judged
from fuzz.mutants import Mutants

pytestmark = pytest.mark.slow

SEEDS = Path(__file__).with_name("seeds")
LARGEST = 130_000  # bytes of an input: a case of a large one takes seconds
CASES = {
    "nsys": 14, "kineto": 7, "ncu-csv": 14, "ncu-rep": 4, "recording": 20, "snapshot": 14, "onednn": 20, "budget": 40,
    "rules": 40, "kernel-rules": 40, "xplane": 14, "perfetto": 14,
}  # fmt: skip


@pytest.mark.parametrize("name", IMPORTERS)
def test_mutants_are_read_or_refused_in_a_line(name: str, tmp_path: Path) -> None:
    if name == "ncu-rep":
        pytest.importorskip("ncu_report", reason="NVIDIA's ncu-report is not installed")
    mutants = Mutants(name, tmp_path, largest=LARGEST)
    if not mutants.sources:
        pytest.skip("no corpus beside the checkout, which these inputs are of")
    for seed in range(CASES[name] if NIGHT else -(-CASES[name] // 3)):
        verdict = mutants.judged(seed)
        assert not verdict.wrong, f"seed {seed} of {name}: {verdict.what}\n{verdict.said}"


@pytest.mark.parametrize("path", sorted(SEEDS.glob("*")), ids=lambda path: path.name)
def test_what_once_misbehaved(path: Path, tmp_path: Path) -> None:
    """The name of a seed begins with its importer, behind which stands what must come of it."""
    importer, what, *_ = path.name.split(".")
    verdict = judged(Path(shutil.copy(path, tmp_path)), IMPORTERS[importer].opened)
    assert verdict.what == {"read": READ, "refused": REFUSED}[what], verdict.said


def test_the_judge_tells_right_from_wrong(tmp_path: Path) -> None:
    """Each kind of misbehaviour is noticed: by a reader that does it."""
    path = tmp_path / "input"
    path.write_bytes(b"x")
    for what, reader in MISBEHAVING.items():
        assert judged(path, reader).what == what
        assert judged(path, reader).wrong
        (tmp_path / "beside").unlink(missing_ok=True)
    assert judged(path, len_of).what == READ


def len_of(path: Path) -> None:
    path.read_bytes()


def raises(_: Path) -> None:
    [].pop()


def of_numpy(_: Path) -> None:
    int("x")


def in_two_lines(_: Path) -> None:
    raise ValueError("a\nb")


def large(_: Path) -> None:
    bytearray(2 << 30)


def beside(path: Path) -> None:
    (path.parent / "beside").write_text("x")


def crashing(_: Path) -> None:
    signal.raise_signal(signal.SIGKILL)


MISBEHAVING = {
    "IndexError": raises,
    "ValueError": of_numpy,
    "a message that is no line": in_two_lines,
    "MemoryError": large,
    "changed or written beside": beside,
    "signal 9": crashing,
}

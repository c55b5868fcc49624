"""The real inputs of each importer, how they are mutated, and what is done with the mutants."""

from __future__ import annotations

import gzip
import json
import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import made_reports
import real_parts
from memory import snapshots

from bridge.annotate.label import Label
from bridge.annotate.recording.recorder import Recorder
from bridge.annotate.recording.sink import Memory
from bridge.annotate.recording.writer import Writer
from fuzz import databases, documents, octets, opening

TESTS = Path(__file__).parents[1]
BUDGET = """\
total = "20 ms"
unattributed = "1 %"
[ops]
"aten::*" = {gpu_self = "5 ms", calls = 100}
[ops."mine | 'x'"]
gpu_p95 = "10 us"
"""
RULES = """\
[[rule]]
match = "aten::(.*)_"
op = '\\1'
[[rule]]
match = "^conv\\\\d+$"
op = "convolution"
"""
KERNEL_RULES = """\
[[library]]
name = "mine"
has = ["^my_", "mine"]
[[library.rules]]
match = "gemm|matmul"
also = "tensor"
kind = "gemm"
tensor_cores = true
[[tensor_cores]]
match = "_mma_"
used = true
"""

Mutant = Callable[[Path, Path, random.Random], None]


@dataclass(frozen=True)
class Importer:
    """An importer to be fuzzed: ``made`` writes inputs into a folder, ``found`` are those of the corpus."""

    mutant: Mutant
    opened: Callable[[Path], None]
    made: Callable[[Path], Sequence[Path]]
    found: tuple[str, ...] = ()

    def sources(self, folder: Path, *, largest: int = 1 << 40) -> list[Path]:
        """Return the inputs that are no larger than so many bytes."""
        corpus = [
            path for pattern in self.found for path in sorted(real_parts.CORPUS.glob(pattern))
        ]
        every = [*self.made(folder), *corpus]
        return [path for path in every if path.stat().st_size <= largest]


def bytes_of(source: Path, target: Path, chance: random.Random) -> None:
    """Write a mutant of a file that nothing is known of."""
    target.write_bytes(octets.changed(source.read_bytes(), chance))


def _exports(folder: Path) -> list[Path]:
    return [
        made_reports.report(folder / "made.sqlite"),
        made_reports.small(folder / "small.sqlite"),
    ]


def _traces(_: Path) -> list[Path]:
    return [
        TESTS / "flops/data/small-training.pt.trace.json.gz",
        TESTS / "memory/data/training.pt.trace.json.gz",
    ]


def _recordings(folder: Path) -> list[Path]:
    writer = Writer(Memory())
    recorder = Recorder(writer)
    for n in range(4):
        recorder.push(Label(f"outer {n}", "d", "category", 255), n)
        recorder.push(Label("inner ж"), 0.5)
        writer.note(n, n % 2, {"args": {"n": n, "shape": [2, 3]}})
        recorder.pop(None)
        recorder.mark(Label("counter:memory"), n)
        writer.flush()
        recorder.pop("d")
    recorder.push(Label("open"), 1)
    writer.flush()
    path = folder / "made.jsonl"
    path.write_bytes(b"".join(writer.sink.lines))
    return [path]


def _snapshots(folder: Path) -> list[Path]:
    found = snapshots.training()
    found = found[0] if isinstance(found, tuple) else found
    found = found if isinstance(found, dict) else snapshots.snapshot(found)
    packed, text = folder / "made.pickle", folder / "made.json"
    packed.write_bytes(pickle.dumps(found, protocol=4))
    text.write_text(json.dumps(found), encoding="utf-8")
    return [packed, text]


def _of_snapshot(source: Path, target: Path, chance: random.Random) -> None:
    (documents.of_pickle if source.suffix == ".pickle" else documents.of_json)(
        source, target, chance
    )


def _profiles(folder: Path) -> list[Path]:
    from xplane import made_xplane  # needs protobuf

    made = made_xplane.gpu_profile().write(folder / "made.xplane.pb")
    return [TESTS / "xplane/data/cpu-training.xplane.pb", made]


def _perfetto(folder: Path) -> list[Path]:
    unpacked = folder / "cuspy.pftrace"
    unpacked.write_bytes(gzip.decompress((TESTS / "perfetto/data/cuspy.pftrace").read_bytes()))
    return [unpacked]


def _logs(_: Path) -> list[Path]:
    return sorted((TESTS / "onednn/data").glob("*.log"))


def _written(name: str, text: str) -> Callable[[Path], list[Path]]:
    def write(folder: Path) -> list[Path]:
        path = folder / name
        path.write_text(text, encoding="utf-8")
        return [path]

    return write


def _none(_: Path) -> list[Path]:
    return []


IMPORTERS = {
    "nsys": Importer(databases.mutant, opening.report, _exports, ("nsys/*.sqlite",)),
    "kineto": Importer(documents.of_json, opening.report, _traces, ("kineto/*.json.gz",)),
    "ncu-csv": Importer(documents.of_cells, opening.report, _none, ("ncu/*.csv",)),
    "ncu-rep": Importer(bytes_of, opening.report, _none, ("ncu/*.ncu-rep",)),
    "recording": Importer(documents.of_lines, opening.report, _recordings),
    "snapshot": Importer(_of_snapshot, opening.report, _snapshots),
    "xplane": Importer(bytes_of, opening.report, _profiles),
    "perfetto": Importer(bytes_of, opening.report, _perfetto),
    "onednn": Importer(documents.of_cells, opening.log, _logs),
    "budget": Importer(documents.of_text, opening.budget, _written("budget.toml", BUDGET)),
    "rules": Importer(documents.of_text, opening.rules, _written("rules.toml", RULES)),
    "kernel-rules": Importer(
        documents.of_text, opening.kernel_rules, _written("kernels.toml", KERNEL_RULES)
    ),
}

"""Mutants by their seeds: the same seed of the same inputs is the same file."""

from __future__ import annotations

import random
from pathlib import Path

from fuzz.inputs import IMPORTERS
from fuzz.judge import Verdict, judged


class Mutants:
    """Makes and judges the mutants of an importer, in a folder of their own."""

    def __init__(self, name: str, folder: Path, *, largest: int = 1 << 40) -> None:
        self.name, self.importer = name, IMPORTERS[name]
        sources, self.place = folder / "sources", folder / "mutant"
        sources.mkdir()
        self.place.mkdir()
        self.sources = self.importer.sources(sources, largest=largest)
        self.path = self.place

    def judged(self, seed: int) -> Verdict:
        """Make the mutant of a seed, and open it."""
        for old in self.place.iterdir():
            old.unlink()
        chance = random.Random(f"{self.name} {seed}")
        source = chance.choice(self.sources)
        self.path = self.place / f"mutant{''.join(source.suffixes[-2:])}"
        self.importer.mutant(source, self.path, chance)
        return judged(self.path, self.importer.opened)

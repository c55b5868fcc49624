"""A run that is guided by coverage: ``pip install atheris; PYTHONPATH=tests python -m fuzz.coverage_guided ncu SEEDS -max_total_time=600``.

The other options are those of libFuzzer. What is opened runs in this process, so that a crash ends the run; the
input is then in the current folder.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["json", "pickle", "bridge"]):
    from fuzz.inputs import IMPORTERS
    from fuzz.judge import READ, outcome


def main() -> None:
    """Fuzz one importer, beginning with its real inputs; they are written into the folder of seeds."""
    _, name, seeds, *options = sys.argv
    importer, folder = IMPORTERS[name], Path(seeds)
    folder.mkdir(exist_ok=True)
    sources = importer.sources(folder, largest=1 << 18)
    for number, source in enumerate(sources):
        (folder / f"real-{number}").write_bytes(source.read_bytes())
    suffix = sources[0].suffix
    warnings.simplefilter("ignore")
    target = Path(tempfile.mkdtemp(dir="/dev/shm")) / f"mutant{suffix}"

    def case(data: bytes) -> None:
        target.write_bytes(data)
        found = outcome(target, importer.opened)
        if found["what"] not in {READ, "refused"}:
            raise AssertionError(found)

    atheris.Setup([sys.argv[0], str(folder), "-max_len=262144", *options], case)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

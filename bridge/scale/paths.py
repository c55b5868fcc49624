"""Which files are meant: names, patterns in quotes, and folders."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from pathlib import Path

# In a folder, the first of these that a capture is there as: a report and its export are one capture.
SUFFIXES = (".sqlite", ".nsys-rep", ".qdrep", ".pt.trace.json", ".pt.trace.json.gz")
MARKS = frozenset("*?[")


def expanded(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files that are meant, those of one pattern or folder in the order of their names.

    A file that there is goes by its name, whatever characters are in it. ``**`` goes into folders; a folder means
    the reports in it, not those in folders of its own. A folder without any, and a pattern that nothing matches, stay as
    they are, for whoever reads them to refuse.
    """
    return [file for path in paths for file in _expanded(Path(path))]


def _expanded(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from _reports(path) or [path]
    elif path.exists() or not MARKS.intersection(str(path)):
        yield path
    else:
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - any path, absolute too
        yield from [one for one in found if one.is_file()] or [path]


def _reports(folder: Path) -> list[Path]:
    """Return the reports in a folder, one per capture."""
    captures: dict[str, Path] = {}
    names = sorted(path for path in folder.iterdir() if path.is_file())
    for suffix in SUFFIXES:
        for path in names:
            if path.name.endswith(suffix) and not path.name.startswith("."):
                captures.setdefault(path.name.removesuffix(suffix), path)
    return sorted(captures.values())

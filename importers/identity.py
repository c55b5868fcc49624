"""What a report is known by: its size and a hash of sampled pages, or of every byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

PAGE = 4096


SAMPLES = 256


OF_AGGREGATES = "aggregates:"  # before what such a run is known by, and a hash of its tables


OF_NCU = "ncu:"  # before what a file is known by that was matched to the others


def identity(paths: Sequence[Path], *, ncu: Sequence[Path] = (), whole: bool = False) -> str:
    """Return what the contents of these files are known by, whatever they are called.

    Of a large file 256 pages spread over it are read, of which the first and the last always; ``whole``
    reads everything. ``ncu`` are reports of Nsight Compute, whose order counts.
    """
    own = sorted(_of(path, whole=whole) for path in paths)
    return "+".join([*own, *(OF_NCU + _of(path, whole=whole) for path in ncu)])


def without_ncu(identity: str) -> str:
    """Return what a run is known by, whatever was matched to it."""
    return "+".join(part for part in identity.split("+") if not part.startswith(OF_NCU))


def known_by(parts: Iterable[str], tables: Iterable[str]) -> str:
    """Return what a run of these tables of reports is known by, given what each report is known by."""
    digest = hashlib.blake2b("\n".join(sorted(tables)).encode(), digest_size=8).hexdigest()
    return "+".join([f"{OF_AGGREGATES}{digest}", *sorted(parts)])


def _of(path: Path, *, whole: bool) -> str:
    size = path.stat().st_size
    digest = hashlib.blake2b(digest_size=16)
    last = max(0, size - PAGE)
    whole = whole or size <= SAMPLES * PAGE
    with path.open("rb") as file:
        if whole:
            while block := file.read(1 << 20):
                digest.update(block)
        else:
            for i in range(SAMPLES):
                file.seek(last * i // (SAMPLES - 1))
                digest.update(file.read(PAGE))
    return f"{'all' if whole else 'pages'}:{size}:{digest.hexdigest()}"

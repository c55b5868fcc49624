"""Identify reports by their contents: a size, and a hash of sampled pages or of every byte."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from bridge.importers.column_files import files_of, size_of

PAGE = 4096  # bytes
SAMPLES = 256  # pages
AGGREGATES_PREFIX = "aggregates:"  # of runs of aggregated tables; a hash of the tables follows
NCU_PREFIX = "ncu:"  # of matched reports of Nsight Compute


def identity(paths: Sequence[Path], *, ncu: Sequence[Path] = (), whole: bool = False) -> str:
    """Return a text that identifies the contents of these files or folders, whatever their names are.

    Of a large file 256 pages of 4 KiB are hashed, spread evenly from the first to the last;
    ``whole`` hashes every byte. ``ncu`` are the reports of Nsight Compute that were matched to the
    others; their order counts.
    """
    parts = sorted(_file_identity(path, whole=whole) for path in paths)
    return "+".join([*parts, *(NCU_PREFIX + _file_identity(path, whole=whole) for path in ncu)])


def without_ncu(identity: str) -> str:
    """Return the identity of a run without the reports of Nsight Compute matched to it."""
    return "+".join(part for part in identity.split("+") if not part.startswith(NCU_PREFIX))


def aggregates_identity(parts: Iterable[str], tables: Iterable[str]) -> str:
    """Return the identity of a run of aggregated tables, from the identities of its reports."""
    digest = hashlib.blake2b("\n".join(sorted(tables)).encode(), digest_size=8).hexdigest()
    return "+".join([f"{AGGREGATES_PREFIX}{digest}", *sorted(parts)])


def _file_identity(path: Path, *, whole: bool) -> str:
    """Return the identity of a file, or of a folder: of its tables and their names."""
    if path.is_dir():
        parts = {file.name: _file_identity(file, whole=whole) for file in files_of(path)}
        listed = "\n".join(f"{name} {part}" for name, part in parts.items())
        digest = hashlib.blake2b(listed.encode(), digest_size=16)
        is_whole = all(part.startswith("all:") for part in parts.values())
        return f"{'all' if is_whole else 'pages'}:{size_of(path)}:{digest.hexdigest()}"
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

"""Files are written whole or not at all: to a temporary name beside the target, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


class OutputError(Exception):
    """An output cannot be written; the message says what, where, and what to do."""


def check(target: Path, *, force: bool = False) -> None:
    """Refuse what cannot be a target, before any work is done; raises OutputError."""
    if target.is_dir():
        raise OutputError(f"{target}: a folder; name a file")
    if target.exists() and not target.is_file():  # to rename onto /dev/null would replace it
        raise OutputError(f"{target}: a pipe or a device; name a file, or redirect the output")
    if target.exists() and not force:
        raise OutputError(f"{target}: exists; give another name, or --force to replace it")
    if not target.parent.is_dir():
        raise OutputError(f"{target}: there is no folder {target.parent}")


@contextmanager
def whole(target: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to; it becomes ``target`` when the block ends well.

    Whatever ends the block otherwise, an interrupt too, leaves nothing behind. Raises OutputError
    if the target exists (unless ``force``) or cannot be written.
    """
    check(target, force=force)
    draft = target.with_name(f".bridge-{os.getpid()}.part")  # short: names have limits
    try:
        yield draft
        draft.replace(target)
    except OSError as error:
        if error.filename not in (None, str(draft), str(target)):
            raise
        raise OutputError(f"{target}: {error.strerror or error}; nothing was written") from error
    finally:
        draft.unlink(missing_ok=True)


def write(target: Path, text: str, *, force: bool = False) -> None:
    """Write a text file whole."""
    with whole(target, force=force) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def compressed(path: Path, gzip: bool) -> Iterator[BinaryIO]:
    """Open a file for writing bytes, through gzip if asked: isal's where there is one (4 x faster)."""
    if not gzip:
        with path.open("wb") as file:
            yield file
        return
    # No name and no time inside: the same input gives the same bytes.
    with path.open("wb") as file, _gzip()("", "wb", 1, file, mtime=0) as packed:
        yield packed


def _gzip() -> Any:
    try:
        from isal import igzip  # there is no wheel for every platform
    except ImportError:
        import gzip

        return gzip.GzipFile
    return igzip.IGzipFile

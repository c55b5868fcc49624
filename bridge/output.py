"""Atomic output files: written under a temporary name next to the target, then renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from bridge.knowledge.package import UserError


class OutputError(UserError):
    """An output cannot be written; the message names the file, the reason and a remedy."""


def check(target: Path, *, force: bool = False) -> None:
    """Raise OutputError if ``target`` cannot be written; called before any work is done."""
    if target.is_dir():
        raise OutputError(f"{target}: a folder; name a file")
    if target.exists() and not target.is_file():  # renaming onto /dev/null would replace it
        raise OutputError(f"{target}: a pipe or a device; name a file, or redirect the output")
    if target.exists() and not force:
        raise OutputError(f"{target}: exists; give another name, or --force to replace it")
    if not target.parent.is_dir():
        raise OutputError(f"{target}: there is no folder {target.parent}")


@contextmanager
def whole(target: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary path, which becomes ``target`` when the block succeeds.

    The path is an empty file that no other thread, process or machine writes to. Of several writers
    of one target without ``force``, the first to finish succeeds. If the block fails or is
    interrupted, nothing remains. Raises OutputError if the target exists (unless ``force``) or
    cannot be written.
    """
    check(target, force=force)
    # Random, because threads share a process id, and so may containers that share a folder; short,
    # because names have a maximum length. Unlike a file of `tempfile`, it has the usual permissions.
    draft = target.with_name(f".bridge-{secrets.token_hex(8)}.part")
    try:
        draft.touch(exist_ok=False)
        yield draft
        _sync(draft)
        if force:
            draft.replace(target)
        else:
            _rename_to_new(draft, target)
    except OSError as error:
        if error.filename not in (None, str(draft), str(target)):
            raise
        raise OutputError(f"{target}: {error.strerror or error}; nothing was written") from error
    finally:
        draft.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    """Have the contents on the disk before the name: after a crash a file is there whole or not at all."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _rename_to_new(draft: Path, target: Path) -> None:
    """Give the draft the name of the target, which another process may have made meanwhile."""
    try:
        os.link(draft, target)
    except FileExistsError:
        check(target)
        raise
    except OSError:  # a file system without hard links
        check(target)
        draft.replace(target)


MAX_NAME = 255  # bytes of the name of a file, on usual file systems


def file_name(stem: str, ending: str) -> str:
    """Return a file name of both parts; a stem that is too long for a name is cut at its end."""
    while stem and len(os.fsencode(stem + ending)) > MAX_NAME:
        stem = stem[:-1]
    return stem + ending


def write(target: Path, text: str, *, force: bool = False) -> None:
    """Write a text file atomically."""
    with whole(target, force=force) as draft:
        draft.write_text(text, encoding="utf-8")


@contextmanager
def compressed(path: Path, gzip: bool) -> Iterator[BinaryIO]:
    """Open a file for writing bytes, with ``gzip`` compressed (by isal, 4 x faster, if installed)."""
    if not gzip:
        with path.open("wb") as file:
            yield file
        return
    # Without name and time in the header, so that the same input gives the same bytes.
    with path.open("wb") as file, _gzip()("", "wb", 1, file, mtime=0) as packed:
        yield packed


def _gzip() -> Any:
    try:
        from isal import igzip  # not available on every platform
    except ImportError:
        import gzip

        return gzip.GzipFile
    return igzip.IGzipFile

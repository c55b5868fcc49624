"""Exports of ``.nsys-rep`` files: the one that nsys left beside the report, one of the cache, or a new one.

An entry of the cache is a folder named after the contents of a report and the form of the export.
It holds the export and ``entry.json``, which says the size and the last changes of each file. An
entry that does not agree with it is removed, never read. Whoever reads an entry holds a lock on it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from bridge.importers.errors import ExportFailed, NotAReport
from bridge.importers.listener import SILENT, Listener
from bridge.importers.nsys import export, schema
from bridge.importers.programs import find_program
from bridge.importers.records import record
from bridge.knowledge.amounts import parse_bytes

LOG = logging.getLogger("bridge.importers")

SWITCH, OFF = "BRIDGE_CACHE", "off"
LIMIT, DEFAULT_LIMIT = "BRIDGE_CACHE_LIMIT", "10GiB"
MANIFEST, EXPORT = "entry.json", "export"
ALL_FORMS = (*export.FASTER, export.SQLITE)
DRAFT = ".draft-"  # begins the name of an entry in the making


# -- For readers


def exports(
    path: Path, forms: Sequence[str] = (), listener: Listener = SILENT
) -> Iterator[AbstractContextManager[Path]]:
    """Yield contexts that give an export of a report under the report's name, the cheapest first.

    The later ones are for readers that cannot read the earlier ones. ``forms`` are the types of
    ``nsys export`` that are read, the best first; by default all. The contexts raise ExportFailed.
    """
    if beside := _left_beside(path):
        yield _beside(path, beside, listener)
    if os.environ.get(export.CHOICE) == export.SQLITE:
        forms = (export.SQLITE,)
    cache = _folder(make=True) if is_on() else None
    places: dict[str, Path] = {}
    if cache:
        digest = _digest(path)
        places = {form: cache / f"{digest}.{form}" for form in forms or ALL_FORMS}
    for place in places.values():
        if (entry := _entry(place)) and _nsys() in ([], entry.nsys):
            yield _kept(path, place)
    for form in forms or dict.fromkeys((export.fastest_form(), export.SQLITE)):
        yield _made(path, form, places.get(form), listener)


@contextmanager
def exported(path: Path, listener: Listener = SILENT) -> Iterator[Path]:
    """Yield an SQLite export of a report under the report's name. Raises ExportFailed."""
    with next(exports(path, (export.SQLITE,), listener)) as found:
        yield found


def is_on() -> bool:
    """Return whether exports are kept: ``$BRIDGE_CACHE`` is not ``off``."""
    return os.environ.get(SWITCH) != OFF


@contextmanager
def switched_off() -> Iterator[None]:
    """Keep and read no exports within the block, in processes that it starts neither."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = OFF
    try:
        yield
    finally:
        os.environ.pop(SWITCH)
        if before is not None:
            os.environ[SWITCH] = before


@contextmanager
def _named(path: Path, found: Path) -> Iterator[Path]:
    """Yield a link to an export under the report's name, from which readers take the name of a capture."""
    with tempfile.TemporaryDirectory(prefix="bridge-export-") as folder:
        link = Path(folder, path.name)
        link.symlink_to(found.resolve())
        yield link


# -- Beside the report


@contextmanager
def _beside(path: Path, found: Path, listener: Listener) -> Iterator[Path]:
    listener.say(f"{path.name}: read from {found.name}, an export that nsys left beside it")
    with _named(path, found) as link:
        yield link


def _left_beside(path: Path) -> Path | None:
    """Return the SQLite export that nsys left beside a report, if it is one of the whole report as it is now."""
    found = path.with_suffix(".sqlite")
    try:
        is_newer = found.stat().st_mtime_ns >= path.stat().st_mtime_ns
        return found if is_newer and _is_whole(found, path.name) else None
    except (OSError, sqlite3.Error, UnicodeDecodeError) as error:
        LOG.debug("%s: %s is not read for it: %s", path, found.name, error)
        return None


def _is_whole(database: Path, report: str) -> bool:
    """Return whether a database is a finished export of all that a report of this name holds."""
    uri = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        [[pages]], [[page_bytes]] = map(
            connection.execute, ("PRAGMA page_count", "PRAGMA page_size")
        )
        names = {name for [name] in connection.execute("SELECT name FROM sqlite_schema")}
        versions = [table.name for table in schema.VERSIONS if table.name in names]
        if not versions or pages * page_bytes != database.stat().st_size:
            return False
        rows = connection.execute(f'SELECT name, value FROM "{versions[0]}"').fetchall()
    said = {schema.EXPORT_PREFIX.sub("", name): value for name, value in rows}
    return (
        schema.EXPORT_SECONDS in said
        and said.get(schema.EXPORT_INPUT) == report
        and all(said.get(name) in (None, "", whole) for name, whole in schema.WHOLE_EXPORT.items())
    )


# -- Entries of the cache


@record
class Entry:
    """An export that is kept: its folder, the name of its report, which nsys made it, its bytes, when it was read last.

    Times are in seconds since 1970.
    """

    folder: Path
    report: str
    nsys: list[str | int]
    size: int
    used: float

    @property
    def form(self) -> str:
        """The type of ``nsys export``."""
        return self.folder.suffix[1:]


def entries() -> list[Entry]:
    """Return the exports that are kept, the one that was read last first."""
    if (cache := _folder()) is None:
        return []
    found = [_entry(folder) for folder in cache.iterdir() if not folder.name.startswith(DRAFT)]
    return sorted((e for e in found if e), key=lambda entry: entry.used, reverse=True)


def clear() -> int:
    """Remove the whole cache, but what other commands read or make at the moment; return the bytes of its entries."""
    size = sum(entry.size for entry in entries())
    make_room(0)
    return size - sum(entry.size for entry in entries())


def make_room(most: int | None = None) -> None:
    """Remove what is damaged or left over, then the entries that were not read for longest, until they fit.

    ``most`` are the bytes that may stay; by default the `limit`. Entries in use stay.
    """
    if (cache := _folder()) is None:
        return
    most = limit() if most is None else most
    kept = entries()
    whole = {entry.folder for entry in kept}
    for folder in cache.iterdir():
        age = time.time() - folder.lstat().st_mtime
        is_draft = folder.name.startswith(DRAFT)
        if folder not in whole and (not is_draft or age > export.TIME_LIMIT_S):
            shutil.rmtree(folder, ignore_errors=True)
    total = sum(entry.size for entry in kept)
    for entry in reversed(kept):
        if total > most and _remove(entry.folder):
            total -= entry.size


def location() -> Path:
    """Return where the cache is, or would be: ``$XDG_CACHE_HOME/nsight-bridge/exports``."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "nsight-bridge" / "exports"


def _folder(*, make: bool = False) -> Path | None:
    """Return the folder of the cache; None if there is none and none can be made, or if other users can write to it."""
    try:
        folder = location()
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home
        LOG.debug("no cache of exports: %s", error)
        return None
    is_ours = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return folder if is_ours else None


def limit() -> int:
    """Return the bytes that all entries may take: ``$BRIDGE_CACHE_LIMIT``."""
    try:
        return parse_bytes(os.environ.get(LIMIT) or DEFAULT_LIMIT)
    except ValueError as error:
        LOG.warning("$%s: %s; taken: %s", LIMIT, error, DEFAULT_LIMIT)
        return parse_bytes(DEFAULT_LIMIT)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _nsys() -> list[str | int]:
    """Return what tells one nsys from another, without running it; nothing if there is none."""
    program = find_program("nsys")
    return [os.path.realpath(program), Path(program).stat().st_mtime_ns] if program else []


def _files(folder: Path) -> dict[str, list[int]]:
    """Return the size and the last changes of the export in a folder: of a file, or of a folder and its files.

    Whoever alters a file can set back the time of its contents, not that of its inode.
    """
    top = folder / EXPORT
    files = [top, *(sorted(top.iterdir()) if top.is_dir() else ())]
    stats = [file.lstat() for file in files]
    return {
        str(file.relative_to(folder)): [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
        for file, found in zip(files, stats, strict=True)
    }


def _entry(folder: Path) -> Entry | None:
    """Return an entry that is as it was written; None for anything else."""
    manifest = folder / MANIFEST
    try:
        said, files = json.loads(manifest.read_bytes()), _files(folder)
        is_whole = (said["name"], said["files"]) == (folder.name, files)
        entry = Entry(
            folder,
            said["report"],
            nsys=said["nsys"],
            size=sum(found[0] for found in files.values()),
            used=manifest.stat().st_mtime,
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        LOG.debug("%s: no export that was kept: %s", folder, error)
        return None
    return entry if is_whole else None


@contextmanager
def _kept(path: Path, folder: Path) -> Iterator[Path]:
    """Read an entry, which no other command can remove meanwhile; it is removed if it cannot be read."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if _entry(folder) is None:  # looked at again, as it is locked only now
                raise ExportFailed(f"{path.name}: its export was removed meanwhile; try again")
            os.utime(folder / MANIFEST)
            with _named(path, folder / EXPORT) as link:
                yield link
    except NotAReport:
        _remove(folder)
        raise


@contextmanager
def _made(path: Path, form: str, kept: Path | None, listener: Listener) -> Iterator[Path]:
    """Make an export, which is kept if it can be read; ``kept`` is the entry that it becomes."""
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=kept and kept.parent) as draft:
        export.make(path, Path(draft, EXPORT), form, listener)
        with _named(path, Path(draft, EXPORT)) as link:
            yield link
        if kept:
            _keep(Path(draft), kept, path.name)


def _keep(draft: Path, folder: Path, report: str) -> None:
    """Give a draft the name of its entry; it stays a draft where it is too large or cannot be renamed."""
    files = _files(draft)
    if sum(found[0] for found in files.values()) > limit():
        return
    said = {"name": folder.name, "report": report, "nsys": _nsys(), "files": files}
    with suppress(OSError):
        (draft / MANIFEST).write_text(json.dumps(said), encoding="utf-8")
        if not folder.exists() or _remove(folder):
            draft.rename(folder)
        make_room()


def _remove(folder: Path) -> bool:
    """Remove an entry; return whether it is gone: it is not if a command reads it."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except BlockingIOError:
        return False
    except OSError:  # no manifest, or a file system without locks
        shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()

"""Exports of ``.nsys-rep`` files: one that is kept, the one that nsys left beside the report, or a new one.

An entry of the cache is a folder named after the contents of a report and the form of the export.
It holds the export and ``entry.json``, which says the size and the last changes of each file. An
entry that does not agree with it is removed, never read. Whoever reads or makes an entry holds a
lock on its folder, and nobody removes a folder that is locked.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from bridge.importers.errors import ExportFailed, NotAReport, ReportError
from bridge.importers.listener import SILENT, Listener
from bridge.importers.nsys import export, schema
from bridge.importers.programs import find_program
from bridge.importers.records import record

LOG = logging.getLogger("bridge.importers")

T = TypeVar("T")

SWITCH, OFF = "BRIDGE_CACHE", frozenset(["off", "0", "no", "false"])
LIMIT, DEFAULT_LIMIT = "BRIDGE_CACHE_LIMIT", 10  # GiB
GIB = 1 << 30
MANIFEST, EXPORT = "entry.json", "export"
ALL_FORMS = (*export.FASTER, export.SQLITE)
DRAFT = ".draft-"  # begins the name of an entry in the making
OURS = re.compile(rf"[0-9a-f]{{64}}\.(?:{'|'.join(ALL_FORMS)})|{re.escape(DRAFT)}.+")
MADE_WITHIN_S = 2 * export.TIME_LIMIT_S  # an older draft is left over, where there are no locks


# -- For readers


def read_export(
    path: Path,
    read: Callable[[Path], T],
    forms: Sequence[str] = (),
    listener: Listener = SILENT,
) -> T:
    """Return what is read of an export of a report, which has the report's name; the cheapest that can be read.

    ``read`` raises NotAReport for an export that it cannot read. ``forms`` are the types of
    ``nsys export`` that it reads, the best first; by default all. Raises ExportFailed, and what
    ``read`` raises.
    """
    failure: ReportError | None = None
    for found in _exports(path, forms, listener):
        try:
            with found as tables:
                return read(tables)
        except (NotAReport, ExportFailed) as error:
            LOG.debug("%s: this export is not read: %s", path, error)
            failure = error
    assert failure is not None  # at least one was tried
    raise failure


def _exports(
    path: Path, forms: Sequence[str], listener: Listener
) -> Iterator[AbstractContextManager[Path]]:
    """Yield contexts that give an export of a report under the report's name, the cheapest first."""
    if os.environ.get(export.CHOICE) == export.SQLITE:
        forms = (export.SQLITE,)
    as_now, places = _identity(path), _places(path, forms or ALL_FORMS) if is_on() else {}
    found = {place: entry for place in places.values() if (entry := _entry(place))}
    current = [place for place, entry in found.items() if _nsys() in ([], entry.nsys)]
    yield from (_kept(path, place) for place in current)
    if is_on() and (beside := _left_beside(path)):
        yield _beside(path, beside, listener)
    for form in forms or dict.fromkeys((export.fastest_form(), export.SQLITE)):
        yield _made(path, form, place=places.get(form), as_before=as_now, listener=listener)
    # The nsys of now may be too old for the report.
    yield from (_kept(path, place) for place in found if place not in current)


def _places(path: Path, forms: Sequence[str]) -> dict[str, Path]:
    """Return where the exports of a report are kept, by their form; nothing if none can be."""
    if (cache := _folder(make=True)) is None:
        return {}
    digest = _digest(path)
    return {form: cache / f"{digest}.{form}" for form in forms}


def is_on() -> bool:
    """Return whether exports are kept, and read that were kept or left: ``$BRIDGE_CACHE`` is not ``off``."""
    return os.environ.get(SWITCH, "").lower() not in OFF


@contextmanager
def switched_off() -> Iterator[None]:
    """Export anew within the block and keep nothing, in processes that it starts neither."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "off"
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
    with _named(path, found) as link:
        yield link
    listener.say(f"{path.name}: read from {found.name}, an export that nsys left beside it")


def _left_beside(path: Path) -> Path | None:
    """Return the SQLite export that nsys left beside a report, if it is one of the whole report as it is now.

    Both files would be newer if the report had been replaced, also by one that keeps its own time.
    """
    found = path.with_suffix(".sqlite")
    try:
        of_export, of_report = found.stat(), path.stat()
        is_newer = of_export.st_mtime_ns >= of_report.st_mtime_ns
        is_newer &= of_export.st_ctime_ns >= of_report.st_ctime_ns
        return found if is_newer and _is_whole(found, path.name) else None
    except (OSError, sqlite3.Error, UnicodeDecodeError, TypeError) as error:
        LOG.debug("%s: %s is not read for it: %s", path, found.name, error)
        return None


def _is_whole(database: Path, report: str) -> bool:
    """Return whether a database is a finished export of all that a report of this name holds."""
    uri = f"{database.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, timeout=0, uri=True)) as connection:
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


# -- The folder of the cache


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
    found = filter(None, map(_entry, _own_folders()))
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def clear() -> int:
    """Remove all but what other commands read or make at the moment; return the bytes of the entries removed."""
    removed = sum(entry.size for entry in entries() if _remove(entry.folder))
    make_room(0)
    return removed


def make_room(most: int) -> None:
    """Remove what is damaged or left over, then what was not read for longest, until ``most`` bytes stay."""
    for folder in _own_folders():
        if _entry(folder) is None:
            _remove(folder)
    kept = entries()
    total = sum(entry.size for entry in kept)
    for entry in reversed(kept):
        if total > most and _remove(entry.folder):
            total -= entry.size


def location() -> Path | None:
    """Return where the cache is, or would be: ``$XDG_CACHE_HOME/nsight-bridge/exports``; None without such a folder."""
    with suppress(RuntimeError):  # there is no home
        for base in (Path(os.environ.get("XDG_CACHE_HOME", "")), Path.home() / ".cache"):
            if base.is_absolute():
                return base / "nsight-bridge" / "exports"
    return None


def is_private() -> bool:
    """Return whether no other user can write to the cache: else it is not used."""
    folder = location()
    return folder is not None and all(map(_is_own, (folder, folder.parent)))


def limit() -> int:
    """Return the bytes that all entries may take: ``$BRIDGE_CACHE_LIMIT`` is in GiB."""
    text = os.environ.get(LIMIT) or str(DEFAULT_LIMIT)
    try:
        return max(0, int(float(text) * GIB))
    except (ValueError, OverflowError):
        LOG.warning("$%s: %r is no number of GiB; taken: %s", LIMIT, text, DEFAULT_LIMIT)
        return DEFAULT_LIMIT * GIB


def _folder(*, make: bool = False) -> Path | None:
    """Return the folder of the cache, None if there is none that can be used."""
    try:
        if make and (folder := location()):
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        return location() if is_private() else None
    except OSError as error:
        LOG.debug("no cache of exports: %s", error)
        return None


def _is_own(folder: Path) -> bool:
    found = folder.stat()
    return found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _own_folders() -> list[Path]:
    """Return what is in the cache by its name: of anything else there nothing is touched."""
    try:
        cache = _folder()
        return [path for path in cache.iterdir() if OURS.fullmatch(path.name)] if cache else []
    except OSError:
        return []


# -- Entries


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _identity(path: Path) -> tuple[int, ...]:
    """Return what changes if a file is written or replaced."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


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
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        LOG.debug("%s: no export that was kept: %s", folder, error)
        return None
    return entry if is_whole else None


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[bool]:
    """Lock a folder; yields whether there are locks here. Raises OSError if it is gone, or locked by others."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        has_locks = True
        try:
            fcntl.flock(place, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise
        except OSError:
            has_locks = False
        if not os.path.samestat(os.fstat(place), folder.stat()):
            raise FileNotFoundError(folder)
        yield has_locks
    finally:
        os.close(place)


def _remove(folder: Path) -> bool:
    """Remove an entry or a draft; return whether it is gone: it is not if a command reads or makes it."""
    try:
        with _locked(folder, fcntl.LOCK_EX) as has_locks:
            age = time.time() - folder.stat().st_mtime
            if not has_locks and folder.name.startswith(DRAFT) and age < MADE_WITHIN_S:
                return False
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return False
    return True


@contextmanager
def _kept(path: Path, folder: Path) -> Iterator[Path]:
    """Read an entry; it is removed if it cannot be read."""
    try:
        with _reading(path, folder), _named(path, folder / EXPORT) as link:
            yield link
    except NotAReport:
        _remove(folder)
        raise


@contextmanager
def _reading(path: Path, folder: Path) -> Iterator[None]:
    """Keep an entry from being removed, and note that it is read. Raises ExportFailed if it is gone."""
    with ExitStack() as held:
        try:
            held.enter_context(_locked(folder, fcntl.LOCK_SH))
        except OSError as error:
            raise ExportFailed(f"{path.name}: its export is being removed; try again") from error
        if _entry(folder) is None:  # looked at again, as it is locked only now
            raise ExportFailed(f"{path.name}: its export was replaced; try again")
        with suppress(OSError):  # on a disk that can only be read
            os.utime(folder / MANIFEST)
        yield


@contextmanager
def _made(
    path: Path, form: str, *, place: Path | None, as_before: tuple[int, ...], listener: Listener
) -> Iterator[Path]:
    """Make an export. It is kept at ``place`` if it can be read and the report is as it was before."""
    with ExitStack() as held:
        draft = held.enter_context(_draft(place and place.parent))
        try:
            export.make(path, draft / EXPORT, form, listener)
        except ExportFailed:
            if place is None or not _has_other_disk(place.parent):
                raise
            place, draft = None, held.enter_context(_draft(None))  # the cache's may be full
            export.make(path, draft / EXPORT, form, listener)
        can_be_read = True
        try:
            with _named(path, draft / EXPORT) as link:
                yield link
        except NotAReport:
            can_be_read = False
            raise
        finally:
            if place and can_be_read and _identity(path) == as_before:
                _keep(draft, place, path.name)


@contextmanager
def _draft(cache: Path | None) -> Iterator[Path]:
    """Make a folder for an export, in the cache if there is one that can be written, and locked there."""
    with ExitStack() as held:
        try:
            made = tempfile.TemporaryDirectory(prefix=DRAFT, dir=cache) if cache else None
        except OSError:
            made = None
        folder = made or tempfile.TemporaryDirectory(prefix="bridge-export-")
        draft = Path(held.enter_context(folder))
        with suppress(OSError):
            held.enter_context(_locked(draft, fcntl.LOCK_SH))
        yield draft


def _has_other_disk(cache: Path) -> bool:
    """Return whether temporary files lie on another disk than the cache."""
    return Path(tempfile.gettempdir()).stat().st_dev != cache.stat().st_dev


def _keep(draft: Path, place: Path, report: str) -> None:
    """Give a draft the name of its entry; it stays a draft where it is too large or cannot be renamed."""
    with suppress(OSError):
        files, most = _files(draft), limit()
        if sum(found[0] for found in files.values()) > most:
            return
        said = {"name": place.name, "report": report, "nsys": _nsys(), "files": files}
        (draft / MANIFEST).write_text(json.dumps(said), encoding="utf-8")
        if not place.exists() or _remove(place):
            draft.rename(place)
        make_room(most)

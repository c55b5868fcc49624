"""Run ``nsys export``: which forms the nsys of this machine offers, and how one is made."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from bridge.importers.column_files import ARROW, open_tables, write_texts
from bridge.importers.errors import ExportFailed, ReportError
from bridge.importers.listener import SILENT, Listener
from bridge.importers.nsys import schema
from bridge.importers.nsys.tables import Table
from bridge.importers.programs import find_program
from bridge.importers.records import record
from bridge.importers.sqlite_columns import Database, texts_of

LOG = logging.getLogger("bridge.importers")

SUFFIXES = (".nsys-rep", ".qdrep")
TIME_LIMIT_S = 3600
HELP_LIMIT_S = 60
SQLITE, CHOICE = "sqlite", "BRIDGE_NSYS_EXPORT"
FASTER = ("arrowdir", "arrow")  # forms that are exported and read faster, the best first
PER_CENT = re.compile(rb"(\d{1,3})%")


@record
class Offer:
    """The forms of exports that an nsys offers, and whether it exports single tables."""

    forms: frozenset[str]
    single_tables: bool

    @classmethod
    def of(cls, nsys: str) -> Self:
        """Return what the help of an nsys says; no forms if it is not understood."""
        text = _output([nsys, "export", "--help"])
        listed = re.search(r"--type=\s*Possible values are:([^.]*)\.", text)
        forms = frozenset(re.findall(r"\w+", listed[1])) if listed else frozenset()
        return cls(forms, "--tables=" in text)


def fastest_form() -> str:
    """Return the fastest form that the nsys of this machine exports and that is read here.

    ``$BRIDGE_NSYS_EXPORT`` set to ``sqlite`` rules out the others.
    """
    nsys = None if os.environ.get(CHOICE) == SQLITE else find_program("nsys")
    forms = Offer.of(nsys).forms if nsys else frozenset()
    fastest = next((form for form in FASTER if form in forms), SQLITE)
    LOG.debug("nsys is %s; it exports %s; taken: %s", nsys, sorted(forms), fastest)
    return fastest


def make(path: Path, target: Path, form: str = SQLITE, listener: Listener = SILENT) -> None:
    """Export a report to ``target``, which does not exist; ``form`` is a type of ``nsys export``.

    A columnar export gets the table that nsys writes only into SQLite exports. If the export fails
    or is interrupted, what it has written stays: let ``target`` be in a folder that is deleted.
    Raises ExportFailed, and ReportError if nsys takes too long.
    """
    nsys = find_program("nsys")
    if nsys is None:
        raise ExportFailed(
            f"{path.name}: reading it needs nsys, which is not on the PATH; install Nsight Systems,"
            f" or run 'nsys export --type sqlite {path.name}' where it was recorded"
        )
    what = f"exporting {path.name} with nsys"
    with listener.doing(what) as now:
        _export(nsys, path, target, form, on_percent=lambda percent: now(f"{what}: {percent} %"))
        if form != SQLITE:
            _add_capture(nsys, path, target)


def _export(
    nsys: str,
    path: Path,
    target: Path,
    form: str,
    *options: str,
    on_percent: Callable[[int], None] | None = None,
) -> None:
    command = [nsys, "export", "--type", form, *options, "--output", str(target)]
    try:
        done = _run([*command, str(path.resolve())], TIME_LIMIT_S, on_percent)
    except subprocess.TimeoutExpired as error:  # another form would take as long
        raise ReportError(
            f"{path.name}: nsys export did not end within {error.timeout:g} s"
        ) from error
    except OSError as error:
        raise ExportFailed(f"{path.name}: nsys export did not run: {error}") from error
    # A failed export leaves a readable database without rows: check the exit status.
    if done.returncode or not target.exists():
        raise ExportFailed(
            f"{path.name}: nsys export failed ({_error_line(done.stdout)});"
            f" is {nsys} ({_version(nsys)}) older than the nsys that recorded it, or a disk full?"
        )


def _run(
    command: Sequence[str], limit: int, on_percent: Callable[[int], None] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return what it printed; ``on_percent`` hears the progress that it prints.

    However this ends, by Ctrl-C too, nothing of the command runs on. Raises OSError and TimeoutExpired.
    """
    LOG.debug("running %s", command)
    printed: list[bytes] = []
    late = threading.Event()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    ) as process:  # fmt: skip

        def stop() -> None:
            late.set()
            _kill_group(process.pid)

        timer = threading.Timer(limit, stop)
        reader = threading.Thread(target=_hear, args=(process.stdout, printed, on_percent))
        timer.start()
        reader.start()
        try:
            process.wait()
        finally:
            timer.cancel()
            _kill_group(process.pid)  # what it has left running holds the pipe, too
            reader.join()
    if late.is_set():
        raise subprocess.TimeoutExpired(command, limit)
    LOG.debug("%s ended with exit status %d", command[0], process.returncode)
    text = b"".join(printed).decode(errors="replace").replace("\r", "\n")
    return subprocess.CompletedProcess(command, process.returncode, text)


def _hear(pipe: Any, printed: list[bytes], on_percent: Callable[[int], None] | None) -> None:
    """Collect what a command prints, and tell the last progress in each part of it."""
    while chunk := pipe.read1(1 << 16):
        printed.append(chunk)
        if on_percent and (percents := PER_CENT.findall(chunk)):
            on_percent(int(percents[-1]))


def _kill_group(process: int) -> None:
    """Kill all that runs in the session of a process that we started."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _output(command: Sequence[str]) -> str:
    """Return what a command prints; '' if it does not run."""
    try:
        return _run(command, HELP_LIMIT_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _add_capture(nsys: str, path: Path, target: Path) -> None:
    """Add to a columnar export the table of the capture's settings, with ranks, if nsys left it out.

    Raises ExportFailed if this nsys cannot export the table alone.
    """
    tables, name = open_tables(target), schema.CAPTURE.name
    if name in tables or schema.VERSIONS[0].name not in tables:  # older exports have none
        return
    if not Offer.of(nsys).single_tables:
        raise ExportFailed(f"{path.name}: {nsys} exports no single tables")
    database = target.with_name("capture.sqlite")
    _export(nsys, path, database, SQLITE, "--tables", name)
    columns = _texts(database, schema.CAPTURE)
    database.unlink()
    if target.is_dir():
        write_texts(target / f"{name}{ARROW}", name, columns)
    else:
        write_texts(target, name, columns)


def _texts(database: Path, table: Table) -> dict[str, list[str]]:
    """Return the columns of a table of texts; none if the export has no such table."""
    with Database(database) as export:
        query = table.query(export.tables())
        columns = export.read({table.name: query})[table.name] if query else {}
    return {
        column.sources[0]: texts_of(columns, name).decode() if columns else []
        for name, column in table.columns.items()
    }


def _error_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "failed" in line.lower()]
    return (errors or lines or ["no message"])[-1][:200]


def _version(nsys: str) -> str:
    words = _output([nsys, "--version"]).split()
    return words[-1] if words else "unknown version"

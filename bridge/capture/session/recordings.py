"""What a session records: one recording after the other, as tables, a trace, a file.

The invariant: a recording is read as everybody else's is, by the importers, and pandas is loaded only
then; no process writes into another's file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.annotate.recording.sink import ENDING, File, Memory, Sink
from bridge.annotate.recording.writer import Writer
from bridge.annotate.warning import warn
from bridge.capture.session.options import TRACES, Options, checked_metadata, checked_path, numbered

if TYPE_CHECKING:
    from bridge.report import Joined

NAME = f"session{ENDING}"  # of what is in no file
NOTHING = "the session has recorded nothing yet: no step of its schedule, or no range in it"


class Recorded:
    """The recording of the cycle that runs, or else of the one that ran last."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._metadata = dict(options.metadata)
        self._process = self._made_by = os.getpid()
        self._cycle = -1
        self._writer: Writer | None = None

    def next(self) -> Writer:
        """Begin the recording of another cycle; if cycles accumulate go on with the one there is."""
        if self._writer is not None and self._options.acc_events:
            return self._writer
        self._cycle += 1
        return self._renewed()

    def anew(self) -> Writer | None:
        """Forget what was recorded, and begin again if anything was."""
        return None if self._writer is None else self._renewed()

    def about(self, metadata: Mapping[str, Any]) -> None:
        """Say something of the run, in all recordings from now on; raises TypeError."""
        checked = checked_metadata(metadata)
        self._metadata |= checked
        if self._writer is not None:
            self._writer.about(checked)

    def flush(self) -> None:
        """Write what is not written yet; of a forked child that has recorded nothing, no file."""
        if self._writer is not None and (self._writer.has_news or self._process == os.getpid()):
            self._writer.flush()

    def joined(self) -> Joined:
        """Return the tables; raises `ReportError` if nothing was recorded."""
        from bridge.package import importers_are_ours  # pandas, when somebody asks

        with importers_are_ours():
            from bridge.report import join
            from importers.errors import NothingRecorded
            from importers.recording import report

            if self._writer is None:
                raise NothingRecorded(NOTHING)
            lines = self._lines(self._writer)
            try:
                return join(report.of_lines(_name(self._writer), lines))
            except NothingRecorded:
                raise NothingRecorded(NOTHING) from None

    def dump(self, path: str | Path | None) -> None:
        """Write it to a file, by default that of the cycle, in place of what is there.

        Raises ValueError without a file, `ReportError` if nothing was recorded, `OutputError`.
        """
        file = self._own_file() if path is None else checked_path(path)
        if file is None:
            raise ValueError("dump: into which file? dump('session.json'), or profile(path=…)")
        if file.name.endswith(TRACES):
            self.joined().export_chrome_trace(file, force=True)
        else:
            self._copy(file)

    def save(self) -> None:
        """Write the trace of a cycle that has ended, if one is wanted; what prevents it is a warning."""
        file = self._own_file()
        if file is None or file.name.endswith(ENDING):
            return  # lines are there already
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self.dump(file)
        except Exception as problem:  # noqa: BLE001 - the program is not to fail for being recorded
            warn(f"{file}: {problem}")

    def _copy(self, file: Path) -> None:
        from bridge.output import whole  # most sessions copy nothing

        if self._writer is None:
            self.joined()  # says why not
            return
        lines = self._lines(self._writer)
        sink = self._writer.sink
        if not (isinstance(sink, File) and sink.path == file.absolute()):
            with whole(file, force=True) as draft:
                draft.write_bytes(b"".join(lines))

    def _lines(self, writer: Writer) -> list[bytes]:
        """Return all lines, after writing those that were not; raises `ReportError` if they are gone."""
        writer.flush()
        sink = writer.sink
        if isinstance(sink, Memory):
            return b"".join(sink.lines).splitlines(keepends=True)
        path = sink.path if isinstance(sink, File) else Path(NAME)
        try:
            return path.read_bytes().splitlines(keepends=True)
        except OSError as error:
            from importers.errors import NotAReport  # as above

            raise NotAReport(f"{path}: {error.strerror}") from error

    def _own_file(self) -> Path | None:
        """Return the file of the cycle: those after the first, and those of forked children, have numbers."""
        numbers = [self._cycle + 1] if self._cycle > 0 else []
        if os.getpid() != self._process:
            numbers.append(os.getpid())
        path = self._options.path
        return None if path is None else numbered(path, numbers)

    def _renewed(self) -> Writer:
        if self._writer is not None and self._made_by == os.getpid():
            self._writer.close()
        self._writer, self._made_by = Writer(self._sink()), os.getpid()
        self._writer.about(self._metadata)
        return self._writer

    def _sink(self) -> Sink:
        file = self._own_file()
        return File(file, replace=True) if file and file.name.endswith(ENDING) else Memory()


def _name(writer: Writer) -> str:
    return writer.sink.path.name if isinstance(writer.sink, File) else NAME

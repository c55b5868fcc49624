"""Recordings of a session, one per cycle: as tables, as a trace, as a file.

A recording is read by the importers, and pandas is loaded only then. No process writes into the
file of another process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.annotate.emitter import warn
from bridge.annotate.recording.recorder import OF_REPORT, PREFIX
from bridge.annotate.recording.sink import ENDING, FOLDER_MODE, File, Memory, Sink
from bridge.annotate.recording.writer import PERIOD_NS, Writer
from bridge.capture.session.device import SUFFIX, DeviceRecording
from bridge.capture.session.options import (
    TRACES,
    Options,
    checked_metadata,
    checked_path,
    numbered_path,
)

if TYPE_CHECKING:
    from bridge.report import Report

LABELS = b'{"labels"'
BETWEEN_OPS = ("ProfilerStep#", "enumerate(DataLoader)#", "gc generation ")  # names of ranges
NAME = f"session{ENDING}"  # name of a recording that is not in a file
NOTHING = "the session has recorded nothing yet: no step of its schedule, or no range in it"


class CycleRecording:
    """The recording of the running cycle, or else of the last one.

    A schedule that repeats begins a cycle after the last step of a program, too. If the end of the
    session cuts it off before its first step has ended or any op has run, the recording is that of
    the cycle before.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._metadata = dict(options.metadata)
        self._process = self._made_by = os.getpid()
        self._cycle = -1
        self._writer: Writer | None = None
        self._before: Writer | None = None  # of the cycle before, until this one has a whole step
        self._is_first = True
        self._devices: dict[Writer, DeviceRecording] = {}  # of this writer and of that before

    def next(self) -> Writer:
        """Start the recording of another cycle, or continue the last one if cycles accumulate."""
        if self._writer is not None and self._options.acc_events:
            return self._writer
        self._cycle += 1
        self._before = None if self._is_first else self._before or self._writer
        self._is_first = False
        return self._new_writer()

    def start_device(self) -> None:
        """Record the GPU's work in this cycle, if the session does so; raises CaptureError in the first one."""
        if self._options.device is None or self._writer is None:
            return
        kept = {w: d for w, d in self._devices.items() if w in (self._writer, self._before)}
        self._devices = kept
        device = kept.setdefault(self._writer, DeviceRecording(self._options.device))
        device.start(is_first=self._cycle == 0)

    def stop_device(self) -> None:
        """Stop recording the GPU's work."""
        for device in self._devices.values():
            device.stop()

    def mute_device(self, *, muted: bool) -> None:
        """Suspend or resume recording the GPU's work."""
        for device in self._devices.values():
            device.mute(muted=muted)

    def _device(self) -> DeviceRecording | None:
        """Return what was recorded of the GPU with the present recording, None for nothing."""
        device = None if self._writer is None else self._devices.get(self._writer)
        return device if device is not None and device.has_records else None

    def begin_session(self) -> None:
        """Note that the next cycle is the first one of a session."""
        self._is_first = True

    def end_step(self) -> None:
        """Note that the recording has a whole step."""
        self._before = None

    def end_session(self) -> None:
        """Return to the recording of the cycle before if the last one has no whole step and no op."""
        before, self._before = self._before, None
        if before is not None and self._writer is not None and not self._has_ops(self._writer):
            self._writer = before
            self._cycle -= 1

    def restart(self) -> Writer | None:
        """Delete the recording, and start a new one if there was one."""
        return None if self._writer is None else self._new_writer()

    def about(self, metadata: Mapping[str, Any]) -> None:
        """Add metadata to all recordings from now on.

        Raises TypeError for values that are not JSON.
        """
        checked = checked_metadata(metadata)
        self._metadata |= checked
        if self._writer is not None:
            self._writer.about(checked)

    def flush(self) -> None:
        """Write pending events; a forked child without events writes no file."""
        if self._writer is not None and (self._writer.has_news or self._process == os.getpid()):
            self._writer.flush()

    def report(self) -> Report:
        """Return the recording as a report; raises `ReportError` if nothing was recorded."""
        from bridge.importers.errors import NothingRecorded
        from bridge.importers.recording import read
        from bridge.report import join

        if self._writer is None:
            raise NothingRecorded(NOTHING)
        lines, device = self._lines(self._writer), self._device()
        try:
            if device is not None:
                return join(device.read(_name(self._writer), lines))
            return join(read.read_lines(_name(self._writer), lines))
        except NothingRecorded as error:
            raise NothingRecorded(NOTHING) from error

    def dump(self, path: str | Path | None) -> None:
        """Write the recording to a file, by default that of the cycle; replaces the file.

        Raises ValueError without a file, `ReportError` if nothing was recorded, `OutputError` if
        the file cannot be written.
        """
        file = self._own_file() if path is None else checked_path(path)
        if file is None:
            raise ValueError("dump: no file; use dump('session.json') or profile(path=…)")
        if file.name.endswith(SUFFIX):
            self._write_report(file)
        elif file.name.endswith(TRACES):
            self.report().export_chrome_trace(file, force=True)
        else:
            self._copy(file)

    def save(self) -> None:
        """Write the trace of a cycle that has ended, if the session has a file for it.

        Warns on failure.
        """
        file = self._own_file()
        if file is None or file.name.endswith(ENDING):
            return  # the lines are already written
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self.dump(file)
        except Exception as problem:  # noqa: BLE001 - recording must not make the program fail
            warn(f"{file}: {problem}")

    def _write_report(self, file: Path) -> None:
        device = self._device()
        if device is None or self._writer is None:
            raise ValueError(f"dump: {file}: CUPTI recorded nothing; give a .jsonl or .json")
        lines = self._lines(self._writer)
        device.write(file, lines)
        folder = file.with_name(
            f"{file.stem}{OF_REPORT}"
        )  # where importers look for details of calls
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        (folder / f"{PREFIX}{os.uname().nodename}-{os.getpid()}{ENDING}").write_bytes(
            b"".join(lines)
        )

    def _copy(self, file: Path) -> None:
        from bridge.output import whole  # needed only here

        if self._writer is None:
            self.report()  # raises with the reason
            return
        lines = self._lines(self._writer)
        sink = self._writer.sink
        if not (isinstance(sink, File) and sink.path == file.absolute()):
            with whole(file, force=True) as draft:
                draft.write_bytes(b"".join(lines))

    def _lines(self, writer: Writer) -> list[bytes]:
        """Return all lines after a flush; raises `ReportError` if the file cannot be read."""
        writer.flush()
        sink = writer.sink
        if isinstance(sink, Memory):
            return b"".join(sink.lines).splitlines(keepends=True)
        path = sink.path if isinstance(sink, File) else Path(NAME)
        try:
            return path.read_bytes().splitlines(keepends=True)
        except OSError as error:
            from bridge.importers.errors import NotAReport  # as above

            raise NotAReport(f"{path}: {error.strerror}") from error

    def _has_ops(self, writer: Writer) -> bool:
        """Return whether there are ranges of others than steps, data loaders and garbage collections."""
        try:
            tables = [json.loads(line) for line in self._lines(writer) if line.startswith(LABELS)]
        except Exception:  # noqa: BLE001 - the end of a session must not fail
            return True
        names = (label[0] for table in tables for label in table["labels"].values())
        return not all(name.startswith(BETWEEN_OPS) for name in names)

    def _own_file(self) -> Path | None:
        """Return the file of the cycle, numbered after the first cycle and in forked children."""
        numbers = [self._cycle + 1] if self._cycle > 0 else []
        if os.getpid() != self._process:
            numbers.append(os.getpid())
        path = self._options.path
        return None if path is None else numbered_path(path, numbers)

    def _new_writer(self) -> Writer:
        if self._writer is not None and self._made_by == os.getpid():
            self._writer.close()
        self._writer, self._made_by = Writer(self._sink()), os.getpid()
        if self._options.dump_period is not None:
            self._writer.period_ns = min(PERIOD_NS, int(self._options.dump_period * 1e9))
        self._writer.about(self._metadata)
        return self._writer

    def _sink(self) -> Sink:
        file = self._own_file()
        return File(file, replace=True) if file and file.name.endswith(ENDING) else Memory()


def _name(writer: Writer) -> str:
    return writer.sink.path.name if isinstance(writer.sink, File) else NAME

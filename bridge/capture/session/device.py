"""The GPU's part of a session: a capture by CUPTI in each cycle, joined with the session's ranges as a report.

A cycle's spools are in a temporary folder, which is deleted with the recording of the cycle.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.annotate.emitter import warn

if TYPE_CHECKING:
    from bridge.capture.cupti.capture import Capture
    from bridge.importers.capture import Capture as RecordedCapture

CUPTI, AUTO = DEVICES = ("cupti", "auto")
SUFFIX = ".sqlite"
DRIVER_FILES = ("/proc/driver/nvidia/version", "/dev/dxg")  # the second one is of WSL
VARIABLE = "BRIDGE_LIBCUPTI"


class DeviceRecording:
    """What CUPTI recorded in one cycle, or in all cycles of a recording that accumulates."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._folder: Path | None = None
        self._capture: Capture | None = None

    def start(self, *, is_first: bool) -> None:
        """Start recording the first cycle of a session, or a later one.

        Raises CaptureError if CUPTI cannot, unless it is used only where it can be. In a later cycle another user may
        have it, which is a warning.
        """
        from bridge.capture.cupti.capture import Capture  # loads ctypes
        from bridge.capture.tool import CaptureError

        self.stop()
        if self._device == AUTO and not may_have_gpu():
            return
        capture = Capture(self._made_folder(), annotations=False)
        try:
            capture.start()
        except (CaptureError, OSError) as error:
            if self._device == CUPTI and is_first and not self.has_records:
                raise
            warn_once(str(error))
            return
        self._capture = capture

    def stop(self) -> None:
        """Stop recording; does nothing if it does not run."""
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.stop()

    def mute(self, *, muted: bool) -> None:
        """Suspend or resume recording."""
        if self._capture is not None:
            (self._capture.pause if muted else self._capture.resume)()

    @property
    def has_records(self) -> bool:
        """Whether any cycle was recorded."""
        folder = self._folder
        return folder is not None and folder.is_dir() and any(folder.iterdir())

    def _made_folder(self) -> Path:
        """Return the folder of the spools, which is deleted with this object."""
        if self._folder is None:
            from shutil import rmtree  # most sessions need none of it
            from tempfile import mkdtemp
            from weakref import finalize

            self._folder = Path(mkdtemp(prefix="bridge-cupti-"))
            finalize(self, rmtree, self._folder, ignore_errors=True)
        return self._folder

    def write(
        self, path: Path, lines: Sequence[bytes], *, force: bool = True, origin: int | None = None
    ) -> None:
        """Write a report with the ranges of the recording that has these lines.

        Raises CaptureError if nothing was recorded, OutputError if the file cannot be written.
        """
        from bridge.capture.cupti.export import write_report  # loads NumPy
        from bridge.capture.cupti.spool import ANNOTATIONS, read_processes

        folder = self._made_folder()
        processes = read_processes(folder)
        if processes:
            (processes[-1].folder / ANNOTATIONS).write_bytes(b"".join(lines))
        write_report(folder, path, force=force, origin=origin)

    def read(self, name: str, lines: Sequence[bytes]) -> RecordedCapture:
        """Return the capture of the recording with these lines, and the GPU's work."""
        from tempfile import TemporaryDirectory

        from bridge import importers
        from bridge.importers.recording.lines import parse_recording
        from bridge.importers.recording.read import with_details

        with TemporaryDirectory(prefix="bridge-cupti-") as folder:
            path = Path(folder, Path(name).stem + SUFFIX)
            self.write(path, lines, origin=0)  # the monotonic clock, as all recordings have
            return with_details(importers.load(path), [parse_recording(name, lines)])


_warned: set[str] = set()


def warn_once(problem: str) -> None:
    """Warn that a session has no GPU times, once for each reason."""
    if problem not in _warned:
        _warned.add(problem)
        warn(f"the work of the GPU is not recorded: {problem}", 4)


def may_have_gpu() -> bool:
    """Return whether there is a driver of NVIDIA, or a libcupti that the user names; loads nothing."""
    return VARIABLE in os.environ or any(Path(path).exists() for path in DRIVER_FILES)

"""What a session has recorded so far, as tables, a trace, a file.

The invariant: a recording is read as everybody else's is, by the importers; pandas is loaded only then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bridge.recording.sink import ENDING, File, Memory
from bridge.recording.writer import Writer
from bridge.session.options import TRACES

if TYPE_CHECKING:
    from bridge.joined import Joined

NAME = f"session{ENDING}"  # of what is in no file


def joined(writer: Writer) -> Joined:
    """Return the tables of a recording; raises `ReportError` if nothing was recorded."""
    from bridge.own import importers_are_ours  # noqa: PLC0415 (pandas, when somebody asks)

    with importers_are_ours():
        from bridge.joined import join  # noqa: PLC0415
        from importers.recording import report  # noqa: PLC0415

        name, lines = _name(writer), _lines(writer)
        return join(report.of_lines(name, lines))


def dump(writer: Writer, path: Path) -> None:
    """Write a recording to a file, by its suffix as lines or as a Chrome trace, in place of what is there."""
    if path.name.endswith(TRACES):
        joined(writer).export_chrome_trace(path, force=True)
    elif not _is_at(writer, path):
        from bridge.output import write  # noqa: PLC0415 (imports pathlib's friends)

        write(path, b"".join(_lines(writer)).decode(), force=True)


def _is_at(writer: Writer, path: Path) -> bool:
    sink = writer.sink
    return isinstance(sink, File) and sink.path.absolute() == path.absolute()


def _name(writer: Writer) -> str:
    return writer.sink.path.name if isinstance(writer.sink, File) else NAME


def _lines(writer: Writer) -> list[bytes]:
    """Return all lines that were written, after writing what was not."""
    writer.flush()
    sink = writer.sink
    if isinstance(sink, Memory):
        return b"".join(sink.lines).splitlines(keepends=True)
    return sink.path.read_bytes().splitlines(keepends=True) if isinstance(sink, File) else []

"""Writes a recording every so many seconds, whatever the program does meanwhile."""

from __future__ import annotations

from threading import Event, Thread

from bridge.recording.writer import Writer


class Period:
    """A thread that writes, from `begin` to `end`; without seconds, nothing."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._ended = Event()

    def begin(self, writer: Writer) -> None:
        """Write this recording from now on."""
        self.end()
        if self._seconds is not None:
            self._ended = Event()
            arguments = (writer, self._seconds, self._ended)
            Thread(target=_write, args=arguments, name="bridge recording", daemon=True).start()

    def end(self) -> None:
        """Write no more by the clock."""
        self._ended.set()


def _write(writer: Writer, seconds: float, ended: Event) -> None:
    while not ended.wait(seconds):
        writer.flush()

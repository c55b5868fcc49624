"""Writes a recording every so many seconds, whatever the program does meanwhile.

The invariant: `end` waits for nothing, so that a signal handler may call it.
"""

from __future__ import annotations

from threading import Lock, Thread

from bridge.annotate.recording.writer import Writer


class Period:
    """A thread that writes, from `begin` to `end`; without seconds, nothing."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._going: list[Lock] = []  # held while a thread is to go on

    def begin(self, writer: Writer) -> None:
        """Write this recording from now on."""
        self.end()
        if self._seconds is not None:
            going = Lock()
            going.acquire()
            self._going.append(going)
            arguments = (writer, self._seconds, going)
            Thread(target=_write, args=arguments, name="bridge recording", daemon=True).start()

    def end(self) -> None:
        """Write no more by the clock."""
        while self._going:
            self._going.pop().release()


def _write(writer: Writer, seconds: float, going: Lock) -> None:
    while not going.acquire(timeout=seconds):
        writer.flush()

"""One cycle of a session after the other: what is recorded, into what, and what is switched on for it.

The invariant: the annotations' back end, the session's details and all automatic annotations are as
they were before `start` once `stop` has been called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.annotate import emit
from bridge.annotate.emit import Silent, state
from bridge.recording.period import Period
from bridge.recording.recorder import Recorder
from bridge.recording.sink import ENDING, File, Memory, Sink
from bridge.recording.writer import Writer
from bridge.session import memory, recorded
from bridge.session.automatic import Automatic
from bridge.session.capture import Capture
from bridge.session.options import Options, checked_path

if TYPE_CHECKING:
    from bridge.joined import Joined

REASON = "a session records"


class Cycle:
    """What the machine calls; also what a session forgets, dumps and mutes."""

    def __init__(self, options: Options, capture: Capture, ready: Callable[[], object]) -> None:
        self._options, self._capture, self._ready = options, capture, ready
        self._automatic = Automatic(
            options.level,
            details=options.details,
            modules=options.with_modules,
        )
        self._period = Period(options.dump_period)
        self._metadata = dict(options.metadata)
        self._cycle = -1
        self._writer: Writer | None = None
        self._recorder: Recorder | None = None
        self._before: tuple[emit.Emitter, str] | None = None
        self._muted = False

    def prepare(self) -> None:
        """Make what will be recorded into; what was recorded last is kept if cycles accumulate."""
        if self._writer is None or not self._options.acc_events:
            self._cycle += 1
            self._renew()

    def start(self) -> None:
        """Have the tool capture, and record."""
        self._capture.start()
        tool = emit.current()
        self._before = tool, state.reason
        heard = None if isinstance(tool, Silent) else tool
        self._recorder = Recorder(self._written(), heard)
        state.writer, state.details = self._writer, self._options.details
        if not self._muted:
            self._listen(self._recorder)
        self._period.begin(self._written())

    def stop(self) -> None:
        """Record no more, nor have the tool capture; what is open stays open in the recording."""
        self._period.end()
        if not self._muted:
            self._hush()
        state.writer = state.details = None
        if self._recorder is not None:
            self._recorder.finish()
            self._recorder = None
        if self._before is not None:
            emit.use(*self._before)
            self._before = None
        self._written().flush()
        self._capture.stop()

    def ready(self) -> None:
        """Hand on what was recorded: to the user's function, and to the session's own file."""
        if self._options.file(self._cycle) is not None:
            self.dump(None)
        self._ready()

    def mute(self) -> None:
        """Record and emit nothing until `unmute`."""
        self._muted = True
        if self._recorder is not None:
            self._hush()
            emit.use(Silent(), REASON)

    def unmute(self) -> None:
        """Record again."""
        self._muted = False
        if self._recorder is not None:
            self._listen(self._recorder)

    def clear(self) -> None:
        """Forget what was recorded."""
        if self._writer is None:
            return
        self._renew()
        if self._recorder is not None:
            self._recorder.into(self._writer)
            state.writer = self._writer
            self._period.begin(self._writer)

    def about(self, metadata: Mapping[str, Any]) -> None:
        """Say something of the run, in all recordings from now on."""
        if self._writer is not None:
            self._writer.about(metadata)
        self._metadata |= metadata

    def joined(self) -> Joined:
        """Return what was recorded last."""
        return recorded.joined(self._written())

    def dump(self, path: str | Path | None) -> None:
        """Write what was recorded last, by default to the file of this cycle."""
        file = checked_path(path) or self._options.file(max(self._cycle, 0))
        if file is None:
            raise ValueError("dump: into which file? dump('session.json'), or profile(path=…)")
        recorded.dump(self._written(), file)

    def detach(self) -> None:
        """In a forked child of the session's process: only write what the child has recorded."""
        if self._writer is not None:
            self._writer.close()

    def _listen(self, recorder: Recorder) -> None:
        emit.use(recorder, REASON)
        self._automatic.enable()
        self._sample()

    def _hush(self) -> None:
        self._sample()
        self._automatic.disable()

    def _sample(self) -> None:
        if self._options.profile_memory:
            memory.sample()

    def step(self) -> None:
        """Note what is noted at every step."""
        if self._recorder is not None and not self._muted:
            self._sample()

    def _written(self) -> Writer:
        if self._writer is None:  # nothing was recorded
            self._renew()
        return self._writer  # type: ignore[return-value]  # just made

    def _renew(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = Writer(self._sink())
        self._writer.about(self._metadata)

    def _sink(self) -> Sink:
        file = self._options.file(max(self._cycle, 0))
        return File(file, replace=True) if file and file.name.endswith(ENDING) else Memory()

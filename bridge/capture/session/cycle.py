"""The cycles of a session: what is switched on when one begins, and off when it ends.

The invariant: the annotations' back end, the session's details and all automatic annotations are as
they were before `start` once `stop` has been called, whatever raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bridge.annotate import emit
from bridge.annotate.emit import state
from bridge.annotate.emitter import Emitter, Silent
from bridge.annotate.memory import sampling
from bridge.annotate.memory.sampling import Sampler
from bridge.annotate.memory.uses import uses
from bridge.annotate.recording.recorder import Recorder
from bridge.annotate.recording.sink import Memory
from bridge.annotate.recording.writer import Period, Writer
from bridge.capture.session.automatic import Automatic
from bridge.capture.session.capture import capture
from bridge.capture.session.options import Options
from bridge.capture.session.recordings import Recorded
from bridge.capture.session.transitions import call_all

REASON = "a session records"


class Before(NamedTuple):
    """What annotations did before a cycle."""

    emitter: Emitter
    reason: str
    writer: Any
    details: Any


class Cycle:
    """What the machine calls: `prepare`, `start`, `stop` and `ready`; the rest is for the session."""

    def __init__(self, options: Options, recorded: Recorded, ready: Callable[[], object]) -> None:
        self._options, self._recorded, self._ready = options, recorded, ready
        self._automatic = Automatic(
            options.level, details=options.details, modules=options.with_modules
        )
        self._capture = capture(options.capture)
        self._period = _period(options)
        self._recorder: Recorder | None = None
        self._before: Before | None = None
        self._muted = False

    def prepare(self) -> None:
        """Load what emits, so that the first step that is recorded does not wait for it."""
        emit.current()

    def start(self) -> None:
        """Have the tool capture, and record."""
        if self.on:
            self._restore()
        self._capture.start()
        tool = sampling.behind(emit.current())
        self._before = Before(tool, state.reason, state.writer, state.details)
        writer = self._recorded.next()
        self._recorder = Recorder(writer, None if isinstance(tool, Silent) else tool)
        state.writer, state.details = writer, self._options.details
        self._hear()
        if self._period is not None:
            self._period.begin(writer)

    def stop(self) -> None:
        """Record no more, nor have the tool capture; what is open stays open in the recording."""
        call_all(
            self.sample,
            self._stop_period,
            self._restore,
            self._recorded.flush,
            self._capture.stop,
        )

    def ready(self) -> None:
        """Hand on what was recorded: to the session's own file, and to the user's function."""
        call_all(self._recorded.save, self._ready)

    @property
    def on(self) -> bool:
        """Whether anything is to be undone: an interrupt may have come between start and stop."""
        return self._before is not None

    @property
    def recording(self) -> bool:
        """Whether what happens now is recorded."""
        return self._recorder is not None and not self._muted

    def mute(self, muted: bool) -> None:
        """Record and emit nothing in recorded steps, or again."""
        if muted is self._muted:
            return
        if muted:
            self.sample()
        self._muted = muted
        if self._recorder is not None:
            self._hear()

    def clear(self) -> None:
        """Forget what was recorded; what is open goes on."""
        writer = self._recorded.anew()
        if writer is not None and self._recorder is not None:
            self._recorder.into(writer)
            state.writer = writer
            if self._period is not None:
                self._period.begin(writer)

    def sample(self) -> None:
        """Note how much memory is in use."""
        if self.recording and (self._options.profile_memory or self._options.sample_rate):
            sampling.record(uses())

    def leave(self) -> None:
        """Stop in a forked child: the tool's capture is the parent's, as is the thread that writes."""
        self._capture = capture(self._options.capture)
        self._period = _period(self._options)
        self._restore()
        self._recorded.flush()

    def _hear(self) -> None:
        """Hand all that is emitted to the recorder; while muted to nobody."""
        if self._muted or self._recorder is None:
            self._automatic.disable()
            emit.use(sampling.around(Silent()), REASON)
        else:
            emit.use(sampling.around(self._heard_by(self._recorder)), REASON)
            self._automatic.enable()
            self.sample()

    def _heard_by(self, recorder: Recorder) -> Emitter:
        """Return the back end while it records: one that samples memory, if that is wanted at every few ops."""
        every = self._options.sample_rate
        return Sampler(recorder, every, lambda _op: sampling.record(uses())) if every else recorder

    def _stop_period(self) -> None:
        if self._period is not None:
            self._period.end()

    def _restore(self) -> None:
        call_all(self._automatic.disable, self._fall_back, self._finish)
        self._before = None

    def _fall_back(self) -> None:
        if self._before is not None:
            emit.use(sampling.around(self._before.emitter), self._before.reason)
            state.writer, state.details = self._before.writer, self._before.details

    def _finish(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish()
            recorder.into(_nowhere())  # what threads still close, who know this recorder alone


def _period(options: Options) -> Period | None:
    return None if options.dump_period is None else Period(options.dump_period)


def _nowhere() -> Writer:
    writer = Writer(Memory())
    writer.close()
    return writer

"""Cycles of a session: what is enabled at the start of a cycle and disabled at its end.

After `stop`, the back end of annotations, the details of the session and all automatic annotations
are as before `start`, even after exceptions.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from bridge.annotate import emit, stack
from bridge.annotate.emit import state
from bridge.annotate.emitter import Emitter, NullEmitter, warn
from bridge.annotate.label import Label
from bridge.annotate.memory import sampling
from bridge.annotate.memory.sampling import Sampler
from bridge.annotate.memory.usage import process_sizes, uses
from bridge.annotate.recording.recorder import Recorder
from bridge.annotate.recording.sink import Memory
from bridge.annotate.recording.writer import Writer
from bridge.annotate.stack import Entry, close, push
from bridge.capture.session.control import capture_control
from bridge.capture.session.options import FRAMEWORKS, RUNTIME, Options
from bridge.capture.session.recordings import CycleRecording
from bridge.capture.session.transitions import call_all
from bridge.frameworks.autorun import expect, forget

# -- Automatic annotations: PyTorch's ops and API calls, garbage collections


TORCH = "torch"

LABELS = [Label(f"gc generation {number}", None, "gc") for number in range(3)]


class Collections:
    """Ranges around garbage collections, from `enable` to `disable`."""

    def __init__(self) -> None:
        self._open: list[Entry] = []

    def enable(self) -> None:
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def disable(self) -> None:
        """Stop, and close an open range: a finalizer may call this during a collection."""
        with suppress(ValueError):
            gc.callbacks.remove(self._note)
        self._close()

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and not state.idle:
            entry = Entry(LABELS[info["generation"]], stack.new_call_id())
            self._open.append(entry)
            push(entry)
        elif phase == "stop":
            self._close()

    def _close(self) -> None:
        with suppress(IndexError):
            close(self._open.pop())


class Switch(Protocol):
    """An annotation that can be enabled and disabled."""

    def enable(self) -> None: ...

    def disable(self) -> None: ...


class Automatic:
    """The automatic annotations of one session.

    Those that were enabled are disabled, even after exceptions.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._on: list[Switch] = []

    def enable(self) -> None:
        """Start annotating; PyTorch is annotated when the program imports it."""
        self.disable()  # in case the last disable failed
        for switch in self._switches():
            self._switch_on(switch)

    def disable(self) -> None:
        """Disable all annotations; failures are warned about, and tried again the next time."""
        forget(TORCH, self._enable_torch)
        problems = []
        for switch in self._on[::-1]:
            try:
                switch.disable()
            except Exception as problem:  # noqa: BLE001 - the others must be disabled too
                problems.append(problem)
            else:
                self._on.remove(switch)
        for failure in problems:
            warn(str(failure), 4)

    def _switches(self) -> Iterator[Switch]:
        if self._options.level >= RUNTIME:
            yield Collections()
        if self._options.level < FRAMEWORKS and not self._options.api_calls:
            return
        if "torch.nn" in sys.modules:
            yield from self._torch_switches()
        elif TORCH not in sys.modules:
            expect(TORCH, self._enable_torch)

    def _switch_on(self, switch: Switch) -> None:
        self._on.append(switch)  # before `enable`, because disabling is harmless
        switch.enable()

    def _enable_torch(self, _: object) -> None:
        for switch in self._torch_switches():
            self._switch_on(switch)

    def _torch_switches(self) -> Iterator[Any]:
        from bridge.frameworks import torch  # PyTorch is already loaded

        options = self._options
        if options.api_calls or options.level >= RUNTIME:
            yield torch.api_calls()
        if options.level < FRAMEWORKS:
            return
        yield torch.optimizer_steps()
        yield torch.dataloader_waits()
        yield torch.custom_ops()
        if options.with_modules:
            yield torch.every_module()
        details = options.details
        flops = details and details.flops
        if options.records_ops:
            yield torch.ops(shapes=bool(details), flops=flops, stacks=options.with_stack)
        else:
            yield torch.native_ops()


# -- Cycles


REASON = "a session records"


class AnnotationState(NamedTuple):
    """The state of annotations before a cycle."""

    emitter: Emitter
    reason: str
    writer: Any
    details: Any


class Cycle:
    """Carries out the cycles: the machine calls `prepare`, `start`, `stop`, `ready`.

    The session the rest.
    """

    def __init__(
        self, options: Options, recording: CycleRecording, ready: Callable[[], object]
    ) -> None:
        self._options, self._recording, self._ready = options, recording, ready
        self._automatic = Automatic(options)
        self._capture = capture_control(options.capture)
        self._recorder: Recorder | None = None
        self._before: AnnotationState | None = None
        self._muted = False

    def prepare(self) -> None:
        """Load the back end, so that the first recorded step does not wait for it."""
        emit.current()

    def start(self) -> None:
        """Start the capture of the tool, and the recording."""
        if self.on:
            self._restore()
        self._capture.start()
        tool = sampling.without_sampler(emit.current())
        self._before = AnnotationState(tool, state.reason, state.writer, state.details)
        writer = self._recording.next()
        self._recording.start_device()
        self._recorder = Recorder(writer, None if isinstance(tool, NullEmitter) else tool)
        state.writer, state.details = writer, self._options.details
        self._route()

    def stop(self) -> None:
        """Stop the recording and the capture; open ranges stay open in the recording."""
        call_all(
            self._note_groups,
            self.sample,
            self._recording.stop_device,
            self._restore,
            self._recording.flush,
            self._capture.stop,
        )

    def ready(self) -> None:
        """Save the recording to the session's file, and call the user's function."""
        call_all(self._recording.save, self._ready)

    def _note_groups(self) -> None:
        """Add rank, world size and process groups of PyTorch to the recording."""
        if (
            "torch.distributed" in sys.modules
            and "torch.nn" in sys.modules
            and hasattr(sys.modules[TORCH], "nn")
        ):
            from bridge.frameworks.torch.distributed import distributed_info  # as in Automatic

            info = distributed_info()
            if info:
                names = ("rank", "world_size")
                self._recording.about({**{n: info[n] for n in names}, "distributed": info})

    @property
    def on(self) -> bool:
        """Whether a cycle is running, possibly after an interrupt between `start` and `stop`."""
        return self._before is not None

    @property
    def recording(self) -> bool:
        """Whether events are recorded now."""
        return self._recorder is not None and not self._muted

    def mute(self, muted: bool) -> None:
        """Suspend or resume recording and emitting in recorded steps."""
        if muted is self._muted:
            return
        if muted:
            self.sample()
        self._muted = muted
        if self._recorder is not None:
            self._recording.mute_device(muted=muted)
            self._route()

    def capture(self, on: bool) -> None:
        """Start or stop the capture of the tool in a recorded step; a stopped capture stays stopped."""
        if self.on:
            (self._capture.start if on else self._capture.stop)()

    def clear(self) -> None:
        """Delete the recording; open ranges continue in the new one."""
        writer = self._recording.restart()
        if writer is not None and self._recorder is not None:
            self._recorder.switch_to(writer)
            state.writer = writer

    def sample(self) -> None:
        """Record the memory in use, if the session samples memory."""
        if self.recording and (self._options.profile_memory or self._options.sample_rate):
            usages = uses()
            sampling.record(usages, process_sizes(usages))

    def leave(self) -> None:
        """Stop in a forked child; the capture belongs to the parent."""
        self._capture = capture_control(self._options.capture)
        self._restore()
        self._recording.flush()

    def _route(self) -> None:
        """Send annotations to the recorder, or to nothing while muted."""
        if self._muted or self._recorder is None:
            self._automatic.disable()
            emit.use(sampling.with_sampler(NullEmitter()), REASON)
        else:
            emit.use(sampling.with_sampler(self._recording_emitter(self._recorder)), REASON)
            self._automatic.enable()
            self.sample()

    def _recording_emitter(self, recorder: Recorder) -> Emitter:
        """Return the back end of a recording: the recorder, or a sampler before it."""
        every = self._options.sample_rate
        return Sampler(recorder, every, lambda _op: sampling.record(uses())) if every else recorder

    def _restore(self) -> None:
        call_all(self._automatic.disable, self._fall_back, self._finish)
        self._before = None

    def _fall_back(self) -> None:
        if self._before is not None:
            emit.use(sampling.with_sampler(self._before.emitter), self._before.reason)
            state.writer, state.details = self._before.writer, self._before.details

    def _finish(self) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.finish()
            recorder.switch_to(
                _null_writer()
            )  # for threads that still close ranges with this recorder


def _null_writer() -> Writer:
    writer = Writer(Memory())
    writer.close()
    return writer

"""The tensors of a program as PyTorch's dispatcher sees them: when their memory appears and vanishes.

Tensors that share memory, as views do, are one. The memory of a tensor that exists before the watch
is known from the first op that takes it. Memory that an op takes and gives back itself is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import currentframe
from threading import get_native_id
from time import monotonic_ns
from typing import Any
from weakref import ref

from torch import Tensor, empty
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from bridge.annotate.guard import Guard
from bridge.frameworks.torch.ops import op_name

MAX_FRAMES = 32  # of a Python stack
Key = tuple[str, int]  # of memory that exists: its device and its address
OPEN = -1  # the end of memory that still exists
# Frames of these are not the program's.
OWN = ("torch", "bridge")
TENSORS = Guard("tensors of PyTorch")


@dataclass(slots=True, eq=False)
class TensorMemory:
    """The memory of one or several tensors; times in ns of `time.monotonic_ns`, ``end`` -1 if open.

    ``op`` is '' for memory that existed before the watch.
    """

    start: int
    end: int
    thread: int
    device: str  # cpu, cuda:0
    address: int
    bytes: int
    op: str


@dataclass(frozen=True, slots=True)
class OpStack:
    """Where an op was called: its frames, innermost first, as ``File "a.py", line 3, in f``."""

    time: int
    thread: int
    frames: tuple[str, ...]


class TensorWatch(TorchDispatchMode):  # type: ignore[misc]  # torch may be absent where types are checked
    """Watches the tensors of this thread, from `begin` to `finish`."""

    supports_higher_order_operators = True

    def __init__(self, *, tensors: bool = True, stacks: bool = False) -> None:
        super().__init__()
        self.tensors, self.stacks = tensors, stacks
        self.memory: list[TensorMemory] = []
        self.calls: list[OpStack] = []
        self._began = 0
        self._alive: dict[Key, tuple[TensorMemory, Any]] = {}
        self._is_on = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, so that torch.compile compiles."""
        return True

    def begin(self) -> None:
        """Start to watch the ops of this thread and of their backward passes."""
        TENSORS.broken = False
        self.memory, self.calls, self._alive = [], [], {}
        self.__enter__()
        empty(0)  # the first op in a mode makes PyTorch load its compiler, which takes seconds
        self._began, self._is_on = monotonic_ns(), True

    def finish(self) -> None:
        """Stop; under a mode that was entered later the watch stays, and only passes ops on."""
        if not self._is_on:
            return
        self._is_on = False
        self._alive = {}
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one op, and note its tensors."""
        kwargs = kwargs or {}
        if not self._is_on:
            return func(*args, **kwargs)
        self._before(args, kwargs)
        result = func(*args, **kwargs)
        self._after(func, result)
        return result

    @TENSORS.hook
    def _before(self, args: Any, kwargs: Any) -> None:
        if self.stacks:
            self.calls.append(OpStack(monotonic_ns(), get_native_id(), tuple(_frames())))
        if self.tensors:
            for tensor in _tensors((*args, *kwargs.values())):
                self._note(tensor, self._began, "")

    @TENSORS.hook
    def _after(self, func: Any, result: Any) -> None:
        if self.tensors:
            for tensor in _tensors((result,)):
                self._note(tensor, monotonic_ns(), op_name(func))

    def _note(self, tensor: Tensor, time: int, op: str) -> None:
        """Note the memory of a tensor, unless it is known."""
        try:
            storage = tensor.untyped_storage()
            size, address = storage.nbytes(), storage.data_ptr()
        except (RuntimeError, NotImplementedError):  # a tensor without memory of its own
            return
        device = str(tensor.device)
        key = device, address
        if key in self._alive or not size or not address:
            return
        memory = TensorMemory(
            start=time,
            end=OPEN,
            thread=get_native_id(),
            device=device,
            address=address,
            bytes=size,
            op=op,
        )
        self.memory.append(memory)
        self._alive[key] = memory, ref(storage, lambda _: self._end(key, memory))

    def _end(self, key: Key, memory: TensorMemory) -> None:
        if self._is_on and self._alive.pop(key, None) is not None:
            memory.end = monotonic_ns()


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _frames() -> Iterator[str]:
    """Yield the frames of the program that called the running op, innermost first."""
    frame: Any = currentframe()
    count = 0
    while frame is not None and count < MAX_FRAMES:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in OWN:
            code = frame.f_code
            yield f'File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'
            count += 1
        frame = frame.f_back

"""Emit NVTX through the C library of NVIDIA's `nvidia-nvtx` wheel, recorded by nsys from 2022.4 on.

The invariant: what is handed to C is immutable bytes; threads share nothing but registered handles.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from struct import Struct
from typing import Any

from bridge.annotate.emitter import Bound, version_of
from bridge.annotate.label import Label, color_of, text

LIBRARY = "libnvtx3interop.so.1"
WHEELS = ("nvidia-nvtx", "nvidia-nvtx-cu13", "nvidia-nvtx-cu12")
# Labels registered at most, for NVTX keeps them for ever: text that differs in each call is not.
REGISTERED = 4096
OURS = "nsight-bridge"  # of sessions: few names, that nsys knows the registered ones of

# nvtxEventAttributes_t of NVTX 3, 48 bytes in three parts: only the middle one changes by the call.
_HEAD = Struct("=HHIiI").pack  # version, size, category, colour type, colour
_INTEGER = Struct("=iiq").pack  # payload type, reserved, payload
_DOUBLE = Struct("=iid").pack
_TAIL = Struct("=iiQ").pack  # message type, padding, address or handle
_VERSION, _SIZE, _PAYLOAD = 3, 48, 8  # the payload's place in the middle
_ARGB = 1
_INT64, _FLOAT64 = 2, 3
_UTF8, _HANDLE = 1, 3


Pointer = ctypes.c_void_p | None


class Interop:
    """The plain C functions of the library."""

    name = "interop"

    def __init__(self, library: Path) -> None:
        # PyDLL keeps the GIL: the calls are shorter than handing it over. No argument types are declared,
        # for converting to them turns a RecursionError of the program's into an ArgumentError.
        c = ctypes.PyDLL(str(library))
        for function in c.nvtxDomainCreateA, c.nvtxDomainRegisterStringA, c.nvtxDomainRangeStartEx:
            function.restype = ctypes.c_void_p  # 64 bits
        self._create, self._register = c.nvtxDomainCreateA, c.nvtxDomainRegisterStringA
        self._push, self._pop = c.nvtxDomainRangePushEx, c.nvtxDomainRangePop
        self._mark, self._category = c.nvtxDomainMarkEx, c.nvtxDomainNameCategoryA
        self._start, self._end = c.nvtxDomainRangeStartEx, c.nvtxDomainRangeEnd
        self._domains: dict[str | None, Pointer] = {None: None}  # NULL is the default domain
        self._categories: dict[tuple[str | None, str], int] = {}
        self._numbers = count(1)
        self._ready: dict[Label, tuple[Pointer, bytes, bytes]] = {}

    @property
    def version(self) -> str:
        """Return the version of the wheel."""
        return next(filter(None, map(version_of, WHEELS)), "")

    def push(self, label: Label, payload: float) -> None:
        """Open a range."""
        self._emit(self._push, label, payload)

    def bind(self, label: Label, *, always: bool) -> Bound | None:
        """Return how ranges of a label are pushed and popped, on one thread: their attributes are made once.

        None where there are too many labels to keep, unless it is to be kept ``always``.
        """
        ready = self._known(label, always=always)
        if ready is None:
            return None
        domain, head, tail = ready
        attributes = ctypes.create_string_buffer(head + _middle(0) + tail, _SIZE)
        number = ctypes.c_int64.from_buffer(attributes, len(head) + _PAYLOAD)
        push = partial(self._push, domain, attributes)
        return partial(setattr, number, "value"), push, partial(self._pop, domain)

    def mark(self, label: Label, payload: float) -> None:
        """Record an instant."""
        self._emit(self._mark, label, payload)

    def pop(self, domain: str | None) -> None:
        """Close the topmost range of the domain."""
        self._pop(self._domains[domain])

    def start(self, label: Label, payload: float) -> Any:
        """Begin a range of the process; return its number."""
        return self._emit(self._start, label, payload) or 0

    def end(self, label: Label, handle: Any) -> None:
        """End the range of that number."""
        self._end(self._domains[label.domain], ctypes.c_uint64(handle))

    def _emit(self, call: Callable[..., Any], label: Label, payload: float) -> Any:
        ready = self._known(label)
        if ready is not None:
            domain, head, tail = ready
            return call(domain, head + _middle(payload) + tail)
        # Text that is not registered is copied by the tool during the call.
        message = ctypes.create_string_buffer(text(label.name))
        tail = _TAIL(_UTF8, 0, ctypes.addressof(message))
        return call(self._domain(label.domain), self._head(label) + _middle(payload) + tail)

    def _known(self, label: Label, *, always: bool = False) -> tuple[Pointer, bytes, bytes] | None:
        ready = self._ready.get(label)
        few = len(self._ready) < REGISTERED or label.domain == OURS
        if ready is None and (few or always):
            ready = self._ready[label] = self._registered(label)
        return ready

    def _registered(self, label: Label) -> tuple[Pointer, bytes, bytes]:
        domain = self._domain(label.domain)
        handle = self._register(domain, text(label.name)) or 0
        return domain, self._head(label), _TAIL(_HANDLE, 0, handle)

    def _head(self, label: Label) -> bytes:
        category = self._category_id(label.domain, label.category)
        color = color_of(label)
        return _HEAD(_VERSION, _SIZE, category, 0 if color is None else _ARGB, color or 0)

    def _domain(self, name: str | None) -> Pointer:
        # Two threads may both create it: `setdefault`, so that all push and pop on the same one.
        if name not in self._domains:
            self._domains.setdefault(name, ctypes.c_void_p(self._create(text(name or ""))))
        return self._domains[name]

    def _category_id(self, domain: str | None, name: str | None) -> int:
        if name is None:
            return 0
        key = (domain, name)
        if key not in self._categories:
            number = self._categories.setdefault(key, next(self._numbers))
            self._category(self._domain(domain), number, text(name))
        return self._categories[key]


def _middle(payload: float) -> bytes:
    if isinstance(payload, float):
        return _DOUBLE(_FLOAT64, 0, payload)
    return _INTEGER(_INT64, 0, payload)


def connect() -> Interop | str:
    """Load the library, or say why there is none."""
    library = find()
    if library is None:
        return f"{LIBRARY} was not found"
    try:
        return Interop(library)
    except (OSError, AttributeError) as problem:
        return f"{library.name} is not usable: {problem}"


def find() -> Path | None:
    """Look for the library where the wheels put it, `nvidia/cu13/lib` or `nvidia/nvtx/lib`."""
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations if spec else None
    found = sorted(path for root in roots or () for path in Path(root).glob(f"*/lib/{LIBRARY}"))
    return found[-1] if found else None

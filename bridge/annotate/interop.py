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

from bridge.annotate.emit import Bound
from bridge.annotate.label import Label, color_of, text
from bridge.annotate.version import version_of

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


class Interop:
    """The plain C functions of the library."""

    name = "interop"

    def __init__(self, library: Path) -> None:
        # PyDLL keeps the GIL: the calls are shorter than handing it over.
        c = ctypes.PyDLL(str(library))
        self._create = _function(c.nvtxDomainCreateA, ctypes.c_char_p)
        self._register = _function(c.nvtxDomainRegisterStringA, ctypes.c_void_p, ctypes.c_char_p)
        self._push = _function(c.nvtxDomainRangePushEx, ctypes.c_void_p, ctypes.c_char_p)
        self._pop = _function(c.nvtxDomainRangePop, ctypes.c_void_p)
        self._mark = _function(c.nvtxDomainMarkEx, ctypes.c_void_p, ctypes.c_char_p)
        self._start = _function(c.nvtxDomainRangeStartEx, ctypes.c_void_p, ctypes.c_char_p)
        self._end = _function(c.nvtxDomainRangeEnd, ctypes.c_void_p, ctypes.c_uint64)
        self._category = _function(
            c.nvtxDomainNameCategoryA, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_char_p
        )
        self._domains: dict[str | None, int | None] = {None: None}  # NULL is the default domain
        self._categories: dict[tuple[str | None, str], int] = {}
        self._numbers = count(1)
        self._ready: dict[Label, tuple[int | None, bytes, bytes]] = {}

    @property
    def version(self) -> str:
        """Return the version of the wheel."""
        return next(filter(None, map(version_of, WHEELS)), "")

    def push(self, label: Label, payload: float) -> None:
        """Open a range."""
        self._emit(self._push, label, payload)

    def bind(self, label: Label) -> Bound | None:
        """Return how ranges of a label are pushed and popped, on one thread: their attributes are made once.

        None where there are too many labels to keep.
        """
        ready = self._known(label)
        if ready is None:
            return None
        domain, head, tail = ready
        attributes = ctypes.create_string_buffer(head + _middle(0) + tail, _SIZE)
        number = ctypes.c_int64.from_buffer(attributes, len(head) + _PAYLOAD)
        push_range, pop_range = self._push, self._pop

        def push(payload: float) -> None:
            if type(payload) is int:
                number.value = payload
                push_range(domain, attributes)
            else:
                self.push(label, payload)

        return push, partial(pop_range, domain)

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
        self._end(self._domains[label.domain], handle)

    def _emit(self, call: Callable[..., Any], label: Label, payload: float) -> Any:
        ready = self._known(label)
        if ready is not None:
            domain, head, tail = ready
            return call(domain, head + _middle(payload) + tail)
        # Text that is not registered is copied by the tool during the call.
        message = ctypes.create_string_buffer(text(label.name))
        tail = _TAIL(_UTF8, 0, ctypes.addressof(message))
        return call(self._domain(label.domain), self._head(label) + _middle(payload) + tail)

    def _known(self, label: Label) -> tuple[int | None, bytes, bytes] | None:
        ready = self._ready.get(label)
        if ready is None and (len(self._ready) < REGISTERED or label.domain == OURS):
            ready = self._ready[label] = self._registered(label)
        return ready

    def _registered(self, label: Label) -> tuple[int | None, bytes, bytes]:
        domain = self._domain(label.domain)
        handle = self._register(domain, text(label.name)) or 0
        return domain, self._head(label), _TAIL(_HANDLE, 0, handle)

    def _head(self, label: Label) -> bytes:
        category = self._category_id(label.domain, label.category)
        color = color_of(label)
        return _HEAD(_VERSION, _SIZE, category, 0 if color is None else _ARGB, color or 0)

    def _domain(self, name: str | None) -> int | None:
        # Two threads may both create it: `setdefault`, so that all push and pop on the same one.
        if name not in self._domains:
            self._domains.setdefault(name, self._create(text(name or "")))
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


def _function(pointer: Any, *arguments: Any) -> Callable[..., Any]:
    """Declare a C function; every result is a handle or ignored."""
    pointer.argtypes = arguments
    pointer.restype = ctypes.c_void_p
    return pointer  # type: ignore[no-any-return]

"""NVTX back ends: the `nvtx` package, and the C library of NVIDIA's `nvidia-nvtx` wheel.

This module is loaded only if a tool is attached. The wheel's ranges are recorded by nsys 2022.4 and
newer.
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

# Limit of registered labels and cached names, because NVTX and the nvtx package keep them forever.
MAX_LABELS = 4096


class Nvtx:
    """Back end of the `nvtx` package.

    Every push has its own attributes, because they hold the payload.

    A range without a colour is blue, the default of that package.
    """

    name = "nvtx"

    def __init__(self, nvtx: Any, lib: Any) -> None:
        self._get_domain = nvtx.get_domain
        self._push, self._pop, self._mark = lib.push_range, lib.pop_range, lib.mark
        self._start, self._end = lib.start_range, lib.end_range
        self._domains: dict[str | None, Any] = {}
        self._messages: dict[tuple[str | None, str], Any] = {}

    @property
    def version(self) -> str:
        return version_of("nvtx")

    def push(self, label: Label, payload: float) -> None:
        domain = self._domain(label.domain)
        self._push(self._attributes(domain, label, payload), domain.handle)

    def bind(self, label: Label, *, always: bool) -> Bound:  # noqa: ARG002 - as the other back ends have it
        """Return functions that emit ranges of one label on one thread.

        Their attributes are made once.
        """
        domain = self._domain(label.domain)
        attributes = self._attributes(domain, label, 0)
        push = partial(self._push, attributes, domain.handle)
        return partial(setattr, attributes, "payload"), push, partial(self._pop, domain.handle)

    def name_category(self, domain: str | None, name: str) -> None:
        _uncached(self._domain(domain), "get_category_id")(
            self._domain(domain), text(name).decode()
        )

    def mark(self, label: Label, payload: float) -> None:
        domain = self._domain(label.domain)
        self._mark(self._attributes(domain, label, payload), domain.handle)

    def pop(self, domain: str | None) -> None:
        self._pop(self._domain(domain).handle)

    def start(self, label: Label, payload: float) -> Any:
        """Start a process range; return its handle as the package defines it."""
        domain = self._domain(label.domain)
        return self._start(self._attributes(domain, label, payload), domain.handle)

    def end(self, label: Label, handle: Any) -> None:  # noqa: ARG002 - as the other back ends have it
        """End a process range; the handle contains the domain, up to nvtx 0.2.12 as one object."""
        if isinstance(handle, tuple):
            self._end(*handle)
        else:
            self._end(handle)

    def _domain(self, name: str | None) -> Any:
        if name not in self._domains:
            domain = self._get_domain(None if name is None else text(name).decode())
            self._domains.setdefault(
                name, domain
            )  # atomic, so that all threads use the same domain
        return self._domains[name]

    def _attributes(self, domain: Any, label: Label, payload: float) -> Any:
        category = None if label.category is None else text(label.category).decode()
        attributes = _uncached(domain, "get_event_attributes")(
            domain, None, color_of(label), category, payload
        )
        attributes.message = self._message(domain, label)
        return attributes

    def _message(self, domain: Any, label: Label) -> Any:
        key = (label.domain, label.name)
        message = self._messages.get(key)
        if message is None:
            register = _uncached(domain, "get_registered_string")
            message = register(domain, text(label.name).decode())
            if len(self._messages) < MAX_LABELS:
                self._messages[key] = message
        return message


def connect_nvtx() -> Nvtx | str:
    """Return the back end of the `nvtx` package, or why it cannot be used."""
    try:
        import nvtx  # may be absent
        from nvtx._lib import lib  # the only interface that 0.2.10 to 0.2.17 share
    except (ImportError, OSError) as error:
        return f"nvtx cannot be imported: {error}"
    try:
        emitter = Nvtx(nvtx, lib)
        domain = nvtx.get_domain(None)
    except AttributeError as error:
        return f"nvtx {version_of('nvtx')} is not usable: {error}"
    if type(domain).__name__ == "DummyDomain":
        return (
            f"nvtx {version_of('nvtx')} does not find this profiler (its domain is a DummyDomain)"
        )
    return emitter


def _uncached(domain: Any, method: str) -> Any:
    """Return a method without its cache, which would keep every payload or name forever."""
    cached = getattr(type(domain), method)
    return getattr(cached, "__wrapped__", cached)


# -- The C library of the `nvidia-nvtx` wheel


LIBRARY = "libnvtx3interop.so.1"
BESIDE = Path(__file__).parents[2] / "nvidia"
WHEELS = ("nvidia-nvtx", "nvidia-nvtx-cu13", "nvidia-nvtx-cu12")
# Domain of sessions. Its few labels are always registered: nsys finds capture ranges by registered
# names.
SESSION_DOMAIN = "nsight-bridge"

# nvtxEventAttributes_t of NVTX 3, 48 bytes in three parts; only the middle part differs per call.
_HEAD = Struct("=HHIiI").pack  # version, size, category, colour type, colour
_INTEGER = Struct("=iiq").pack  # payload type, reserved, payload
_DOUBLE = Struct("=iid").pack
_TAIL = Struct("=iiQ").pack  # message type, padding, address or handle
_VERSION, _SIZE, _PAYLOAD = 3, 48, 8  # offset of the payload in the middle part
_ARGB = 1
_INT64, _FLOAT64 = 2, 3
_UTF8, _HANDLE = 1, 3


Pointer = ctypes.c_void_p | None


class Interop:
    """Back end that calls the C functions of the library.

    C gets only immutable bytes, and threads share nothing but registered handles.
    """

    name = "interop"

    def __init__(self, library: Path) -> None:
        # PyDLL keeps the GIL: the calls are shorter than releasing it. No argument types are
        # declared, because their conversion turns a RecursionError of the program into an
        # ArgumentError.
        lib = ctypes.PyDLL(str(library))
        for function in (
            lib.nvtxDomainCreateA,
            lib.nvtxDomainRegisterStringA,
            lib.nvtxDomainRangeStartEx,
        ):
            function.restype = ctypes.c_void_p  # 64 bits
        self._create, self._register = lib.nvtxDomainCreateA, lib.nvtxDomainRegisterStringA
        self._push, self._pop = lib.nvtxDomainRangePushEx, lib.nvtxDomainRangePop
        self._mark, self._category = lib.nvtxDomainMarkEx, lib.nvtxDomainNameCategoryA
        self._start, self._end = lib.nvtxDomainRangeStartEx, lib.nvtxDomainRangeEnd
        self._domains: dict[str | None, Pointer] = {None: None}  # NULL is the default domain
        self._categories: dict[tuple[str | None, str], int] = {}
        self._numbers = count(1)
        self._ready: dict[Label, tuple[Pointer, bytes, bytes]] = {}

    @property
    def version(self) -> str:
        return next(filter(None, map(version_of, WHEELS)), "")

    def push(self, label: Label, payload: float) -> None:
        self._emit(self._push, label, payload)

    def bind(self, label: Label, *, always: bool) -> Bound | None:
        """Return functions that emit ranges of one label on one thread.

        Their attributes are made once.

        Returns None if too many labels are registered, unless ``always``.
        """
        ready = self._attributes_of(label, always=always)
        if ready is None:
            return None
        domain, head, tail = ready
        attributes = ctypes.create_string_buffer(head + _middle(0) + tail, _SIZE)
        number = ctypes.c_int64.from_buffer(attributes, len(head) + _PAYLOAD)
        push = partial(self._push, domain, attributes)
        return partial(setattr, number, "value"), push, partial(self._pop, domain)

    def name_category(self, domain: str | None, name: str) -> None:
        self._category_id(domain, name)

    def mark(self, label: Label, payload: float) -> None:
        self._emit(self._mark, label, payload)

    def pop(self, domain: str | None) -> None:
        self._pop(self._domains[domain])

    def start(self, label: Label, payload: float) -> Any:
        """Start a process range; return its id."""
        return self._emit(self._start, label, payload) or 0

    def end(self, label: Label, handle: Any) -> None:
        self._end(self._domains[label.domain], ctypes.c_uint64(handle))

    def _emit(self, call: Callable[..., Any], label: Label, payload: float) -> Any:
        ready = self._attributes_of(label)
        if ready is not None:
            domain, head, tail = ready
            return call(domain, head + _middle(payload) + tail)
        # The tool copies unregistered text during the call.
        message = ctypes.create_string_buffer(text(label.name))
        tail = _TAIL(_UTF8, 0, ctypes.addressof(message))
        return call(self._domain(label.domain), self._head(label) + _middle(payload) + tail)

    def _attributes_of(
        self, label: Label, *, always: bool = False
    ) -> tuple[Pointer, bytes, bytes] | None:
        ready = self._ready.get(label)
        fits = len(self._ready) < MAX_LABELS or label.domain == SESSION_DOMAIN
        if ready is None and (fits or always):
            ready = self._ready[label] = self._register_label(label)
        return ready

    def _register_label(self, label: Label) -> tuple[Pointer, bytes, bytes]:
        domain = self._domain(label.domain)
        handle = self._register(domain, text(label.name)) or 0
        return domain, self._head(label), _TAIL(_HANDLE, 0, handle)

    def _head(self, label: Label) -> bytes:
        category = self._category_id(label.domain, label.category)
        color = color_of(label)
        return _HEAD(_VERSION, _SIZE, category, 0 if color is None else _ARGB, color or 0)

    def _domain(self, name: str | None) -> Pointer:
        # Two threads may both create the domain; `setdefault` makes all threads use the same one.
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


def connect_interop() -> Interop | str:
    """Return the back end of the C library, or why it cannot be used."""
    library = find_library()
    if library is None:
        return f"{LIBRARY} was not found"
    try:
        return Interop(library)
    except (OSError, AttributeError) as error:
        return f"{library.name} is not usable: {error}"


def find_library() -> Path | None:
    """Return the path of the library in the wheels: `nvidia/cu13/lib` or `nvidia/nvtx/lib`.

    A Python of another environment, which autorun annotates, may have none: then it is that beside this package.
    """
    spec = find_spec("nvidia")
    roots = spec.submodule_search_locations if spec else None
    for root in (*(roots or ()), BESIDE):
        if result := sorted(Path(root).glob(f"*/lib/{LIBRARY}")):
            return result[-1]
    return None

"""Emit NVTX through the `nvtx` package of PyPI, where a tool listens to it.

The invariant: every push has attributes of its own, because their payload is the call's.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from bridge.annotate.emitter import Bound, version_of
from bridge.annotate.label import Label, color_of, text

# Names kept at most: nvtx itself would keep every one for ever.
REGISTERED = 4096


class Nvtx:
    """The domains of the `nvtx` package; what has no colour is blue, as that package paints it."""

    name = "nvtx"

    def __init__(self, nvtx: Any, lib: Any) -> None:
        self._get_domain = nvtx.get_domain
        self._push, self._pop, self._mark = lib.push_range, lib.pop_range, lib.mark
        self._start, self._end = lib.start_range, lib.end_range
        self._domains: dict[str | None, Any] = {}
        self._messages: dict[tuple[str | None, str], Any] = {}

    @property
    def version(self) -> str:
        """Return the version of the package."""
        return version_of("nvtx")

    def push(self, label: Label, payload: float) -> None:
        """Open a range."""
        domain = self._domain(label.domain)
        self._push(self._attributes(domain, label, payload), domain.handle)

    def bind(self, label: Label, *, always: bool) -> Bound:  # noqa: ARG002 - as the other back ends have it
        """Return how ranges of a label are pushed and popped, on one thread: their attributes are made once."""
        domain = self._domain(label.domain)
        attributes = self._attributes(domain, label, 0)
        push = partial(self._push, attributes, domain.handle)
        return partial(setattr, attributes, "payload"), push, partial(self._pop, domain.handle)

    def mark(self, label: Label, payload: float) -> None:
        """Record an instant."""
        domain = self._domain(label.domain)
        self._mark(self._attributes(domain, label, payload), domain.handle)

    def pop(self, domain: str | None) -> None:
        """Close the topmost range of the domain."""
        self._pop(self._domain(domain).handle)

    def start(self, label: Label, payload: float) -> Any:
        """Begin a range of the process; return its number and domain, as the package wants them."""
        domain = self._domain(label.domain)
        return self._start(self._attributes(domain, label, payload), domain.handle)

    def end(self, label: Label, handle: Any) -> None:  # noqa: ARG002 - as the other back ends have it
        """End it; the handle knows its domain, up to 0.2.12 as one object."""
        if isinstance(handle, tuple):
            self._end(*handle)
        else:
            self._end(handle)

    def _domain(self, name: str | None) -> Any:
        if name not in self._domains:
            made = self._get_domain(None if name is None else text(name).decode())
            self._domains.setdefault(name, made)  # all threads push and pop on the same one
        return self._domains[name]

    def _attributes(self, domain: Any, label: Label, payload: float) -> Any:
        category = None if label.category is None else text(label.category).decode()
        made = _uncached(domain, "get_event_attributes")(
            domain, None, color_of(label), category, payload
        )
        made.message = self._message(domain, label)
        return made

    def _message(self, domain: Any, label: Label) -> Any:
        key = (label.domain, label.name)
        message = self._messages.get(key)
        if message is None:
            register = _uncached(domain, "get_registered_string")
            message = register(domain, text(label.name).decode())
            if len(self._messages) < REGISTERED:
                self._messages[key] = message
        return message


def connect() -> Nvtx | str:
    """Import the package, or say why it does not serve."""
    try:
        import nvtx  # this module is loaded only under a tool, but fails without nvtx
        from nvtx._lib import lib  # the one interface that 0.2.10 to 0.2.17 share
    except (ImportError, OSError) as problem:
        return f"nvtx cannot be imported: {problem}"
    try:
        made = Nvtx(nvtx, lib)
        domain = nvtx.get_domain(None)
    except AttributeError as problem:
        return f"nvtx {version_of('nvtx')} is not usable: {problem}"
    if type(domain).__name__ == "DummyDomain":
        return f"nvtx {version_of('nvtx')} is ignored here: its domain is a DummyDomain"
    return made


def _uncached(domain: Any, method: str) -> Any:
    """Take a method from behind its cache, where every payload or name would stay for ever."""
    cached = getattr(type(domain), method)
    return getattr(cached, "__wrapped__", cached)

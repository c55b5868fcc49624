"""Memory as counters of the domain `memory`: what a session records, and a tool that is attached."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bridge.annotate.instant import counter
from bridge.annotate.memory.uses import CPU, UNKNOWN, Use

DOMAIN = "memory"


def record(found: Iterable[Use]) -> None:
    """Record a sample of each counter, in bytes."""
    for use in found:
        for name, value in _named(use):
            counter(name, value, domain=DOMAIN)


def _named(use: Use) -> Iterator[tuple[str, int]]:
    """Name the counters of a device: ``host resident``, ``cuda:0 allocated``, ``cuda:0 reserved``."""
    yield f"{'host' if use.device == CPU else use.device} {use.name}", use.used
    if use.reserved != UNKNOWN:
        yield f"{use.device} reserved", use.reserved

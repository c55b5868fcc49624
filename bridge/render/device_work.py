"""Sentences for a capture in which nothing, or next to nothing, ran on a device, and the words that explain it."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.analyze.core.device_work import NoDeviceWork
from bridge.render import units
from bridge.render.table import clean

PROGRAM, PROFILER, WARNING = "The program printed", "The profiler says", "The program warns"


def lines(found: NoDeviceWork) -> list[str]:
    """Return the sentences: what ran, then what the program and the profiler say."""
    return [
        what_ran(found),
        *quoted(PROGRAM, found.printed),
        *quoted(PROFILER, found.messages),
    ]


def has_reason(found: NoDeviceWork) -> bool:
    """Return whether more is known than that the program did nothing with a GPU."""
    return bool(found.activities or found.calls or found.unread or found.printed or found.messages)


def what_ran(found: NoDeviceWork) -> str:
    """Return the sentence on what ran and what was called."""
    if not found.activities:
        unread = (
            f"; {units.count(found.unread)} events of a device are of kinds that are not read"
            if found.unread
            else ""
        )
        nothing = "Nothing that is read ran" if found.unread else "Nothing ran"
        return f"{nothing} on a GPU: no kernels, memcpys or memsets{unread}; {_calls(found)}."
    activities = "1 activity" if found.activities == 1 else f"{found.activities} activities"
    return (
        f"Next to nothing ran on a GPU: {activities}, {units.time(found.busy_ns)} of the run,"
        f" {units.time(found.run_ns)}; {_calls(found)}."
    )


def _calls(found: NoDeviceWork) -> str:
    if not found.calls:
        return "no CUDA calls"
    names = ", ".join(map(clean, found.names))
    more = ", …" if found.calls > len(found.names) else ""
    return f"{units.count(found.calls)} CUDA call{'s' if found.calls > 1 else ''} ({names}{more})"


def quoted(who: str, texts: Iterable[str]) -> list[str]:
    """Return a sentence per text that quotes it."""
    return [f'{who}: "{clean(text)}"' for text in texts]

"""Sentences for a capture without work on a device, or next to none, and the words that explain it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bridge.analyze.core.device_work import NoDeviceWork
from bridge.analyze.core.unrecorded import Unrecorded
from bridge.importers import profiler_words
from bridge.render import units
from bridge.render.table import clean

PROGRAM, PROFILER, WARNING = "The program printed", "The profiler says", "The program warns"
SOFTWARE = "use nsys profile --trace=cuda-sw,nvtx, which does not need the GPU's own trace"
TRACE = "use nsys profile --trace=cuda,nvtx, started before the program creates its CUDA context"
TO_THE_END = (
    "let the program end by itself, or stop the capture after cudaDeviceSynchronize,"
    " with an nsys as new as the driver"
)


def lines(found: NoDeviceWork, without: Collection[str] = ()) -> list[str]:
    """Return the sentences: what ran, then what the program and the profiler say, ``without`` what is said already."""
    messages = () if found.unrecorded else found.messages  # which quotes them itself
    return [
        what_ran(found),
        *quoted(PROGRAM, (text for text in found.printed if text not in without)),
        *quoted(PROFILER, (text for text in messages if text not in without)),
    ]


def has_reason(found: NoDeviceWork) -> bool:
    """Return whether more is known than that the program did nothing with a GPU."""
    return bool(
        found.activities
        or found.calls
        or found.unread
        or found.printed
        or found.messages
        or found.unrecorded
    )


def in_short(found: NoDeviceWork) -> str:
    """Return in a few words what ran."""
    if found.unrecorded:
        return "GPU work was not recorded"
    if found.activities:
        return "next to nothing ran on a GPU"
    return "nothing ran on a GPU" if _is_certain(found) else "no work on a GPU was recorded"


def _is_certain(found: NoDeviceWork) -> bool:
    """Return whether nothing ran: CUDA was recorded, and no call launched anything with success."""
    return found.all_failed or (found.calls > 0 and not found.launching)


def what_ran(found: NoDeviceWork) -> str:
    """Return the sentence on what ran and what was called."""
    if found.unrecorded:
        return " ".join(unrecorded(found.unrecorded))
    if found.activities:
        activities = "1 activity" if found.activities == 1 else f"{found.activities} activities"
        return (
            f"Next to nothing ran on a GPU: {activities}, {units.time(found.busy_ns)} of"
            f" the run, {units.time(found.run_ns)}; {_calls(found)}."
        )
    words = in_short(found)
    unread = ""
    if found.unread:
        words = "nothing that is read ran on a GPU"
        unread = f"; {units.count(found.unread)} events of a device are of kinds that are not read"
    return (
        f"{words[0].upper()}{words[1:]}: no kernels, memcpys or memsets{unread}; {_calls(found)}."
    )


def unrecorded(found: Unrecorded) -> list[str]:
    """Return the sentences on work that was not recorded: what shows it, what records it, what the profiler says."""
    what = "Kernels were not recorded" if found.is_part else "GPU work was not recorded"
    if found.launches < found.every:
        what = "Most kernels were not recorded"
    first = f"{what}: {_shown_by(found)}; to record it, {remedy(found)}."
    return [first, *quoted(PROFILER, found.messages)]


def _shown_by(found: Unrecorded) -> str:
    if found.launches:
        name = clean(found.launch)
        if found.launches < found.every:
            return (
                f"of {units.count(found.every)} calls that launch work and returned success,"
                f" {units.count(found.launches)} ({name}) left nothing in the report"
            )
        return (
            f"{units.count(found.launches)} calls that launch work ({name}) returned success,"
            " and left nothing in the report"
        )
    first = found.ranges[0]
    calls = f"only {units.count(found.calls)} CUDA calls" if found.calls else "no CUDA calls"
    return (
        f"{clean(first.name)} of {first.library}, which works on a GPU, ran {units.count(first.count)} times,"
        f" and the report holds {calls} and no kernels"
    )


def remedy(found: Unrecorded) -> str:
    """Return what records the work."""
    if not found.calls:
        return TRACE
    is_lost = any(map(profiler_words.tells_of_loss, found.messages))
    return f"{SOFTWARE}, and {TO_THE_END}" if is_lost else TO_THE_END


def _calls(found: NoDeviceWork) -> str:
    if not found.calls:
        return "no CUDA calls"
    names = ", ".join(map(clean, found.names))
    more = ", …" if found.calls > len(found.names) else ""
    return f"{units.count(found.calls)} CUDA call{'s' if found.calls > 1 else ''} ({names}{more})"


def quoted(who: str, texts: Iterable[str]) -> list[str]:
    """Return a sentence per text that quotes it."""
    return [f'{who}: "{clean(text)}"' for text in texts]

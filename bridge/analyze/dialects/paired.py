"""The timeline as RAF, MegEngine and MXNet draw it: ranges, calls and device work on tracks of their own, begun and ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from bridge.analyze.timeline import device, host, parts
from bridge.analyze.timeline.parts import Arrows, Column, Json, Named, Slices, Timeline
from bridge.analyze.tracks import Group, Track, Tracks
from bridge.join.arrays import Ints
from bridge.join.attributed import Attributed
from importers import frames
from importers.percall import SIZES, values

HOST = "cpu/0"  # what MXNet calls the process of the host
PER_CENT = 100
IN_MS = 1e6
DIGITS = 4
MEGENGINE_CURVES = {  # its names (one is misspelt there), and what ours is divided by
    parts.QUEUED: ("nr_op_pending", 1),
    parts.BUSY: ("gpu_usgae_ratio", PER_CENT),
    parts.BEHIND: ("device_ahead_ms", IN_MS),
}
MXNET_MEMORY = {  # what each calls the memory that is used of a kind
    "device": "Memory: gpu/{device}",
    "pageable": "Memory: cpu/0",
    "pinned": "Memory: cpu_pinned/0",
}
MEGENGINE_MEMORY = {"device": "gpu{device}_alloc_mem", "pageable": "cpu0_alloc_mem"}


def raf(joined: Attributed) -> Timeline:
    """Lay out a report as RAF does: tracks have names, every event a text of arguments; no arrows."""
    found = _laid_out(
        joined,
        {"op": "operator", "api": "api", "kernel": "kernel"},
        _with_a_name_of_its_own(),
        lambda s: {"args_string": _sizes(joined) if s.kind == "op" else _none(s)},
    )
    return _without_arrows(found)


def mxnet(joined: Attributed) -> Timeline:
    """Lay out a report as MXNet does: processes are devices, events have no arguments; no arrows."""
    found = _laid_out(
        joined,
        {"op": "operator", "api": "api", "kernel": "operator"},
        lambda track: replace(track, group=_as_device(track.group)),
        lambda _slices: {},
    )
    return _without_arrows(_memory_called(found, MXNET_MEMORY))


def megengine(joined: Attributed) -> Timeline:
    """Lay out a report as MegEngine does: its categories, arguments and curves."""
    found = _laid_out(
        joined,
        {"op": "OpDispatch", "api": "KernelLaunch", "kernel": "Kernel"},
        lambda track: track,
        lambda s: {"__name__": s.name, **({"op": s.args["op"]} if "op" in s.args else {})},
    )
    found = replace(found, counters=[*map(_megengine_curve, found.counters)])
    return _memory_called(found, MEGENGINE_MEMORY)


def _laid_out(
    joined: Attributed,
    kinds: Mapping[str, str],
    place: Callable[[Track], Track],
    args: Callable[[Slices], Mapping[str, Column]],
) -> Timeline:
    """Lay out as ever, under these kinds, places and arguments; all of a track is of one kind."""
    tracks = Tracks(joined.report)
    ops, calls, work = (draw(joined, tracks) for draw in (host.ops, host.calls, device.activities))
    arrows = Arrows.to_launched(joined.attribution.launch, ops, calls, work)
    phases, (marks, counters) = host.phases(joined, tracks), host.marks(joined, tracks)
    slices = [replace(s, kind=kinds[s.kind], args=args(s)) for s in (ops, calls, work)]
    of_memory = host.of_memory(joined, tracks)
    samples = [*parts.of_devices(joined, tracks), *of_memory, *counters]
    made = [place(track) for track in tracks.made]
    return Timeline(
        joined.report.began, made, slices, replace(phases, args={}), marks, samples, arrows
    )


def _without_arrows(found: Timeline) -> Timeline:
    return replace(found, arrows=replace(found.arrows, rows=found.arrows.rows[:0]))


def _sizes(joined: Attributed) -> Named:
    """Return the sizes of the inputs of each range, as PyTorch wrote them."""
    code, texts = values(joined.report.texts, SIZES).factorize()
    return Named(code[frames.ints(joined.report.ranges, "text")], list(texts))


def _with_a_name_of_its_own() -> Callable[[Track], Track]:
    """Return what names tracks so that none of a process has the name of another."""
    taken: set[tuple[int, str]] = set()

    def named(track: Track) -> Track:
        again = (track.group.pid, track.name) in taken
        name = f"{track.name} {track.tid}" if again else track.name
        taken.add((track.group.pid, name))
        return replace(track, name=name)

    return named


def _none(s: Slices) -> Named:
    return Named(np.zeros(len(s.start), np.int64), [""])


def _as_device(group: Group) -> Group:
    return replace(group, name=group.name if group.order % 2 else f"{HOST} {group.name}")


def _memory_called(found: Timeline, names: Mapping[str, str]) -> Timeline:
    """Call the curves of what is used by these names, by kind of memory and its device."""
    own = {host.curve_name(kind, host.USED): name for kind, name in names.items()}

    def called(curve: Slices) -> Slices:
        name = own.get(curve.name.names[0]) if len(curve.name.names) == 1 else None
        if name is None or not len(curve):
            return curve
        device = found.tracks[int(curve.track[curve.rows[0]])].group.device
        return replace(curve, name=Named(curve.name.codes, [name.format(device=device)]))

    return replace(found, counters=[*map(called, found.counters)])


def _megengine_curve(curve: Slices) -> Slices:
    name = curve.name.names[0] if len(curve.name.names) == 1 else ""
    if name not in MEGENGINE_CURVES:
        return curve
    own, unit = MEGENGINE_CURVES[name]
    value: Ints = curve.args["value"]  # type: ignore[assignment]
    shown: Column = value if unit == 1 else Json.reals(value / unit, DIGITS)
    return replace(curve, name=Named(curve.name.codes, [own]), args={"value": shown})

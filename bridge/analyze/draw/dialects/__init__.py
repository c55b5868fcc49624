"""Lay out the timeline as other profilers do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from bridge.analyze.draw.dialects.torch import torch
from bridge.analyze.draw.timeline import (
    WHOLE,
    Selection,
    Timeline,
    device,
    filter_ranks,
    host,
    parts,
    timeline,
)
from bridge.analyze.draw.timeline.parts import Arrows, Column, Json, NameColumn, Slices
from bridge.analyze.draw.tracks import Group, Track, Tracks
from bridge.importers.range_texts import SIZES, values
from bridge.join.arrays import Ints
from bridge.join.attributed import AttributedCapture
from bridge.knowledge.suggestions import unknown_name

# -- RAF, MXNet and MegEngine


HOST = "cpu/0"  # MXNet's name of the host
PERCENT = 100
NS_PER_MS = 1e6
DIGITS = 4
MEGENGINE_CURVES = {  # MegEngine's names, one of them misspelt there, and the divisor of the value
    parts.QUEUE: ("nr_op_pending", 1),
    parts.BUSY: ("gpu_usgae_ratio", PERCENT),
    parts.LATENCY: ("device_ahead_ms", NS_PER_MS),
}
MXNET_MEMORY = {  # names of the curves of used memory, by kind
    "device": "Memory: gpu/{device}",
    "pageable": "Memory: cpu/0",
    "pinned": "Memory: cpu_pinned/0",
}
MEGENGINE_MEMORY = {"device": "gpu{device}_alloc_mem", "pageable": "cpu0_alloc_mem"}


def raf(attributed: AttributedCapture) -> Timeline:
    """Return the timeline in the layout of RAF: named tracks, arguments as text, no arrows."""
    timeline = _lay_out(
        attributed,
        {"op": "operator", "api": "api", "kernel": "kernel"},
        _unique_names(),
        lambda s: {"args_string": _sizes(attributed) if s.kind == "op" else _empty_args(s)},
    )
    return _without_arrows(timeline)


def mxnet(attributed: AttributedCapture) -> Timeline:
    """Return the timeline in the layout of MXNet: processes are devices; no arguments or arrows."""
    timeline = _lay_out(
        attributed,
        {"op": "operator", "api": "api", "kernel": "operator"},
        lambda track: replace(track, group=_as_device(track.group)),
        lambda _slices: {},
    )
    return _without_arrows(_rename_memory(timeline, MXNET_MEMORY))


def megengine(attributed: AttributedCapture) -> Timeline:
    """Return the timeline in the layout of MegEngine: its categories, arguments and curves."""
    timeline = _lay_out(
        attributed,
        {"op": "OpDispatch", "api": "KernelLaunch", "kernel": "Kernel"},
        lambda track: track,
        lambda s: {"__name__": s.name, **({"op": s.args["op"]} if "op" in s.args else {})},
    )
    timeline = replace(timeline, counters=[*map(_megengine_curve, timeline.counters)])
    return _rename_memory(timeline, MEGENGINE_MEMORY)


def _lay_out(
    attributed: AttributedCapture,
    kinds: Mapping[str, str],
    place_track: Callable[[Track], Track],
    args: Callable[[Slices], Mapping[str, Column]],
) -> Timeline:
    """Return a timeline with these kinds, tracks and arguments; a track has slices of one kind."""
    tracks = Tracks(attributed.capture)
    ops, calls, activities = (
        draw(attributed, tracks) for draw in (host.ops, host.calls, device.activities)
    )
    arrows = Arrows.to_launched(attributed.attribution.launch, ops, calls, activities)
    phases, (marks, counters) = host.phases(attributed, tracks), host.marks(attributed, tracks)
    slices = [replace(s, kind=kinds[s.kind], args=args(s)) for s in (ops, calls, activities)]
    memory = host.memory_curves(attributed, tracks)
    samples = [*parts.device_curves(attributed, tracks), *memory, *counters]
    placed = [place_track(track) for track in tracks.made]
    return Timeline(
        base=attributed.capture.began,
        tracks=placed,
        slices=slices,
        phases=replace(phases, args={}),
        marks=marks,
        counters=samples,
        arrows=arrows,
    )


def _without_arrows(timeline: Timeline) -> Timeline:
    return replace(timeline, arrows=replace(timeline.arrows, rows=timeline.arrows.rows[:0]))


def _sizes(attributed: AttributedCapture) -> NameColumn:
    """Return the sizes of the inputs of each range, as PyTorch wrote them."""
    code, texts = values(attributed.capture.texts, SIZES).factorize()
    return NameColumn(code[attributed.capture.ranges.text], list(texts))


def _unique_names() -> Callable[[Track], Track]:
    """Return a function that renames tracks so that those of a process have distinct names."""
    used: set[tuple[int, str]] = set()

    def rename(track: Track) -> Track:
        is_used = (track.group.pid, track.name) in used
        name = f"{track.name} {track.tid}" if is_used else track.name
        used.add((track.group.pid, name))
        return replace(track, name=name)

    return rename


def _empty_args(s: Slices) -> NameColumn:
    return NameColumn(np.zeros(len(s.start), np.int64), [""])


def _as_device(group: Group) -> Group:
    return replace(group, name=group.name if group.order % 2 else f"{HOST} {group.name}")


def _rename_memory(timeline: Timeline, names: Mapping[str, str]) -> Timeline:
    """Rename the curves of used memory, by kind of memory and its device."""
    new_names = {host.curve_name(kind, host.USED): name for kind, name in names.items()}

    def rename(curve: Slices) -> Slices:
        name = new_names.get(curve.name.names[0]) if len(curve.name.names) == 1 else None
        if name is None or not len(curve):
            return curve
        device = timeline.tracks[int(curve.track[curve.rows[0]])].group.device
        return replace(curve, name=NameColumn(curve.name.codes, [name.format(device=device)]))

    return replace(timeline, counters=[*map(rename, timeline.counters)])


def _megengine_curve(curve: Slices) -> Slices:
    name = curve.name.names[0] if len(curve.name.names) == 1 else ""
    if name not in MEGENGINE_CURVES:
        return curve
    label, unit = MEGENGINE_CURVES[name]
    value: Ints = curve.args["value"]  # type: ignore[assignment]
    scaled: Column = value if unit == 1 else Json.reals(value / unit, DIGITS)
    return replace(curve, name=NameColumn(curve.name.codes, [label]), args={"value": scaled})


NATIVE, TORCH = "native", "torch"
LAYOUTS: Mapping[str, Callable[[AttributedCapture], Timeline]] = {
    TORCH: torch,
    "raf": raf,
    "mxnet": mxnet,
    "megengine": megengine,
}
DIALECTS = (NATIVE, *LAYOUTS)


def draw(
    attributed: AttributedCapture, dialect: str = NATIVE, selection: Selection = WHOLE
) -> Timeline:
    """Return the selected timeline of a capture in a dialect.

    Raises ValueError for an unknown dialect.
    """
    if dialect not in DIALECTS:
        raise ValueError(unknown_name("dialect", dialect, DIALECTS))
    if dialect == NATIVE:
        return timeline(attributed, selection)
    return selection.of(filter_ranks(attributed, LAYOUTS[dialect](attributed), selection))

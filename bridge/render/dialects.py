"""The heads and manners of the traces of other profilers, around the events of a timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bridge.analyze.timeline import Timeline
from bridge.analyze.tracks import Group, rank_of
from bridge.render.chrome import document
from bridge.render.events import Style
from importers.report import Report

KINETO = Style(first="External id", arrow_category="ac2g", arrow_name="ac2g")
RAF = Style(first="args_string", paired=True, whole_microseconds=True, tracks_by_name=True)
MXNET = Style(first="none", paired=True)
MEGENGINE = Style(
    first="__name__", arrow_category="KernelLaunch", arrow_name="KernelLaunch", paired=True
)
PROPERTIES = {  # as Kineto calls what is known of a GPU
    "totalGlobalMem": "memory_bytes",
    "computeMajor": "compute_major",
    "computeMinor": "compute_minor",
    "maxThreadsPerBlock": "threads_per_block",
    "regsPerBlock": "registers_per_block",
    "regsPerMultiprocessor": "registers_per_sm",
    "warpSize": "warp_size",
    "sharedMemPerBlock": "shared_per_block",
    "sharedMemPerMultiprocessor": "shared_per_sm",
    "numSms": "sm_count",
    "sharedMemPerBlockOptin": "shared_per_block_optin",
}
FOR_TENSORBOARD = {"cuda_runtime": "Runtime", "cuda_driver": "Runtime"}
UNKNOWN = -1

Renderer = Callable[..., Iterator[bytes]]


def torch(timeline: Timeline, report: Report, *, for_tensorboard: bool = False) -> Iterator[bytes]:
    """Yield a trace of Kineto's schema 1; TensorBoard's plugin knows API calls by an older name only.

    What it says of the run is of the capture that its first track is of.
    """
    groups = list(dict.fromkeys(track.group for track in timeline.tracks))
    first = groups[0].report if groups else 0
    facts = report.facts[first]
    world = facts.metadata.get("world_size")
    distributed = {
        "rank": rank_of(report, first) or 0,
        "world_size": world if isinstance(world, int) else 1,
    }
    head = {
        "schemaVersion": 1,
        "deviceProperties": list(_devices(groups, report)),
        "distributedInfo": {"backend": "nccl", **distributed},
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": max(facts.epoch_ns, 0) + timeline.base,
        "generator": "nsight-bridge",
    }
    if for_tensorboard:
        slices = [replace(s, kind=FOR_TENSORBOARD.get(s.kind, s.kind)) for s in timeline.slices]
        timeline = replace(timeline, slices=slices)
    yield from document(timeline, head, KINETO)


def raf(timeline: Timeline, _report: Report) -> Iterator[bytes]:
    """Yield a trace as RAF dumps it: begins and ends in whole microseconds."""
    yield from document(timeline, {"displayTimeUnit": "ns"}, RAF)


def mxnet(timeline: Timeline, _report: Report) -> Iterator[bytes]:
    """Yield a trace as MXNet dumps it."""
    yield from document(timeline, {"displayTimeUnit": "ns"}, MXNET)


def megengine(timeline: Timeline, report: Report) -> Iterator[bytes]:
    """Yield a trace as MegEngine dumps it; ``localTime`` is when it began, in µs of the epoch."""
    began = (max(report.facts[0].epoch_ns, 0) + timeline.base) / 1000
    yield from document(
        timeline, {"displayTimeUnit": "ns", "metadata": {"localTime": began}}, MEGENGINE
    )


def _devices(groups: Iterable[Group], report: Report) -> Iterator[dict[str, Any]]:
    """Give what is known of the GPU of each group that is a device's; ``id`` is the group's own number."""
    table = report.devices
    keys = zip(*(table[c].tolist() for c in ("report", "process", "device")), strict=True)
    known = dict(zip(keys, table.to_dict("records"), strict=True))
    for group in groups:
        gpu = known.get((group.report, group.process, group.device))
        if gpu:
            yield {"id": group.pid, "name": gpu["name"], **_properties(gpu)}


def _properties(gpu: Mapping[Any, Any]) -> dict[str, Any]:
    known = {name: gpu[own] for name, own in PROPERTIES.items() if gpu[own] != UNKNOWN}
    if gpu["warps_per_sm"] != UNKNOWN:
        known["maxThreadsPerMultiprocessor"] = gpu["warps_per_sm"] * gpu["warp_size"]
    return known


RENDERERS: Mapping[str, Renderer] = {
    "torch": torch,
    "raf": raf,
    "mxnet": mxnet,
    "megengine": megengine,
}

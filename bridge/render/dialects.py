"""The heads and manners of the traces of other profilers, around the events of a timeline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from bridge.analyze.timeline import Timeline
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
    """Yield a trace of Kineto's schema 1; TensorBoard's plugin knows API calls by an older name only."""
    metadata = report.facts[0].metadata
    rank, ranks = int(metadata.get("rank", 0)), int(metadata.get("world_size", 1))
    gpus = [
        {str(name): value for name, value in gpu.items()}
        for gpu in report.devices.to_dict("records")
    ]
    head = {
        "schemaVersion": 1,
        "deviceProperties": [_properties(gpu) for gpu in gpus],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": ranks},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": max(report.facts[0].epoch_ns, 0) + timeline.base,
        "generator": "nsight-bridge",
    }
    if for_tensorboard:
        slices = [replace(s, kind=FOR_TENSORBOARD.get(s.kind, s.kind)) for s in timeline.slices]
        timeline = replace(timeline, slices=slices)
    yield from document(timeline, head, KINETO)


def raf(timeline: Timeline, _report: Report) -> Iterator[bytes]:
    """Yield a trace as RAF dumps it: begins and ends in whole microseconds."""
    yield from document(timeline, {"displayTimeUnit": "ms"}, RAF)


def mxnet(timeline: Timeline, _report: Report) -> Iterator[bytes]:
    """Yield a trace as MXNet dumps it."""
    yield from document(timeline, {"displayTimeUnit": "ms"}, MXNET)


def megengine(timeline: Timeline, report: Report) -> Iterator[bytes]:
    """Yield a trace as MegEngine dumps it; ``localTime`` is when it began, in µs of the epoch."""
    began = (max(report.facts[0].epoch_ns, 0) + timeline.base) / 1000
    yield from document(timeline, {"metadata": {"localTime": began}}, MEGENGINE)


def _properties(gpu: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: gpu[own] for name, own in PROPERTIES.items() if gpu[own] != UNKNOWN}
    if gpu["warps_per_sm"] != UNKNOWN:
        known["maxThreadsPerMultiprocessor"] = gpu["warps_per_sm"] * gpu["warp_size"]
    return {"id": gpu["device"], "name": gpu["name"], **known}


RENDERERS: Mapping[str, Renderer] = {
    "torch": torch,
    "raf": raf,
    "mxnet": mxnet,
    "megengine": megengine,
}

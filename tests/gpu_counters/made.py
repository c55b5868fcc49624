"""A report with samples of hardware counters, made of a program whose figures are known."""

from __future__ import annotations

from pathlib import Path

from join.plain_writer import (
    CALLS,
    COPIES,
    KERNELS,
    METRIC_NAMES,
    METRICS,
    NVTX,
    PID,
    STRINGS,
    TID,
    event,
    strings,
    write,
)

US = 1000
STEPS, STEP, EVERY = 4, 1000, 10  # steps, and µs of a step and between two samples
COUNTERS = {  # values while idle, and in load, matmul and norm
    "SMs Active [Throughput %]": (0, 2, 97, 88),
    "Tensor Active [Throughput %]": (0, 0, 71, 0),
    "DRAM Read Bandwidth [Throughput %]": (1, 3, 34, 62),
    "DRAM Write Bandwidth [Throughput %]": (1, 30, 12, 41),
    "PCIe RX Throughput [Throughput %]": (0, 82, 1, 0),
    "GPC Clock Frequency [MHz]": (1395, 1410, 1980, 1980),
}
GPU = {"id": 3, "cuDevice": 0, "name": "NVIDIA H100 80GB HBM3", "totalMemory": 80 << 30}
WORK = (  # op, from and to on the host, then table and times of its activities, in µs
    ("load", 10, 100, COPIES, ((30, 95),)),
    ("matmul", 110, 400, KERNELS, ((130, 430),)),
    ("norm", 450, 800, KERNELS, ((470, 640), (660, 668))),
)


def tables(counters: dict[str, tuple[int, ...]] = COUNTERS) -> dict[str, list[dict[str, object]]]:
    """Return the tables of the report."""
    result: dict[str, list[dict[str, object]]] = {
        STRINGS: strings("gemm_kernel", "norm_kernel", "cudaLaunchKernel_v7000"),
        "TARGET_INFO_GPU": [GPU],
        **{name: [] for name in (NVTX, CALLS, KERNELS, COPIES)},
    }
    for at in range(0, STEPS * STEP, STEP):
        result[NVTX].append(
            event(start=(at + 5) * US, end=(at + 900) * US, text="step", textId=None)
        )
        for op, first, last, table, activities in WORK:
            result[NVTX].append(event(start=(at + first) * US, end=(at + last) * US, text=op))
            for number, (start, end) in enumerate(activities):
                call = (at + first + 5 + 10 * number) * US
                of = {"correlationId": len(result[CALLS]) + 1}
                result[CALLS].append(
                    {"start": call, "end": call + 2 * US, "globalTid": TID, "nameId": 3, **of}
                )
                where = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": PID, **of}
                names = {"shortName": 1 + (op == "norm"), "demangledName": 1 + (op == "norm")}
                more = {"bytes": 1 << 20, "copyKind": 1} if table == COPIES else names
                result[table].append(
                    {"start": (at + start) * US, "end": (at + end) * US, **where, **more}
                )
    if counters:
        result |= sampled(counters)
        result[NVTX] += energy()
    return result


def sampled(counters: dict[str, tuple[int, ...]]) -> dict[str, list[dict[str, object]]]:
    """Return the tables of samples, which begin before the program and end after it."""
    names = [
        {"typeId": 1 << 40 | 3, "metricId": number, "metricName": name}
        for number, name in enumerate(counters, 1)
    ]
    samples: list[dict[str, object]] = [
        {
            "timestamp": at * US,
            "typeId": 1 << 40 | 3,
            "metricId": number,
            "value": values[phase((at - EVERY // 2) % STEP)],
        }
        for at in range(-100, STEPS * STEP + 100, EVERY)
        for number, values in enumerate(counters.values(), 1)
    ]
    return {METRICS: samples, METRIC_NAMES: names}


def energy() -> list[dict[str, object]]:
    """Return what `bridge.power` records of GPU 3 every ms: it takes 300 W, then 600 W from 2 ms on."""
    samples = [
        event(
            34,
            at * STEP * US,
            None,
            text="counter:GPU 3 energy (mJ)",
            domainId=9,
            int64Value=at * 300 + max(at - 2, 0) * 300,
        )
        for at in range(STEPS + 1)
    ]
    return [event(75, 0, None, text="power", domainId=9), *samples]


def phase(at: int) -> int:
    """Return what ran at a time of a step: 0 nothing, 1 load, 2 matmul, 3 norm."""
    return 0 if at <= 30 or at > 700 else 1 if at <= 100 else 2 if at <= 440 else 3


def made(path: Path, counters: dict[str, tuple[int, ...]] = COUNTERS) -> Path:
    """Write the report."""
    return write(path, tables(counters))

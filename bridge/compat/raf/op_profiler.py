"""RAF's op profiler on `bridge.bench`: latencies in µs, workspace in bytes; results are cached.

An expression is a function without arguments, a tuple of a function and its inputs, or a call of
`raf.ir.op`. Numbers are plain numbers that also have RAF's attribute ``value``. A latency
is the time of ``exec_number`` calls between two readings of one clock, divided by their number;
there is one per ``repeat``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bridge.compat.raf.device import Device
from bridge.compat.raf.ir import Call
from bridge.compat.raf.values import FloatImm

if TYPE_CHECKING:
    from bridge.bench.result import Result

Profiled = dict[str, Any]


def Profile(  # noqa: N802 - RAF's name
    expr: Any, device: Any = None, warmup: int = 10, exec_number: int = 10, repeat: int = 1
) -> Profiled:
    """Return ``latency``, a list in µs, and ``workspace_size`` in bytes, -1 if it is not counted.

    An expression that is not a call takes no time and is not cached. Raises ValueError for any
    device but the first of its kind.
    """
    target = _device(device)
    values = _call(expr, target)
    if values is None:
        return _no_time(repeat)
    function, inputs = values
    timed = _bench().op(
        function, *inputs, device=target, warmup=warmup, runs=repeat, number=exec_number
    )
    return {"latency": _latency(timed), "workspace_size": FloatImm(timed.workspace)}


def ProfileGroup(  # noqa: N802 - RAF's name
    exprs: Sequence[Any],
    device: Any = None,
    stream_ids: Sequence[int] = (),
    warmup: int = 10,
    exec_number: int = 10,
    repeat: int = 1,
) -> Profiled:
    """Return latency and workspace of calls that run concurrently, each on its stream.

    A latency is of all calls; workspaces are added up. Without ``stream_ids``, and on the CPU, the
    calls run one after another. Expressions that are not calls are left out.
    """
    target = _device(device)
    numbers = list(stream_ids) or [0] * len(exprs)
    if len(numbers) != len(exprs):
        raise ValueError(f"{len(numbers)} streams for {len(exprs)} expressions")
    valid = [
        (values, n)
        for expr, n in zip(exprs, numbers, strict=True)
        if (values := _call(expr, target))
    ]
    if not valid:
        return _no_time(repeat)
    calls, streams = [call for call, _ in valid], [number for _, number in valid]
    if _bench().devices.find_device(target, [inputs for _, inputs in calls]).name == "cpu":
        streams = [0] * len(calls)
    timed = _bench().group(
        calls, streams, device=target, warmup=warmup, runs=repeat, number=exec_number
    )
    workspaces = [result.workspace for result in timed.ops]
    workspace = -1 if min(workspaces) < 0 else sum(workspaces)
    return {"latency": _latency(timed.whole), "workspace_size": FloatImm(workspace)}


def ResetCache(device: Any = None) -> None:  # noqa: N802 - RAF's name
    """Delete the cached results of a device, by default of all."""
    _bench().reset_cache(_name(device))


def GetCacheSize(device: Any = None) -> int:  # noqa: N802 - RAF's name
    """Return the number of cached results of a device, by default of all."""
    count: int = _bench().cache_size(_name(device))
    return count


def _device(device: Any) -> str | None:
    """Return RAF's device ("cpu", "cuda(0)", `Device`) for `bridge.bench`."""
    if device is None:
        return None
    known = Device(str(device))
    if known.device_id:
        raise ValueError(f"the op profiler supports the first device of a kind, not {device}")
    return known.device_type


def _name(device: Any) -> str | None:
    """Return the name of a device in results."""
    target = _device(device)
    return None if target is None else _bench().devices.find_device(target, ()).name


def _no_time(repeat: int) -> Profiled:
    return {"latency": [FloatImm(0)] * repeat, "workspace_size": FloatImm(0)}


def _call(expr: Any, device: str | None) -> tuple[Any, tuple[Any, ...]] | None:
    if isinstance(expr, Call):
        return expr.function, expr.arguments(device or "cpu")
    if isinstance(expr, tuple) and expr and callable(expr[0]):
        return expr[0], tuple(expr[1:])
    return (expr, ()) if callable(expr) else None


def _latency(timed: Result) -> list[FloatImm]:
    return [FloatImm(float(ns) / 1000) for ns in timed.exact]


def _bench() -> Any:
    """Import the benchmarks, with NumPy, at their first use."""
    from bridge import bench

    return bench

"""The calls of RAF's op profiler over `bridge.bench`: latencies in µs, workspace in bytes, measured once for each kind of call.

An expression is what can be called: a function without arguments, or a tuple of a function and its inputs. The invariant: a latency
is the time of ``exec_number`` calls between two readings of one clock, divided by their number; there is one per ``repeat``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.bench.result import Result

Found = dict[str, Any]


def Profile(  # noqa: N802 - RAF's name
    expr: Any, device: Any = None, warmup: int = 10, exec_number: int = 10, repeat: int = 1
) -> Found:
    """Return ``latency``, a list in µs, and ``workspace_size`` in bytes, -1 where nobody counts.

    What is no call takes no time, and is not kept. Raises ValueError for a device other than the first of its kind.
    """
    where = _device(device)
    found = _call(expr)
    if found is None:
        return {"latency": [0.0] * repeat, "workspace_size": 0.0}
    function, inputs = found
    timed = _bench().op(
        function, *inputs, device=where, warmup=warmup, runs=repeat, number=exec_number
    )
    return {"latency": _latency(timed), "workspace_size": float(timed.workspace)}


def ProfileGroup(  # noqa: N802 - RAF's
    exprs: Sequence[Any],
    device: Any = None,
    stream_ids: Sequence[int] = (),
    warmup: int = 10,
    exec_number: int = 10,
    repeat: int = 1,
) -> Found:
    """Return the same of several calls at once, each on its stream: of a round of all of them, the workspaces added up.

    Without ``stream_ids``, and on the CPU, one after another. What is no call is left out.
    """
    where = _device(device)
    numbers = list(stream_ids) or [0] * len(exprs)
    if len(numbers) != len(exprs):
        raise ValueError(f"{len(numbers)} streams for {len(exprs)} expressions")
    placed = [(found, n) for one, n in zip(exprs, numbers, strict=True) if (found := _call(one))]
    if not placed:
        return {"latency": [0.0] * repeat, "workspace_size": 0.0}
    calls, streams = [call for call, _ in placed], [number for _, number in placed]
    if _bench().devices.device(where, [inputs for _, inputs in calls]).name == "cpu":
        streams = [0] * len(calls)
    timed = _bench().group(
        calls, streams, device=where, warmup=warmup, runs=repeat, number=exec_number
    )
    workspaces = [one.workspace for one in timed.ops]
    known = -1 if min(workspaces) < 0 else sum(workspaces)
    return {"latency": _latency(timed.whole), "workspace_size": float(known)}


def ResetCache(device: Any = None) -> None:  # noqa: N802 - RAF's name
    """Forget what was measured on a device, on all without one."""
    _bench().reset_cache(_name(device))


def GetCacheSize(device: Any = None) -> int:  # noqa: N802 - RAF's name
    """Return how many measurements of a device are kept, of all devices without one."""
    count: int = _bench().cache_size(_name(device))
    return count


def _device(device: Any) -> str | None:
    """Return RAF's device ("cpu", "cuda(0)", an object that is written so) as `bridge.bench` takes it."""
    if device is None:
        return None
    kind, _, index = str(device).rstrip(")").replace(":", "(").partition("(")
    if index not in {"", "0"}:
        raise ValueError(f"the op profiler is of the first device of a kind, not {device}")
    return {"gpu": "cuda"}.get(kind, kind)


def _name(device: Any) -> str | None:
    """Return what results say of a device."""
    asked = _device(device)
    return None if asked is None else _bench().devices.device(asked, ()).name


def _call(expr: Any) -> tuple[Any, tuple[Any, ...]] | None:
    if isinstance(expr, tuple) and expr and callable(expr[0]):
        return expr[0], tuple(expr[1:])
    return (expr, ()) if callable(expr) else None


def _latency(timed: Result) -> list[float]:
    return [float(ns) / 1000 for ns in timed.exact]


def _bench() -> Any:
    """Load the benchmarks, with NumPy, when one is asked for."""
    from bridge import bench

    return bench

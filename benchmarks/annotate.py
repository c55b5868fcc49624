"""What annotations cost with no profiler attached, against the barest `*args, **kwargs` wrapper.

    python benchmarks/annotate.py

All figures come from one run, each the best of many. Exit status 1 when one is over its limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from timeit import Timer
from typing import Any

from bridge import nvtx_op

LOOPS, ROUNDS = 20_000, 60
IMPORT_MS = 60

CASES = {  # statement: limit in ns, on the machine where the bare wrapper takes about 81
    "function(1)": None,
    "bare(1)": None,
    "decorated(1)": 150,
    "bare(x=1)": None,
    "decorated(x=1)": 200,
    "with nvtx_op('name'): pass": 250,
    "with nvtx_op('name', domain='d', color='red'): pass": None,
    "with op: pass": None,
    "for _ in generator(): pass": None,
    "for _ in decorated_generator(): pass": None,
    "step(coroutine())": None,
    "step(decorated_coroutine())": None,
}


def function(x: int) -> int:
    return x


def wrapper(inner: Callable[..., Any]) -> Callable[..., Any]:
    def bare(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    return bare


def generator() -> Any:
    yield from (1, 2, 3)


async def coroutine() -> int:
    return 1


def step(coroutine: Any) -> None:
    try:
        coroutine.send(None)
    except StopIteration:
        return


NAMES = {
    "function": function,
    "bare": wrapper(function),
    "decorated": nvtx_op(function),
    "nvtx_op": nvtx_op,
    "op": nvtx_op("name"),
    "generator": generator,
    "decorated_generator": nvtx_op(generator),
    "coroutine": coroutine,
    "decorated_coroutine": nvtx_op(coroutine),
    "step": step,
}


def nanoseconds() -> dict[str, float]:
    """Measure every case, in turns, so that a slow moment of the machine falls on all of them."""
    timers = {case: Timer(case, globals=NAMES) for case in CASES}
    best = dict.fromkeys(CASES, float("inf"))
    for _ in range(ROUNDS):
        for case, timer in timers.items():
            best[case] = min(best[case], timer.timeit(LOOPS) / LOOPS * 1e9)
    return best


def import_ms(module: str) -> float:
    """Measure how much longer Python runs when it imports a module."""

    def run(statement: str) -> float:
        call = [sys.executable, "-c", statement]
        return Timer(lambda: subprocess.run(call, check=True)).timeit(1) * 1e3

    pairs = [(run("pass"), run(f"import {module}")) for _ in range(15)]
    return min(loaded for _, loaded in pairs) - min(bare for bare, _ in pairs)


def main() -> int:
    best = nanoseconds()
    bare = best["bare(1)"]
    print(f"{'ns':>7} {'/ bare':>7} {'limit':>6}")
    for case, limit in CASES.items():
        print(f"{best[case]:7.0f} {best[case] / bare:7.2f} {limit or '':>6} {case}")
    took = import_ms("bridge")
    print(f"import bridge: {took:.1f} ms over bare Python (limit {IMPORT_MS})")
    over = any(limit and best[case] > limit for case, limit in CASES.items())
    return 1 if over or took > IMPORT_MS else 0


if __name__ == "__main__":
    os.environ["BRIDGE_NVTX"] = "off"
    sys.exit(main())

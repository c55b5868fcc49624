"""Stacks as text: folded ones, for flamegraph.pl and its kin, and the file format of speedscope."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.calltree import WEIGHTS, CallTree, folded_stacks, sampled_stacks
from bridge.package import VERSION

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
PROFILES = {  # per weight: what a profile is called, and the unit that speedscope knows
    "gpu": ("GPU time", "nanoseconds"),
    "cpu": ("CPU time", "nanoseconds"),
    "calls": ("calls", "none"),
}
AT_ONCE = 50_000  # stacks written at a time


def folded(tree: CallTree, weight: str = "gpu") -> Iterator[str]:
    """Yield lines ``step 3;encoder;aten::mm;gemm 1234``, sorted: a stack and its own weight."""
    lines, values = folded_stacks(tree, weight)
    for first in range(0, len(lines), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        pairs = zip(lines[part].tolist(), values[part].tolist(), strict=True)
        yield "".join(f"{line} {value}\n" for line, value in pairs)


def speedscope(tree: CallTree, source: Sequence[str], weight: str = "gpu") -> Iterator[str]:
    """Yield a file of speedscope's with a profile for each weight, of which ``weight`` is shown first.

    Stacks are told as samples, each followed by what is under it. A weight that nothing has is left out.
    """
    found = sampled_stacks(tree)
    listed = [kind for kind in WEIGHTS if found.totals[kind]] or [weight]
    about = {
        "name": ", ".join(source),
        "exporter": f"nsight-bridge@{VERSION}",
        "activeProfileIndex": listed.index(weight) if weight in listed else 0,
        "shared": {"frames": [{"name": name} for name in found.names]},
    }
    yield f'{{"$schema":"{SCHEMA}",{_json(about)[1:-1]},"profiles":['
    for nth, kind in enumerate(listed):
        yield "," if nth else ""
        yield from _profile(kind, found.stacks, found.weights[kind], found.totals[kind])
    yield "]}\n"


def _profile(
    kind: str, stacks: NDArray[np.object_], values: NDArray[np.int64], total: int
) -> Iterator[str]:
    there = np.flatnonzero(values)
    name, unit = PROFILES[kind]
    about = {"type": "sampled", "name": name, "unit": unit}
    yield f'{_json(about)[:-1]},"startValue":0,"endValue":{total},"samples":['
    for first in range(0, len(there), AT_ONCE):
        part = stacks[there[first : first + AT_ONCE]].tolist()
        yield ("," if first else "") + ",".join(f"[{stack}]" for stack in part)
    yield f'],"weights":[{",".join(map(str, values[there].tolist()))}]}}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

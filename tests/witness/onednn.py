"""Counts and times of the primitives in a log of oneDNN, by lines split at commas and counted from both ends."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

CREATED = ("create", "compile")


def sums(path: Path) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Return count and ns by kind ("exec" or "made"), primitive and implementation, of primitives alone."""
    found: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
    for line in path.read_text().splitlines():
        words = line.split(",")
        if not words[0].endswith("nn_verbose") and words[0] != "dnnl_verbose":
            continue
        words = [w for w in words[1:] if w not in {"v1", "primitive"}]
        if words[0].replace(".", "").isdigit():
            words = words[1:]
        operation, _, what = words[0].partition(":")
        if operation not in {"exec", "create"} or what in {"dispatch", "check"}:
            continue
        at = 2 if words[1] in {"cpu", "gpu"} else 1
        kind = "exec" if operation == "exec" else "made"
        entry = found[kind, words[at], words[at + 1]]
        entry[0] += 1
        entry[1] += round(float(words[-1]) * 1e6)
    return {key: (count, time) for key, (count, time) in found.items()}

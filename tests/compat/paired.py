"""What holds of every timeline with begins and ends: they pair, last in first out, on each track."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any


def read(path: Path) -> dict[str, Any]:
    """Read strict JSON."""

    def refuse(text: str) -> None:
        raise ValueError(text)

    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    return found


def pairs(events: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Give name and length of each pair, in µs; fail for what has no other half."""
    stacks: dict[tuple[Any, Any], list[tuple[str, float]]] = {}
    found = []
    last = -math.inf
    for event in events:
        if event["ph"] not in {"B", "E"}:
            continue
        assert math.isfinite(event["ts"])
        assert event["ts"] >= last
        last = event["ts"]
        stack = stacks.setdefault((event["pid"], event["tid"]), [])
        if event["ph"] == "B":
            stack.append((event["name"], event["ts"]))
        else:
            name, start = stack.pop()
            assert name == event["name"]
            found.append((name, event["ts"] - start))
    assert not any(stacks.values())
    return found

"""Which renderer writes a trace, told by the name of its file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bridge.analyze.timeline import Timeline
from bridge.render.chrome import chrome

Renderer = Callable[[Timeline, Sequence[str], Sequence[Mapping[str, Any]]], Iterator[bytes]]
RENDERERS: Mapping[str, Renderer] = {".json": chrome, ".json.gz": chrome}


def renderer_of(name: str) -> Renderer:
    """Return what writes a file of this name; raise ValueError if nothing does."""
    for suffix, renderer in RENDERERS.items():
        if name.endswith(suffix):
            return renderer
    raise ValueError(f"{name}: a trace is written as {', '.join(RENDERERS)}")

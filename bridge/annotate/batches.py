"""`batch`: a range around the work of a server on some requests at once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from bridge.annotate.emit import current, state
from bridge.annotate.op import Op, nvtx_op

PHASES = ("prefill", "decode", "mixed")
NAME = "batch"


def batch(requests: Mapping[Any, int], phase: str = "") -> Op:
    """Mark the work of a block as one batch of requests, as an op ``batch``.

    ``requests`` maps the id of each request to the number of its tokens that are scheduled; ``phase`` is ``"prefill"``,
    ``"decode"`` or ``"mixed"``, if all of the batch is in one. ``bridge report --by request`` divides the GPU time of
    the batch by these tokens. Without a profiler nothing is computed.

    Raises ValueError for another phase.
    """
    if phase and phase not in PHASES:
        raise ValueError(f"batch: the phase is one of {', '.join(PHASES)}, not {phase!r}")
    current()
    text = NAME
    if not state.idle:
        with suppress(
            Exception
        ):  # of ids and numbers of the program: the work goes on as it would without us
            text = _text(requests, phase)
    return nvtx_op(text)


def _text(requests: Mapping[Any, int], phase: str) -> str:
    """Return the text of the range: ``batch#phase=decode,requests=a:1 b:7#``."""
    named = ((quote(str(one), safe="", errors="replace"), int(n)) for one, n in [*requests.items()])
    scheduled = " ".join(f"{name}:{number}" for name, number in named)
    return f"{NAME}#{f'phase={phase},' if phase else ''}requests={scheduled}#"

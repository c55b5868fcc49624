"""`batch`: a range around the work of a server on some requests at once."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from urllib.parse import quote

from bridge.annotate.emit import state
from bridge.annotate.op import nvtx_op

PHASES = ("prefill", "decode", "mixed")
NOTHING: AbstractContextManager[Any] = nullcontext()


def batch(requests: Mapping[Any, int], phase: str = "") -> AbstractContextManager[Any]:
    """Mark the work of a block as one batch of requests, as an op ``batch``.

    ``requests`` maps the id of each request to the number of its tokens that are scheduled; ``phase`` is ``"prefill"``,
    ``"decode"`` or ``"mixed"``, if all of the batch is in one. ``bridge report --by request`` divides the GPU time of
    the batch by these tokens. Without a profiler nothing is computed.

    Raises ValueError for another phase.
    """
    if phase and phase not in PHASES:
        raise ValueError(f"batch: the phase is one of {', '.join(PHASES)}, not {phase!r}")
    return NOTHING if state.idle else nvtx_op(_text(requests, phase))


def _text(requests: Mapping[Any, int], phase: str) -> str:
    """Return the text of the range: ``batch#phase=decode,requests=a:1 b:7#``."""
    scheduled = " ".join(f"{quote(str(one), safe='')}:{n}" for one, n in requests.items())
    return f"batch#{f'phase={phase},' if phase else ''}requests={scheduled}#"

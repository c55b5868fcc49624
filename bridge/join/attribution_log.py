"""What the log says of an attribution: how many ranges are ops, and by which rule activities have an op or why not."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import numpy as np

from bridge.join.arrays import Flags
from bridge.join.attribution import REASONS, RULES, Attribution, Codes

LOG = logging.getLogger("bridge.join")


def log_attribution(source: tuple[str, ...], is_op: Flags, attribution: Attribution) -> None:
    """Log how the activities of some reports were attributed; ``is_op`` tells which ranges are ops."""
    if not LOG.isEnabledFor(logging.DEBUG):
        return
    called = ", ".join(source)
    LOG.debug("%s: %d of %d ranges are ops", called, np.count_nonzero(is_op), len(is_op))
    LOG.debug(
        "%s: activities with an op, by rule: %s; without, by reason: %s",
        called,
        _counts(attribution.rule, RULES),
        _counts(attribution.reason, REASONS),
    )


def _counts(codes: Codes, meanings: Iterable[str]) -> str:
    """Return the number of activities of each code that occurs; that without a name says that there is none."""
    numbers = zip(meanings, np.bincount(codes).tolist(), strict=False)
    return ", ".join(f"{name} {number}" for name, number in numbers if name and number) or "none"

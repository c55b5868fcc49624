"""Which release ends which allocation: that of the same address which comes next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.join.order import NONE, Flags, Ints, stable


@dataclass(frozen=True)
class Pairs:
    """Of each event, in order of time: the other of its pair, or NONE.

    ``next`` is of an allocation whose release was not recorded the one that took its address anew;
    ``before`` are the releases of what was allocated before the capture: the first events of their addresses.
    """

    partner: Ints
    next: Ints
    before: Flags

    @classmethod
    def of(cls, key: Ints, is_release: Flags) -> Pairs:
        """Pair events by the number of their address."""
        partner, following = np.full(len(key), NONE), np.full(len(key), NONE)
        order = stable(key) if len(key) else key
        release, first = is_release[order], np.ones(len(key), bool)
        first[1:] = key[order][1:] != key[order][:-1]
        here, after = order[:-1], order[1:]
        open_still = ~first[1:] & ~release[:-1]
        ended, taken = open_still & release[1:], open_still & ~release[1:]
        partner[here[ended]], partner[after[ended]] = after[ended], here[ended]
        following[here[taken]] = after[taken]
        before = np.zeros(len(key), bool)
        before[order[first & release]] = True
        return cls(partner, following, before)

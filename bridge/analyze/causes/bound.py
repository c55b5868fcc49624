"""One word for what an op's time is bound by: the largest of its figures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.groups import texts
from bridge.join.order import Ints

WORDS = ("GPU", "copy", "launch", "sync", "starved", "host")  # of equal figures the first counts


def bound(kernels: Ints, copies: Ints, times: dict[str, Ints]) -> NDArray[np.object_]:
    """Return a word per group, of the time of its kernels, of its copies and fills, and what `causes` says.

    A wait counts where it is longer than the group's own time on the host, and as far as it is longer than its
    own work on the device, which it may be waiting for. Where all of this is 0 the group is bound by the host.
    """
    awake = times["host_ns"] + times["api_ns"]
    waited = np.where(times["sync_ns"] > awake, times["sync_ns"] - kernels - copies, 0)
    figures = np.stack((kernels, copies, times["launch_gap_ns"], waited, times["starved_ns"]))
    nothing = figures.max(axis=0) <= 0
    return texts(WORDS)[np.where(nothing, WORDS.index("host"), figures.argmax(axis=0))]

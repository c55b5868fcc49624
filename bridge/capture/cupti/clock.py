"""The clocks of a process: CUPTI's and the host's, brought to the time of the report."""

from __future__ import annotations

import numpy as np

from bridge.capture.cupti.spool import Process

Ints = np.ndarray


class Clock:
    """Brings times of the host to CUPTI's clock in one process, and both to the report's time."""

    def __init__(self, process: Process, origin: int) -> None:
        pairs = np.array(process.clocks, np.int64)
        self._host, order = np.unique(pairs[:, 1], return_index=True)
        self._offset = (
            pairs[order, 0] - self._host
        )  # of CUPTI's clock, which drifts against the host's
        # CUPTI's time minus this is time since the origin, which is the host's.
        self.zero = int(self._offset[0]) + origin

    def of_host(self, times: Ints) -> Ints:
        """Return times of the host, ns, as those of the report."""
        first, offset = int(self._host[0]), int(self._offset[0])
        drift = np.interp(
            (times - first).astype(np.float64),
            (self._host - first).astype(np.float64),
            (self._offset - offset).astype(np.float64),
        )
        drifted: Ints = times + offset + np.rint(drift).astype(np.int64) - self.zero
        return drifted

    def of_cupti(self, times: Ints) -> Ints:
        """Return CUPTI's times, ns, as those of the report."""
        shifted: Ints = times.astype(np.int64) - self.zero
        return shifted

"""The kernels of communication libraries: which collective each one is, how large, and on which rank and stream."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bridge.analyze.concurrency.messages import (
    OP,
    UNKNOWN,
    Said,
    bus_factor,
    bytes_of,
    named,
    of_kernel,
)
from bridge.analyze.concurrency.sizes import Sent
from bridge.analyze.devices import Devices
from bridge.analyze.groups import Floats, texts
from bridge.analyze.roles import is_communication
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints, number
from importers import frames

NO_OP = "(no op)"
UNNAMED = "(unnamed)"


@dataclass(frozen=True)
class Calls:
    """The kernels of communication libraries: the ``row`` of each, what it runs, its size in bytes.

    ``bus_factor`` times bytes is what the slowest link carries; both are -1 where unknown.
    """

    row: Ints
    collective: np.ndarray
    op: np.ndarray
    dtype: np.ndarray
    algorithm: np.ndarray
    bytes: Ints
    bus_factor: Floats

    @classmethod
    def of(cls, joined: Attributed) -> Calls:
        """Read names, texts and details: each combination of them once."""
        row = np.flatnonzero(is_communication(joined))
        kernel = joined.report.activities["name"]
        name, names = frames.codes(kernel)[row], kernel.cat.categories
        sent, op = Sent.of(joined, row), joined.attribution.node[row]
        op = np.append(joined.node_op, NONE)[op]
        code, first = number(name, op, sent.code, sent.elements)
        read = [
            _read(
                names[name[n]],
                joined.ops[op[n]] if op[n] != NONE else NO_OP,
                sent.details[sent.code[n]],
                int(sent.elements[n]),
            )
            for n in first.tolist()
        ]
        columns = [*zip(*read, strict=True)] or [()] * 6
        collective, own, dtype, algorithm = (texts(column)[code] for column in columns[:4])
        size, factor = np.array(columns[4], np.int64)[code], np.array(columns[5], np.float64)[code]
        return cls(row, collective, own, dtype, algorithm, size, factor)


def _read(kernel: str, op: str, said: Said, elements: int) -> tuple[str, str, str, str, int, float]:
    """Return collective, op, type, algorithm, bytes and bus factor of a kernel: from its own name what that says."""
    message = of_kernel(kernel)
    in_op = named(op) if OP.match(op) else ""
    told = in_op or said.collective
    collective = message.collective
    if collective in ("", "SendRecv"):  # of which NCCL makes all-to-all, gather and scatter
        collective = told or collective or UNNAMED
    said = said if said.sent != UNKNOWN else replace(said, sent=elements)
    dtype = said.dtype or message.dtype
    size = bytes_of(collective, dtype, said)
    return collective, op, dtype, message.algorithm, size, bus_factor(collective, said.ranks)


def sequences(joined: Attributed, calls: Calls, devices: Devices) -> tuple[Ints, ...]:
    """Return rank, stream, kind, start and time of each call; a rank is a GPU."""
    activities = joined.report.activities
    columns = ("process", "context", "stream")
    stream, _ = number(*(frames.ints(activities, c)[calls.row] for c in columns))
    kind = frames.codes(activities["name"])[calls.row]
    start = frames.ints(activities, "start")[calls.row]
    return devices.of[calls.row], stream, kind, start, joined.duration[calls.row]

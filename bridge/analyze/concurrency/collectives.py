"""The table per collective: how often, how long, how large, how much of it waiting for other ranks."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bridge.analyze.concurrency.exposure import exposed_times
from bridge.analyze.concurrency.matching import transfers
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
from bridge.analyze.groups import Floats, counts, lowest, sums, texts, times
from bridge.analyze.roles import is_communication
from bridge.analyze.tracks import rank_of
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Flags, Ints, number
from importers import frames

NO_OP = "(no op)"
UNNAMED = "(unnamed)"
NAMES = ("collective", "op", "dtype", "algorithm")


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


def by_collective(joined: Attributed) -> pd.DataFrame:
    """Return one row per collective, op, type and algorithm: of the kernels of communication libraries.

    ``bytes`` and the bandwidths are -1 unless the report says the size of every call. ``transfer_ns`` is
    what the same calls took on the rank that waited least, ``wait_ns`` the rest, -1 unless the ranks are
    known to run the same; ``straggler`` is the rank that waited least in all, so that others waited for it.
    """
    calls, devices = Calls.of(joined), Devices.of_report(joined)
    keys = {name: getattr(calls, name) for name in NAMES}
    codes = [pd.factorize(key)[0].astype(np.int64) for key in keys.values()]
    least = transfers(*_sequences(joined, calls, devices))
    listed = np.flatnonzero(joined.counted[calls.row])
    group, first = number(*(code[listed] for code in codes))
    rows, many, device = calls.row[listed], len(first), devices.of[calls.row[listed]]
    time, least = joined.duration[rows], least[listed]
    total, spent = sums(group, time, many), sums(group, least, many)
    matched = lowest(group, least, many) >= 0
    return pd.DataFrame(
        {
            **{name: texts(key[listed[first]]) for name, key in keys.items()},
            "ranks": counts(group[number(group, device)[1]], many),
            **times(group, time, many),
            "exposed_ns": sums(group, exposed_times(joined)[rows], many),
            **_bandwidths(calls, listed, group, total),
            "transfer_ns": np.where(matched, spent, UNKNOWN),
            "wait_ns": np.where(matched, total - spent, UNKNOWN),
            "straggler": _stragglers(_ranks(joined, devices), group, device, time - least, matched),
        }
    )


def waits(joined: Attributed) -> tuple[Ints, Ints]:
    """Return the rows of communication that is counted and matched across ranks, and how long each waited, in ns."""
    calls, devices = Calls.of(joined), Devices.of_report(joined)
    least = transfers(*_sequences(joined, calls, devices))
    known = joined.counted[calls.row] & (least >= 0)
    rows = calls.row[known]
    return rows, joined.duration[rows] - least[known]


def _sequences(joined: Attributed, calls: Calls, devices: Devices) -> tuple[Ints, ...]:
    """Return rank, stream, kind, start and time of each call; a rank is a GPU."""
    activities = joined.report.activities
    columns = ("process", "context", "stream")
    stream, _ = number(*(frames.ints(activities, c)[calls.row] for c in columns))
    kind = frames.codes(activities["name"])[calls.row]
    start = frames.ints(activities, "start")[calls.row]
    return devices.of[calls.row], stream, kind, start, joined.duration[calls.row]


def _bandwidths(calls: Calls, listed: Ints, group: Ints, total: Ints) -> dict[str, Ints | Floats]:
    """Return bytes, and in 10**9 bytes per second the algorithm's bandwidth and the bus's, -1 where unknown."""
    many, moved, factor = len(total), calls.bytes[listed], calls.bus_factor[listed]
    sized = lowest(group, moved, many) >= 0
    factored = np.minimum(np.bincount(group, factor < 0, minlength=many), 1) == 0
    on_bus = np.bincount(group, moved * factor, minlength=many)
    size = np.where(sized, sums(group, moved, many), UNKNOWN)
    time = np.maximum(total, 1)
    return {
        "bytes": size,
        "gb_per_s": np.where(sized, size / time, UNKNOWN),
        "bus_gb_per_s": np.where(sized & factored, on_bus / time, UNKNOWN),
    }


def _stragglers(
    ranks: list[str], group: Ints, rank: Ints, wait: Ints, matched: Flags
) -> np.ndarray:
    """Return for each row the rank that waited least in all, '' where several did or nothing is known."""
    pair, first = number(group, rank)
    waited, of = sums(pair, wait, len(first)), group[first]
    least = lowest(of, waited, len(matched))
    is_least = waited == least[of]
    alone = matched & (counts(of[is_least], len(matched)) == 1) & (counts(of, len(matched)) > 1)
    found = np.zeros(len(matched), np.int64)
    found[of[is_least]] = rank[first[is_least]]
    return np.where(alone, texts(ranks)[found], "") if len(matched) else texts([])


def _ranks(joined: Attributed, devices: Devices) -> list[str]:
    """Return what each GPU is called: by the rank of its report if that is known and has no other."""
    said = [rank_of(joined.report, of) for of in devices.report]
    return [
        name if rank is None or devices.report.count(of) > 1 else f"rank {rank}"
        for name, of, rank in zip(devices.names, devices.report, said, strict=True)
    ]

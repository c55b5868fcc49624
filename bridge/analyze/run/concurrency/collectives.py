"""Make the table of collectives: count, time, size, and the time spent waiting for other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bridge.analyze.core.devices import KEY, Devices
from bridge.analyze.core.groups import Floats, counts, highest, lowest, ratio, sums, texts, times
from bridge.analyze.core.table import Table
from bridge.analyze.run.concurrency.clocks import Clocks
from bridge.analyze.run.concurrency.communication import CommunicationCalls
from bridge.analyze.run.concurrency.matching import MatchedCalls, transfer_times
from bridge.analyze.run.concurrency.overlap import exposed_times
from bridge.analyze.run.ranks.members import rank_of
from bridge.importers.arrays import factorize
from bridge.importers.frames import key_codes
from bridge.join.arrays import Flags, Ints, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.knowledge.hardware import catalogue

# -- Arrival of ranks at collectives


UNKNOWN = -1
NO_ARRIVALS = {  # columns of a table without rows
    "arrival_mean_ns": np.empty(0, np.float64),
    "arrival_max_ns": np.empty(0, np.int64),
    "last": texts([]),
}


def arrivals(
    attributed: AttributedCapture,
    matched: MatchedCalls,
    listed: Ints,
    group: Ints,
    names: Sequence[str],
) -> dict[str, Ints | Floats | np.ndarray]:
    """Return the columns of `NO_ARRIVALS` per group of the ``listed`` calls.

    The columns are the time from the start of the first rank to that of the last, mean and maximum in ns, and the
    name of the rank that came last most often. They are -1 and '' where a call of the group ran on one rank only, or
    the clocks of the files are not comparable.
    """
    groups = int(group.max(initial=UNKNOWN)) + 1
    if not groups:
        return dict(NO_ARRIVALS)
    came = Arrivals.of(attributed, matched)
    # A collective counts once in a group, on however many ranks it was called.
    of_call = came.collective[listed]
    _, first = number_groups(group, of_call)
    group, collective = group[first], of_call[first]
    spread = came.spread[collective]
    is_known = lowest(group, came.is_comparable[collective].astype(np.int64), groups) > 0
    mean = ratio(sums(group, spread, groups), counts(group, groups))
    last = _most_frequent(group, came.last_rank[collective], groups)
    return {
        "arrival_mean_ns": np.where(is_known, mean, UNKNOWN),
        "arrival_max_ns": np.where(is_known, highest(group, spread, groups), UNKNOWN),
        "last": np.where(is_known, texts(names)[last], ""),
    }


class Arrivals(NamedTuple):
    """When the ranks came to each collective.

    ``collective`` is the number of the collective of each call. Per collective: ``spread`` is the time from the
    first rank to the last in ns, ``is_comparable`` whether it ran on several ranks whose clocks are
    comparable, ``last_rank`` the one that came last.
    """

    collective: Ints
    spread: Ints
    is_comparable: Flags
    last_rank: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture, matched: MatchedCalls) -> Arrivals:
        row, rank, collective = matched.calls.row, matched.rank, matched.number
        clocks, activities = Clocks.of(attributed), attributed.capture.activities
        report = activities.report[row]
        start, size = activities.start[row] + clocks.offset[report], int(collective.max()) + 1
        return cls(
            collective,
            spread=highest(collective, start, size) - lowest(collective, start, size),
            is_comparable=_is_comparable(collective, report, clocks.exact, size),
            last_rank=_last_ranks(collective, start, rank, size),
        )


def _is_comparable(collective: Ints, report: Ints, exact: Flags, size: int) -> Flags:
    """Return whether each collective ran on several ranks whose clocks are comparable."""
    has_several = counts(collective, size) > 1
    one_report = lowest(collective, report, size) == highest(collective, report, size)
    all_exact = lowest(collective, exact[report].astype(np.int64), size) > 0
    result: Flags = has_several & (one_report | all_exact)
    return result


def _last_ranks(collective: Ints, start: Ints, rank: Ints, size: int) -> Ints:
    """Return the rank that came last to each collective, the lowest of several."""
    is_last = start == highest(collective, start, size)[collective]
    return lowest(collective[is_last], rank[is_last], size)


def _most_frequent(group: Ints, rank: Ints, size: int) -> Ints:
    """Return the most frequent rank of each group, the lowest of several."""
    pair, first = number_groups(group, rank)
    frequency, group_of_pair = counts(pair, len(first)), group[first]
    is_most = frequency == highest(group_of_pair, frequency, size)[group_of_pair]
    return lowest(group_of_pair[is_most], rank[first][is_most], size)


# -- The table


MEGA = 1_000  # 10**6 bytes in 10**9
ALL = slice(None)
NAMES = ("collective", "op", "dtype", "algorithm")


def by_collective(attributed: AttributedCapture, *, by_message: bool = True) -> Table:
    """Return one row per collective, op, type and algorithm of communication kernels.

    Where NCCL's payloads tell the size of a message and the ranks of its communicator, rows of
    different ones are apart, unless ``by_message`` is false. ``bytes`` and the bandwidths are -1
    unless the size of every call is recorded. ``transfer_ns`` is the time of the same calls on the
    rank that waited least, ``wait_ns`` the rest; both are -1 unless the calls can be matched across
    ranks. ``straggler`` is the rank that waited least in total, for which the others waited.
    `arrivals` describes the last three columns.
    """
    matched, devices = MatchedCalls.of(attributed), Devices.of_report(attributed)
    calls = matched.calls
    keys = {name: getattr(calls, name) for name in NAMES}
    codes = [factorize(key)[0] for key in keys.values()]
    sizes = {"message_bytes": calls.messages.bytes, "comm_ranks": calls.messages.ranks}
    codes += sizes.values() if by_message else ()
    ranks = _ranks(attributed, devices)
    transfer = transfer_times(matched.number, attributed.duration[calls.row])
    listed = np.flatnonzero(attributed.counted[calls.row])
    group, first = number_groups(*(code[listed] for code in codes))
    rows = calls.row[listed]
    size = len(first)
    device = devices.gpu[calls.row[listed]]
    time, transfer = attributed.duration[rows], transfer[listed]
    total, transfer_total = sums(group, time, size), sums(group, transfer, size)
    is_matched = lowest(group, transfer, size) >= 0
    return Table(
        {
            **{name: texts(key[listed[first]]) for name, key in keys.items()},
            **({name: size[listed[first]] for name, size in sizes.items()} if by_message else {}),
            "ranks": counts(group[number_groups(group, device)[1]], size),
            **times(group, time, size),
            "exposed_ns": sums(group, exposed_times(attributed)[rows], size),
            **_bandwidths(calls, listed, group=group, total=total, link=_links(attributed, rows)),
            "transfer_ns": np.where(is_matched, transfer_total, UNKNOWN),
            "wait_ns": np.where(is_matched, total - transfer_total, UNKNOWN),
            "straggler": _stragglers(
                ranks, group, rank=device, wait=time - transfer, matched=is_matched
            ),
            **arrivals(attributed, matched, listed=listed, group=group, names=ranks),
        }
    )


def waits(attributed: AttributedCapture) -> tuple[Ints, Ints]:
    """Return the counted communication that is matched across ranks, and its waits in ns."""
    matched = MatchedCalls.of(attributed)
    row = matched.calls.row
    transfer = transfer_times(matched.number, attributed.duration[row])
    is_known = attributed.counted[row] & (transfer >= 0)
    rows = row[is_known]
    return rows, attributed.duration[rows] - transfer[is_known]


def _links(attributed: AttributedCapture, rows: Ints) -> Ints:
    """Return the bandwidth of the link of each activity's GPU in 10**6 bytes per second, -1 if unknown."""
    capture, known = attributed.capture, catalogue()
    of_row, of_device = key_codes(
        *([t[c][r] for c in KEY] for t, r in ((capture.activities, rows), (capture.devices, ALL)))
    )
    limits = np.full(int(max(of_row.max(initial=0), of_device.max(initial=0))) + 1, UNKNOWN)
    links = (known.link_gb_per_s(name) for name in capture.devices.name)
    limits[of_device] = [round(MEGA * link) or UNKNOWN for link in links]
    result: Ints = limits[of_row]
    return result


def _bandwidths(
    calls: CommunicationCalls, listed: Ints, group: Ints, total: Ints, link: Ints
) -> dict[str, Ints | Floats]:
    """Return bytes, algorithm and bus bandwidth in 10**9 bytes per second; -1 where unknown.

    ``link`` is that of each call's GPU; a row of GPUs with different links has none.
    """
    group_count, moved_bytes, factor = len(total), calls.bytes[listed], calls.bus_factor[listed]
    has_size = lowest(group, moved_bytes, group_count) >= 0
    has_factor = np.minimum(np.bincount(group, factor < 0, minlength=group_count), 1) == 0
    on_bus = np.bincount(group, moved_bytes * factor, minlength=group_count)
    size = np.where(has_size, sums(group, moved_bytes, group_count), UNKNOWN)
    time = np.maximum(total, 1)
    bus = np.where(has_size & has_factor, on_bus / time, UNKNOWN)
    low, high = (f(group, link, group_count) for f in (lowest, highest))
    limit = np.where((low == high) & (low > 0), low / MEGA, UNKNOWN)
    has_share = (limit > 0) & (bus >= 0)
    return {
        "bytes": size,
        "gb_per_s": np.where(has_size, size / time, UNKNOWN),
        "bus_gb_per_s": bus,
        "link_gb_per_s": np.where(bus >= 0, limit, UNKNOWN),
        "link_share": np.where(has_share, bus / np.where(has_share, limit, 1), UNKNOWN),
    }


def _stragglers(
    ranks: list[str], group: Ints, rank: Ints, wait: Ints, matched: Flags
) -> np.ndarray:
    """Return the rank of each row that waited least in total, '' if unknown or not unique."""
    pair, first = number_groups(group, rank)
    total_wait, group_of_pair = sums(pair, wait, len(first)), group[first]
    minimum = lowest(group_of_pair, total_wait, len(matched))
    is_least = total_wait == minimum[group_of_pair]
    is_unique = (
        matched
        & (counts(group_of_pair[is_least], len(matched)) == 1)
        & (counts(group_of_pair, len(matched)) > 1)
    )
    result = np.zeros(len(matched), np.int64)
    result[group_of_pair[is_least]] = rank[first[is_least]]
    return np.where(is_unique, texts(ranks)[result], "") if len(matched) else texts([])


def _ranks(attributed: AttributedCapture, devices: Devices) -> list[str]:
    """Return the name of each GPU: the rank of its file if it is known and has a single GPU."""
    lines = [rank_of(attributed.capture, file) for file in devices.report]
    return [
        name if rank is None or devices.report.count(file) > 1 else f"rank {rank}"
        for name, file, rank in zip(devices.names, devices.report, lines, strict=True)
    ]

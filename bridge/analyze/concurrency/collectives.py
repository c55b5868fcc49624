"""The table per collective: how often, how long, how large, how much of it waiting for other ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from bridge.analyze.concurrency.clocks import Clocks, together, transfers
from bridge.analyze.concurrency.communication import Calls, sequences
from bridge.analyze.concurrency.exposure import exposed_times
from bridge.analyze.devices import Devices
from bridge.analyze.groups import Floats, counts, highest, lowest, ratio, sums, texts, times
from bridge.analyze.tracks import rank_of
from bridge.join.arrays import Flags, Ints, number
from bridge.join.attributed import Attributed
from importers import frames

# -- How far apart ranks came to the collectives that are one, and who came last; clocks of several reports aligned


UNKNOWN = -1
COLUMNS = ("arrival_mean_ns", "arrival_max_ns", "last")


def arrivals(
    joined: Attributed,
    calls: Calls,
    ran: Sequence[Ints],
    listed: Ints,
    group: Ints,
    names: Sequence[str],
) -> dict[str, Ints | Floats | np.ndarray]:
    """Return the `COLUMNS` per group of the ``listed`` calls; ``ran`` are rank, stream, kind, start and time of all.

    From the first rank's start to the last one's, on average and at most, in ns; who came last most often, by
    ``names`` of ranks. -1 and '' where any call of a group is of one rank alone, or clocks do not compare.
    """
    many = int(group.max(initial=UNKNOWN)) + 1
    if not many:
        return dict(zip(COLUMNS, (np.empty(0, np.int64),) * 2 + (texts([]),), strict=True))
    rank, *rest = ran
    same = together(rank, *rest[:3])
    clocks, report = Clocks.of(joined), frames.ints(joined.report.activities, "report")[calls.row]
    start = rest[2] + clocks.offset[report]
    size = int(same.max()) + 1
    apart = highest(same, start, size) - lowest(same, start, size)
    compare = _compare(same, report, clocks.exact, size)
    _, first = number(group, same[listed])
    of, one = group[first], same[listed[first]]
    known = lowest(of, compare[one].astype(np.int64), many) > 0
    mean = ratio(sums(of, apart[one], many), counts(of, many))
    late = _late(same, start, rank, size)
    return {
        "arrival_mean_ns": np.where(known, mean, UNKNOWN),
        "arrival_max_ns": np.where(known, highest(of, apart[one], many), UNKNOWN),
        "last": np.where(known, texts(names)[_most(of, late[one], many)], ""),
    }


def _compare(same: Ints, report: Ints, exact: Flags, size: int) -> Flags:
    """Tell of which collectives several ranks are known, in one report or by clocks that compare."""
    several = counts(same, size) > 1
    one_report = lowest(same, report, size) == highest(same, report, size)
    all_exact = lowest(same, exact[report].astype(np.int64), size) > 0
    found: Flags = several & (one_report | all_exact)
    return found


def _late(same: Ints, start: Ints, rank: Ints, size: int) -> Ints:
    """Return for each collective the rank that came last, of several at one time the first of them."""
    last = start == highest(same, start, size)[same]
    return lowest(same[last], rank[last], size)


def _most(group: Ints, rank: Ints, many: int) -> Ints:
    """Return the rank that each group has most often, of several the first."""
    pair, first = number(group, rank)
    often, of = counts(pair, len(first)), group[first]
    is_most = often == highest(of, often, many)[of]
    return lowest(of[is_most], rank[first][is_most], many)


# -- The table per collective: how often, how long, how large, how much of it waiting for other ranks


NAMES = ("collective", "op", "dtype", "algorithm")


def by_collective(joined: Attributed) -> pd.DataFrame:
    """Return one row per collective, op, type and algorithm: of the kernels of communication libraries.

    ``bytes`` and the bandwidths are -1 unless the report says the size of every call. ``transfer_ns`` is
    what the same calls took on the rank that waited least, ``wait_ns`` the rest, -1 unless the ranks are
    known to run the same; ``straggler`` is the rank that waited least in all, so that others waited for it. Of
    the last three columns `arrivals` tells.
    """
    calls, devices = Calls.of(joined), Devices.of_report(joined)
    keys = {name: getattr(calls, name) for name in NAMES}
    codes = [pd.factorize(key)[0].astype(np.int64) for key in keys.values()]
    ran, ranks = sequences(joined, calls, devices), _ranks(joined, devices)
    least = transfers(*ran)
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
            "straggler": _stragglers(ranks, group, device, time - least, matched),
            **arrivals(joined, calls, ran, listed, group, ranks),
        }
    )


def waits(joined: Attributed) -> tuple[Ints, Ints]:
    """Return the rows of communication that is counted and matched across ranks, and how long each waited, in ns."""
    calls, devices = Calls.of(joined), Devices.of_report(joined)
    least = transfers(*sequences(joined, calls, devices))
    known = joined.counted[calls.row] & (least >= 0)
    rows = calls.row[known]
    return rows, joined.duration[rows] - least[known]


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

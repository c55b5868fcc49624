"""Two profiles compared row by row and call by call, and a test of whether two samples differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import erfc, sqrt
from statistics import mean, median

from witness.attribution import Profile

Key = tuple[str, ...]


@dataclass
class Row:
    """What one row is on both sides: [before, after]."""

    kernel_before: str
    calls: list[int]
    activities: list[int]
    ns: list[int]


def key_of(profile: Profile, row: int, by: str) -> Key | None:
    """Name the row that an activity is in, None where it has no op."""
    found, name = profile.found[row], profile.activities[row].name
    if by == "kernel":
        return (name,)
    if not found.stack:
        return ("",) if by == "path" else None
    if by == "path":  # of the piece of the range in which it was launched
        return ("/".join(profile.ops_on(found.stack)),)
    op = profile.ranges[found.range].op
    return (op, name) if by == "op-kernel" else (op,)


def calls_of(profile: Profile) -> list[list[int]]:
    """List the calls of ops, each as its ranges, in the order of their first rows."""
    calls: dict[object, list[int]] = {}
    for row in profile.op_rows():
        calls.setdefault(profile.call_of(row), []).append(row)
    return list(calls.values())


def first(profile: Profile, call: Sequence[int]) -> int:
    return min(call, key=lambda row: (profile.ranges[row].start, row))


def rows_of(
    sides: Sequence[Profile], by: str, forms: Sequence[Callable[[str], str]]
) -> dict[Key, Row]:
    """Compare row by row; a renamed kernel goes by its later name."""
    rows: dict[Key, Row] = defaultdict(lambda: Row("", [0, 0], [0, 0], [0, 0]))
    there: list[set[Key]] = [set(), set()]
    for side, profile in enumerate(sides):
        for at in range(len(profile.activities)):
            key = key_of(profile, at, by)
            if key is not None:
                rows[key].activities[side] += 1
                rows[key].ns[side] += profile.time(at)
                there[side].add(key)
        if by in {"op", "path"}:
            for call in calls_of(profile):
                at = first(profile, call)
                key = (profile.ranges[at].op if by == "op" else profile.path(at),)
                rows[key].calls[side] += 1
                there[side].add(key)
    if by in {"op-kernel", "kernel"}:
        for old, new in renamed(rows, there, forms):
            gone = rows.pop(old)
            rows[new].kernel_before = old[-1]
            rows[new].ns[0], rows[new].activities[0] = gone.ns[0], gone.activities[0]
    return dict(rows)


def renamed(
    rows: dict[Key, Row], there: Sequence[set[Key]], forms: Sequence[Callable[[str], str]]
) -> list[tuple[Key, Key]]:
    """Pair what one side alone has: form after form, the largest of each form first."""
    pairs: list[tuple[Key, Key]] = []
    left = [there[0] - there[1], there[1] - there[0]]
    for form in forms:
        for shape in sorted({(*key[:-1], form(key[-1])) for key in left[0]}):
            alike = [
                sorted(
                    (k for k in left[side] if (*k[:-1], form(k[-1])) == shape),
                    key=lambda k, side=side: (-rows[k].ns[side], k[-1]),
                )
                for side in (0, 1)
            ]
            for old, new in zip(*alike, strict=False):
                pairs.append((old, new))
                left[0].discard(old)
                left[1].discard(new)
    return pairs


def own_time(profile: Profile, call: Sequence[int]) -> int:
    return sum(profile.time(at) for at, found in enumerate(profile.found) if found.range in call)


def matched(sides: Sequence[Profile], by: str) -> dict[Key, dict[str, float]]:
    """Match call k of a path in a process with call k of it in the same process of the same report."""
    lists: list[dict[object, list[list[int]]]] = []
    for profile in sides:
        calls = calls_of(profile)
        homes = [profile.ranges[call[0]] for call in calls]
        processes = sorted({(one.report, one.process) for one in homes})
        groups: dict[object, list[list[int]]] = defaultdict(list)
        ordered = sorted(
            range(len(calls)), key=lambda n: (profile.ranges[first(profile, calls[n])].start, n)
        )
        for n in ordered:
            of = homes[n].report, homes[n].process
            place = [p for p in processes if p[0] == of[0]].index(of)
            groups[of[0], place, profile.path(first(profile, calls[n]))].append(calls[n])
        lists.append(groups)
    diffs: dict[Key, list[int]] = defaultdict(list)
    left: dict[Key, list[int]] = defaultdict(lambda: [0, 0])
    for group in {**lists[0], **lists[1]}:
        both = [side.get(group, []) for side in lists]
        key = (group[2] if by == "path" else sides_op(sides, both),)
        for one, other in zip(*both, strict=False):
            diffs[key].append(own_time(sides[1], other) - own_time(sides[0], one))
        for side in (0, 1):
            left[key][side] += len(both[side]) - min(map(len, both))
    return {
        key: {
            "matched_calls": len(diffs[key]),
            "unmatched_before": before,
            "unmatched_after": after,
            "call_mean_diff_ns": mean(diffs[key] or [0]),
            "call_median_diff_ns": median(diffs[key] or [0]),
        }
        for key, (before, after) in left.items()
    }


def sides_op(sides: Sequence[Profile], both: Sequence[list[list[int]]]) -> str:
    """Name the op that the calls of one path are of."""
    [op] = {
        side.ranges[call[0]].op for side, calls in zip(sides, both, strict=True) for call in calls
    }
    return op


def outside(profile: Profile, by: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for at, one in enumerate(profile.found):
        if key_of(profile, at, by) is None:
            found[one.reason] = found.get(one.reason, 0) + profile.time(at)
    return found


def u_test(one: Sequence[int], other: Sequence[int]) -> float:
    """Return p of the two-sided Mann-Whitney U test: exact by counting if nothing is tied and a side is small."""
    values = sorted([*one, *other])
    n, m = len(one), len(other)
    u = sum((y > x) + (y == x) / 2 for x in one for y in other)
    if len(set(values)) == len(values) and min(n, m) <= 8:
        ways = [
            sum(place for place in chosen) - m * (m - 1) / 2
            for chosen in combinations(range(n + m), m)
        ]
        far = abs(u - n * m / 2)
        return sum(abs(way - n * m / 2) >= far for way in ways) / len(ways)
    ties = sum(values.count(value) ** 3 - values.count(value) for value in set(values))
    spread = sqrt(n * m / 12 * (n + m + 1 - ties / ((n + m) * (n + m - 1))))
    if not spread:
        return 1.0
    return min(1.0, erfc((abs(u - n * m / 2) - 0.5) / spread / sqrt(2)))

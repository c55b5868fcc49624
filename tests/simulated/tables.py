"""Tables of what was measured, as Markdown: for a terminal, and for a page of the documentation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles

from simulated.answers import Found
from simulated.further import FURTHER
from simulated.host import Cause
from simulated.measure import (
    AS_GOOD,
    BINDING,
    FALSE_ALARM,
    GOALS,
    LARGE,
    OF_RUN,
    OF_SAVING,
    RESPECTS,
    WHOLE,
    WORTH,
    WRONG_CAUSES,
    Judged,
    Measured,
    cases,
    failed,
    is_by_call,
    is_right,
    is_wrong,
)

Rows = Sequence[Sequence[object]]
BEGIN = "<!-- measured: made by python -m tests.simulated -->\n"
END = "<!-- end of measured -->\n"
TEXTS = {
    "length": "the run has its true length",
    "states": "the states of all GPUs are exact",
    "causes": f"at most {WRONG_CAUSES:.0%} of the idle time has a wrong cause",
    "savings": f"a saving of {WORTH:.0%} or more is estimated to {OF_RUN:.1%} of the run or {OF_SAVING:.0%} of it",
    "all savings": "the same, with slow kernels, which have a limit and no estimate",
    "first": f"the first finding is the trouble that costs most, or {AS_GOOD:.0%} of that",
    "all first": "the same, with slow kernels",
    "found": f"a trouble that costs {LARGE:.0%} or more is found",
    "healthy": f"a healthy program has no estimate above {FALSE_ALARM:.0%}",
    "excess": "no estimate is too high",
}


def tables(measured: Sequence[Measured]) -> list[str]:
    """Return all tables, those of whole evidence first."""
    whole = [one for one in measured if one.evidence == WHOLE]
    lines = []
    if whole:
        lines += _section(f"All {len(whole)} programs", respects(whole), _about_errors(whole))
        if any(_is_further(trouble) for one in whole for trouble in one.troubles):
            lines += _section("Troubles of further kinds alone", further(whole))
            lines += _section("By further kind of trouble", kinds(whole, _is_further))
        lines += _section("By kind of trouble", kinds(whole, lambda t: not _is_further(t)))
        lines += _section("Kinds that must not be found", healthy_kinds(whole))
        lines += _section("Idle time by true cause", causes(whole), _about_causes(whole))
        lines += _section("Findings about no trouble", strangers(whole))
    if len(whole) < len(measured):
        lines += _section("By evidence", evidence(measured))
    return lines


def _section(title: str, table: list[str], behind: str = "") -> list[str]:
    return [f"### {title}", "", *table, "", *([behind, ""] if behind else [])]


def table(head: Sequence[str], rows: Rows) -> list[str]:
    """Return a table of Markdown; its first column is text."""
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return [f"| {' | '.join(map(str, line))} |" for line in lines]


def percent(part: float, whole: float) -> str:
    """Return a share, or nothing of nothing."""
    return f"{100 * part / whole:.1f} %" if whole else ""


def of(part: int, whole: int) -> str:
    """Return how many of how many."""
    return f"{part}/{whole}" if whole else ""


# -- The tables


def respects(those: Sequence[Measured]) -> list[str]:
    """In how many cases each respect holds."""
    rows = []
    for name in RESPECTS:
        held = cases(name, those)
        goal = f"{GOALS[name]:.0%}" if name in BINDING else ""
        rows.append((TEXTS[name], len(held), percent(sum(held), len(held)), goal))
    return table(("what should hold", "cases", "holds", "goal"), rows)


def _about_errors(those: Sequence[Measured]) -> str:
    """Say how far off the estimates are that there are."""
    pairs = [(one, t) for one in those for t in one.real if _is_worth(one, t)]
    found = [(one, t) for one, t in pairs if t.place >= 0]
    off = [
        abs(t.estimate_ns - t.saving_ns) / one.allowed_ns(t.saving_ns)
        for one, t in found
        if t.estimate_ns >= 0
    ]
    text = f"Of {len(pairs)} troubles of {WORTH:.0%} or more {len(found)} are found, {len(off)} with an estimate."
    if len(off) > 1:
        text += f" Errors, by what is allowed: median {median(off):.1f}, 90th percentile {quantiles(off, n=10)[-1]:.1f}."
    return text


def _is_worth(one: Measured, trouble: Judged) -> bool:
    return trouble.saving_ns >= WORTH * one.length_ns


def _is_further(trouble: Judged) -> bool:
    return trouble.name in FURTHER


def further(those: Sequence[Measured]) -> list[str]:
    """How troubles of further kinds fare; ``first`` counts where one of these costs most."""
    alone = [replace(one, troubles=tuple(filter(_is_further, one.troubles))) for one in those]
    worst = [
        one
        for one, its in zip(those, alone, strict=True)
        if its.real and its.best_ns == one.best_ns
    ]
    rows = []
    for name, some in (("savings", alone), ("first", worst), ("found", alone)):
        held = cases(name, some)
        rows.append((TEXTS[name], len(held), percent(sum(held), len(held)), f"{GOALS[name]:.0%}"))
    return table(("what should hold", "cases", "holds", "goal"), rows)


def kinds(those: Sequence[Measured], which: Callable[[Judged], bool]) -> list[str]:
    """How some kinds of trouble fare, the kind with fewest right estimates first."""
    by_kind: dict[str, list[tuple[Measured, Judged]]] = defaultdict(list)
    for one in those:
        for trouble in filter(which, one.real):
            by_kind[trouble.name].append((one, trouble))
    rows = sorted(map(_kind, by_kind.items()))
    head = (
        "kind",
        "programs",
        "worth it",
        "found",
        "estimated",
        "right",
        "first",
        "median estimate",
    )
    return table(head, [row for _, row in rows])


def _kind(item: tuple[str, list[tuple[Measured, Judged]]]) -> tuple[object, tuple[object, ...]]:
    name, pairs = item
    worth = [(one, t) for one, t in pairs if _is_worth(one, t)]
    count = len(worth)
    right = sum(is_right(*pair) for pair in worth)
    best = [(one, t) for one, t in worth if t.saving_ns >= AS_GOOD * one.best_ns]
    ratios = [t.estimate_ns / t.saving_ns for _, t in worth if t.estimate_ns >= 0]
    row = (
        name,
        len(pairs),
        count,
        of(sum(t.place >= 0 for _, t in worth), count),
        of(len(ratios), count),
        of(right, count),
        of(sum(t.place == 0 for _, t in best), len(best)),
        f"{median(ratios):.2f} ×" if ratios else "",
    )
    return (right / count if count else 2, -count, name), row


def healthy_kinds(those: Sequence[Measured]) -> list[str]:
    """How often what is no trouble is found."""
    by_kind: dict[str, list[tuple[Measured, Judged]]] = defaultdict(list)
    for one in those:
        for trouble in one.troubles:
            if trouble.healthy:
                by_kind[trouble.name].append((one, trouble))
    rows = [
        (
            name,
            len(pairs),
            sum(t.place >= 0 for _, t in pairs),
            sum(t.estimate_ns > FALSE_ALARM * one.length_ns for one, t in pairs),
        )
        for name, pairs in sorted(by_kind.items())
    ]
    return table(("kind", "programs", "found", f"above {FALSE_ALARM:.0%}"), rows)


def causes(those: Sequence[Measured]) -> list[str]:
    """What was said of the idle time of each true cause."""
    idle = sum((one.idle for one in those), Counter[tuple[Cause, Cause, bool]]())
    rows = []
    for cause in Cause:
        said = {key[1:]: ns for key, ns in idle.items() if key[0] is cause}
        total = sum(said.values())
        if total:
            by_call = sum(ns for key, ns in said.items() if is_by_call(cause, *key))
            wrong: Counter[str] = Counter()
            for (other, named), ns in said.items():
                if other is not cause and is_wrong(cause, other, named):
                    wrong[other.name] += ns
            worst = max(wrong, key=lambda name: wrong[name], default="")
            rows.append(
                (
                    _word(cause.name),
                    percent(total, idle.total()),
                    percent(said.get((cause, True), 0), total),
                    percent(said.get((cause, False), 0), total),
                    percent(by_call, total),
                    percent(wrong.total(), total),
                    _word(worst),
                    percent(said.get((Cause.UNKNOWN, True), 0), total)
                    if cause is not Cause.UNKNOWN
                    else "",
                )
            )
    head = (
        "true cause",
        "of idle",
        "right",
        "other name",
        "its call alone",
        "wrong",
        "mostly",
        "unknown",
    )
    return table(head, rows)


def _word(name: str) -> str:
    return name.replace("_", " ").lower()


def _about_causes(those: Sequence[Measured]) -> str:
    idle = sum((one.idle for one in those), Counter[tuple[Cause, Cause, bool]]())
    unknown = sum(ns for (_, said, _), ns in idle.items() if said is Cause.UNKNOWN)
    true = sum(ns for (cause, *_), ns in idle.items() if cause is Cause.UNKNOWN)
    right = sum(ns for (cause, said, named), ns in idle.items() if cause is said and named)
    total = idle.total()
    return f"Of all idle time {percent(right, total)} has its true cause, {percent(unknown, total)} is said to be unknown, {percent(true, total)} is."


def strangers(those: Sequence[Measured]) -> list[str]:
    """Which findings match no trouble, those that promise most first."""
    by_check: dict[str, list[tuple[Measured, Found]]] = defaultdict(list)
    for one in those:
        for found, about in zip(one.findings, one.about, strict=True):
            if not about:
                by_check[found.check].append((one, found))
    rows = []
    for check, pairs in by_check.items():
        shares = [found.saving_ns / one.length_ns for one, found in pairs if found.saving_ns >= 0]
        rows.append(
            (
                sum(shares),
                (
                    check,
                    len(pairs),
                    sum(found is one.findings[0] for one, found in pairs),
                    sum(share > FALSE_ALARM for share in shares),
                    percent(median(shares), 1) if shares else "",
                ),
            )
        )
    head = ("finding", "programs", "first", f"above {FALSE_ALARM:.0%}", "median estimate")
    return table(head, [row for _, row in sorted(rows, reverse=True)])


def evidence(those: Sequence[Measured]) -> list[str]:
    """How each kind of evidence fares."""
    by_evidence: dict[str, list[Measured]] = defaultdict(list)
    for one in those:
        by_evidence[one.evidence].append(one)
    respects = [name for name in RESPECTS if name not in {"causes", "all savings", "all first"}]
    rows = []
    for name, some in by_evidence.items():
        held = [cases(respect, some) for respect in respects]
        many = Counter(
            found.check
            for one in some
            for place, found in enumerate(one.findings)
            if one.is_excess(place)
        )
        worst = ", ".join(f"{check} ({count})" for check, count in many.most_common(3))
        rows.append((_word(name), len(some), *(percent(sum(h), len(h)) for h in held), worst))
    return table(("evidence", "programs", *respects, "too high"), rows)


# -- What went wrong in a program


def shown(one: Measured) -> Iterator[str]:
    """Tell of a program: its troubles, and the first five findings; shares are of the run."""
    yield f"seed {one.seed}, {one.base}, {one.evidence}, {one.length_ns / 1e6:.0f} ms: fails {', '.join(failed(one))}"
    for trouble in (*one.troubles, *one.habits):
        saving = "healthy" if trouble.healthy else percent(trouble.saving_ns, one.length_ns)
        about = trouble.about
        names = (*about.ops, *about.calls, *about.kernels, *about.os_calls, *about.overhead)
        yield f"  {trouble.name:22} {saving:>8}  {_few(names)}{' once' * about.once}{about.gpus or ''}"
    for found, about_it in list(zip(one.findings, one.about, strict=True))[:5]:
        saving, limit = (
            "-" if ns < 0 else percent(ns, one.length_ns)
            for ns in (found.saving_ns, found.limit_ns)
        )
        mark = ", ".join(sorted(about_it)) or "no trouble"
        yield f"    {found.check:24} {saving:>7} ≤ {limit:>7}  {mark}: {_few(sorted(found.names))}{' once' * found.once}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


# -- Into the documentation


def into_page(page: Path, lines: Iterable[str], command: str) -> None:
    """Write tables between the two comments of a page, with the command that makes them; at its end if there are none."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    said = f"`{command}` makes these tables of simulated programs, whose truth is known."
    made = "\n".join([BEGIN, said, "", *lines, END])
    page.write_text(before + made + rest.partition(END)[2], encoding="utf-8")

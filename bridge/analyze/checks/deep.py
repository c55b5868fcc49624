"""Choose what Nsight Compute is to measure after a timeline: launches of the kernels that the first findings rest on.

One process of ncu measures a set of kernels at a set of numbers, which count the launches of each kernel in its
process from 1. So as few numbers are chosen as serve all kernels, of launches in iterations without warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bridge.analyze.checks.advice import AdviceReport
from bridge.analyze.checks.advice.rule import NO_OP
from bridge.analyze.core import kinds
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.folding import folded_ops
from bridge.analyze.core.groups import counts, sums
from bridge.analyze.cost.memory.usage import MemoryUsage
from bridge.analyze.run.parts import Times, bounding_gpu, is_warm_up
from bridge.importers import frames
from bridge.importers.arrays import MISSING, lookup
from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, busy_time, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture

# Rules whose findings rest on the time of kernels; kernels in those of others wait, or follow one another slowly.
RULES = (
    "kernel-hotspot",
    "no-tensor-cores",
    "tensor-cores-left",
    "single-precision",
    "small-grids",
    "casts",
)
OF_FINDING = 2  # rows of evidence of one finding that are taken
MIN_SHARE = 0.01  # of the time of all kernels, which others than those of findings take at least
MOST_FORMS = 3  # grids and blocks of a kernel in an op, of each of which a launch is measured
FUNCTION, MANGLED = "function", "mangled"  # what ncu compares the names of kernels with
EXTENT = tuple(f"{what}_{axis}" for what in ("grid", "block") for axis in "xyz")


@record
class Target:
    """A kernel in an op, or in ops that differ in a number; its time in ns, and the rule of the finding on it.

    Without a finding the rule is "": it is among those that take most time.
    """

    op: str
    kernel: str
    ns: int
    rule: str = ""


@record
class Launches:
    """Launches of kernels that compute, in order of launch; all columns have an entry per launch.

    ``row`` is the activity and ``ns`` its time. ``function`` is a code of the name of the kernel in ``functions``, and
    ``number`` counts its launches in its process from 1. ``group`` is a code of op and kernel, ``form`` one of group,
    function, grid and block. ``steady`` are launches in iterations without warm-up, ``main`` those of the process
    whose kernels take longest.
    """

    row: Ints
    ns: Ints
    function: Ints
    number: Ints
    group: Ints
    form: Ints
    steady: Flags
    main: Flags
    functions: Sequence[str]
    base: str

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Launches:
        """Return the launches of a capture."""
        activities = attributed.capture.activities
        computes = activities.kind.among(frames.KERNEL) & ~kinds.is_communication(attributed)
        rows = np.flatnonzero(computes & attributed.counted)
        process, _ = number_groups(activities.report[rows], activities.process[rows])
        order = order_by(process, attributed.issued[rows], activities.start[rows])
        rows, process = rows[order], process[order]
        has_symbols = _all_known(activities.mangled[rows])
        names = activities.mangled if has_symbols else activities.name
        function = names.codes[rows]
        op = lookup(Names.of(folded_ops(attributed.ops)).codes, attributed.activity_op[rows])
        group, _ = number_groups(op, attributed.activity_name.codes[rows])
        form, _ = number_groups(group, function, *(activities[name][rows] for name in EXTENT))
        ns = attributed.duration[rows]
        spent = sums(process, ns, int(process.max(initial=0)) + 1)
        return cls(
            row=rows,
            ns=ns,
            function=function,
            number=1 + numbers_in(number_groups(process, function)[0]),
            group=group,
            form=form,
            steady=is_steady(attributed)[rows],
            main=process == spent.argmax(),
            functions=names.texts,
            base=MANGLED if has_symbols else FUNCTION,
        )

    @property
    def usable(self) -> Flags:
        """Which launches may be measured: steady ones, or all but the first of a form that has none of these."""
        forms = int(self.form.max(initial=NONE)) + 1
        has_steady = counts(self.form[self.steady & self.main], forms) > 0
        is_first = numbers_in(self.form) == 0
        alone = counts(self.form, forms) == 1
        others = ~has_steady[self.form] & (~is_first | alone[self.form])
        usable: Flags = self.main & (self.steady | others)
        return usable


def _all_known(names: Names) -> bool:
    """Return whether every row has a name that is not empty."""
    codes = np.unique(names.codes).tolist()
    return all(code != NONE and names.texts[code] for code in codes)


def numbers_in(group: Ints) -> Ints:
    """Return how many rows before each one have the same group."""
    order = np.argsort(group, kind="stable")
    edges = run_edges(group[order])
    result = np.empty(len(group), np.int64)
    result[order] = np.arange(len(group)) - np.repeat(edges[:-1], np.diff(edges))
    return result


def is_steady(attributed: AttributedCapture) -> Flags:
    """Return whether each activity was issued in an iteration that is no warm-up, nor the first of its loop."""
    early = np.append(is_warm_up(attributed), True)
    for first, last in attributed.iterations.by_loop():  # one iteration per loop of a process
        early[first] |= last - first > 1
    steady: Flags = ~early[attributed.activity_iteration]
    return steady


def busy_share(attributed: AttributedCapture) -> float:
    """Return the part of the time in which the GPU that bounds the run works: of iterations, else of all its work."""
    times, gpu = Times.of(attributed), Devices.of_report(attributed).gpu
    on = attributed.counted & (gpu == bounding_gpu(attributed))
    steady = on & is_steady(attributed)
    span = np.flatnonzero(steady if steady.any() else on)
    if not len(span):
        return 0.0
    first, last = int(times.work_start[span].min()), int(times.work_end[span].max())
    start, end = (np.clip(time[on], first, last) for time in (times.work_start, times.work_end))
    busy = busy_time(np.zeros(len(start), np.int64), start, end, 1)
    return float(busy[0]) / max(1, last - first)


def most_memory(attributed: AttributedCapture) -> int:
    """Return the most bytes that were allocated of a kind of memory, -1 if the use of memory was not recorded."""
    if not len(attributed.capture.memory):
        return MISSING
    return int(MemoryUsage.of(attributed).used.max(initial=0))


# -- Targets: kernels in ops, in the order of what findings rest on them


@record
class Choice:
    """What ncu shall measure: kernels by ``functions``, at these ``numbers`` of their launches.

    ``base`` is what the functions are names of. ``rows`` are the activities of the timeline that this selects, with
    launches that no target needs; ``ns`` is their time.
    """

    targets: tuple[Target, ...]
    functions: tuple[str, ...]
    base: str
    numbers: tuple[int, ...]
    rows: Ints
    ns: int


@record
class Candidates:
    """Targets in order, with the launches of each: ``place`` is the target of a group, NONE for others.

    ``rank`` is the place of a form among those of its group, by their time.
    """

    launches: Launches
    targets: tuple[Target, ...]
    place: Ints
    rank: Ints

    def first(self, targets: int, forms: int) -> Choice:
        """Return the choice of the first targets, and of the forms of each that take longest."""
        found = self.launches
        place = self.place[found.group]
        wanted = (place != NONE) & (place < targets) & (self.rank[found.form] < forms)
        wanted &= found.usable
        numbers = serving(found.form[wanted], found.number[wanted])
        functions = np.unique(found.function[wanted])
        at = np.isin(found.function, functions) & np.isin(found.number, numbers)
        return Choice(
            targets=self.targets[:targets],
            functions=tuple(found.functions[code] for code in functions.tolist()),
            base=found.base,
            numbers=tuple(sorted(numbers)),
            rows=found.row[at],
            ns=int(found.ns[at].sum()),
        )

    def choices(self) -> Iterator[Choice]:
        """Yield choices, the largest first: a target less is worse than a form less of each."""
        for targets in range(len(self.targets), 0, -1):
            for forms in range(MOST_FORMS, 0, -1):
                yield self.first(targets, forms)


def serving(form: Ints, number: Ints) -> list[int]:
    """Return few numbers such that each form has a launch with one of them.

    The next one is always that which serves most forms left, of several the lowest.
    """
    result: list[int] = []
    while len(form):
        numbers, code = np.unique(number, return_inverse=True)
        result.append(int(numbers[np.bincount(code).argmax()]))
        left = ~np.isin(form, form[number == result[-1]])
        form, number = form[left], number[left]
    return result


def candidates(
    attributed: AttributedCapture,
    advised: AdviceReport,
    most: int,
    ops: Sequence[str] = (),
) -> Candidates:
    """Return the candidates of a capture: at most ``most`` targets, in ``ops`` alone if there are any.

    First come the kernels that findings of `RULES` rest on, in the order of the findings and of their evidence, at
    most `OF_FINDING` of each; then those that take most time, at least `MIN_SHARE` of all.
    """
    found = Launches.of(attributed)
    names, spent = _groups(attributed, found)
    group_of = {name: at for at, name in enumerate(names) if spent[at]}
    shown = dict(zip(attributed.ops, folded_ops(attributed.ops), strict=True))
    rule_of = {} if ops else dict(_of_findings(advised, group_of, shown))
    much = np.flatnonzero(spent >= max(1, MIN_SHARE * spent.sum()) if not ops else spent > 0)
    by_time = much[order_by(-spent[much])].tolist()
    order = [at for at in dict.fromkeys([*rule_of, *by_time]) if not ops or names[at][0] in ops]
    order = order[:most]
    place = np.full(len(names), NONE)
    place[order] = np.arange(len(order))
    targets = [
        Target(op=names[at][0], kernel=names[at][1], ns=int(spent[at]), rule=rule_of.get(at, ""))
        for at in order
    ]
    return Candidates(found, tuple(targets), place, _ranks(found))


def _groups(attributed: AttributedCapture, found: Launches) -> tuple[list[tuple[str, str]], Ints]:
    """Return op and kernel of each group, and the time of its steady launches, or of all if none is steady."""
    groups = int(found.group.max(initial=NONE)) + 1
    first = np.flatnonzero(numbers_in(found.group) == 0)
    first = found.row[first[np.argsort(found.group[first])]]
    ops, kernels = [*folded_ops(attributed.ops), NO_OP], attributed.activity_name
    names = zip(attributed.activity_op[first].tolist(), kernels[first].tolist(), strict=True)
    counted = found.steady if found.steady.any() else np.ones(len(found.row), bool)
    spent = sums(found.group[counted], found.ns[counted], groups)
    return [(ops[op], kernel) for op, kernel in names], spent


def _of_findings(
    advised: AdviceReport, group_of: Mapping[tuple[str, str], int], shown: Mapping[str, str]
) -> Iterator[tuple[int, str]]:
    """Yield the groups that findings rest on, each once, with the rule; ``shown`` are the names of ops there."""
    known: set[int] = set()
    for one in advised.advice:
        table = one.finding.evidence
        if one.rule.name not in RULES or "activity" not in table:
            continue
        ops = (shown.get(op, op) for op in table["op"].tolist())
        names = dict.fromkeys(zip(ops, table["activity"].tolist(), strict=True))
        groups = [group_of[name] for name in names if name in group_of]
        for group in groups[:OF_FINDING]:
            if group not in known:
                known.add(group)
                yield group, one.rule.name


def _ranks(found: Launches) -> Ints:
    """Return the place of each form among those of its group, by the time of the launches that may be measured."""
    forms = int(found.form.max(initial=NONE)) + 1
    usable = found.usable
    spent = sums(found.form[usable], found.ns[usable], forms)
    group = np.zeros(forms, np.int64)
    group[found.form] = found.group
    order = order_by(group, -spent)
    result = np.empty(forms, np.int64)
    result[order] = numbers_in(group[order])
    return result

"""Rules about what the host does on the critical path: code of ops, calls of the operating system and of CUDA."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import NSIGHT_BRIDGE, TENSORBOARD, TORCH_TIDY, Finding
from bridge.analyze.checks.check import Check
from bridge.analyze.core.failed_calls import results
from bridge.analyze.core.folding import folded_ops
from bridge.analyze.core.groups import highest, lowest, sums
from bridge.analyze.core.kinds import (
    COMPILING,
    COPYING,
    LAUNCHING,
    READING,
    WRITING,
    calls_matching,
    is_compilation,
    is_data_loading,
)
from bridge.analyze.core.table import Table
from bridge.analyze.run import interventions
from bridge.analyze.run.causes.operating_system import meetings
from bridge.analyze.run.critical.releases import SERVING, WAITING
from bridge.analyze.run.critical.retiming import Change, Draft
from bridge.analyze.run.critical.run import API, HOST, KIND, SYSTEM, UNKNOWN, Run
from bridge.analyze.run.parts import Parts
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, search_groups
from bridge.knowledge import cuda_errors

MIN_PATH = 0.005  # of the run, on the critical path, from which on a cause is looked at
MOST = 3  # findings of each rule
OUTLYING = 3  # times all later ones: what the first iteration alone pays for
MIN_ONCE_NS = (
    20_000_000  # on the critical path, of calls of the system and batches that any program has once
)
MORE_WORKERS = 4  # times the workers of a loader
MIN_AHEAD = 0.3  # of the time of loaders, in which they wait: they are fast enough, and not far enough ahead
REST = 0.1  # of the code of an op, which is left of it when it is made faster
MIN_REPEATED, ALIKE = (
    3,
    2,
)  # so often within iterations, and at most so much longer outside: what is repeated
MIN_PAUSES = 2  # of code within iterations that are as long as one behind them
ALLOCATING = re.compile(
    r"cu(?:da)?(?:Mem)?(?:Alloc|Free|Malloc|HostAlloc|FreeHost|MallocHost|AllocHost|HostRegister|HostUnregister)\w*"
    r"|cuMem(?:Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree)(?:_\w+)?"
)
DRIVER = re.compile(
    r"ioctl|m(?:un|re)?map\w*|mprotect|madvise|s?brk|fork|v?fork|clone\d?|exec\w+|pthread_create"
)
SINGLE_PROCESS = re.compile(r".*SingleProcess.*")
WORKERS = re.compile(r".*MultiProcessing.*")  # a loader that waits for its workers
# What a group is called by: Python's lock, memory, its op, or in no op its call, or neither.
LOCK, MEMORY, OP, CUDA, OS, CODE = range(6)
LOCK_NAME = "Python's lock"
MEMORY_NAMES = ("memory of the device", "pinned memory", "memory that ran out")
RAN_OUT = 2  # place in `MEMORY_NAMES`
PINNED_MEMORY = re.compile(r"cu\w*Host\w*")
MIN_COST = 0.3  # of the time of an op on its thread; copies and waits of such ops belong to them
CODE_NAME = "code outside of ops and calls"


@record
class HostGroups:
    """What threads do on the host, in groups by op, or in no op by call: a row of ``points`` per point of the host.

    Waits, launches, copies and the code of ops that launch are not among them. ``group`` is the group of each point. Of
    each group, ``kind`` is what names it, ``name`` the place of the name, ``once`` whether it lies outside of all
    iterations, and ``path_ns`` its time on the critical path; groups are in order of that, the largest first.
    """

    points: Ints
    group: Ints
    kind: Ints
    name: Ints
    once: Flags
    path_ns: Ints

    @classmethod
    def of(cls, evidence: Evidence) -> HostGroups:
        """Return the groups of a run."""
        run = evidence.run
        points = _cost_points(evidence)
        by, name = _names(evidence, points)
        once = _once(evidence, points, by, name)
        group, first = number_groups(by, name, once.astype(np.int64))
        on_path = np.zeros(len(run.graph), bool)
        on_path[run.path] = True
        path_ns = sums(group, np.where(on_path[points], run.own_delay(points), 0), len(first))
        order = order_by(-path_ns)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        first = first[order]
        return cls(
            points=points,
            group=rank[group],
            kind=by[first],
            name=name[first],
            once=once[first],
            path_ns=path_ns[order],
        )

    def take(self, group: int) -> Ints:
        """Return the points of a group."""
        points: Ints = self.points[self.group == group]
        return points


def _cost_points(evidence: Evidence) -> Ints:
    """Return the points of the host before which a thread neither launches, copies nor waits for the device."""
    run, attributed = evidence.run, evidence.attributed
    points = run.lasting_on_host
    kind, here = run.kind_of(points), points - run.hosts
    call, system = run.host.call[here], run.host.system[here]
    op = lookup(evidence.own_op, run.host.node[here])
    issues = calls_matching(attributed, LAUNCHING) | calls_matching(attributed, COPYING)
    is_cost = np.isin(kind, (KIND[HOST], KIND[SYSTEM]))
    is_cost |= (kind == KIND[API]) & ~lookup(issues, call, False)
    is_code = (call == NONE) & (system == NONE)
    is_short = run.graph.delay[points] <= interventions.PREPARING_NS
    launching = is_short & (evidence.launching_ops[op] | _prepares(evidence)[here])
    is_cost &= ~(is_code & launching)
    is_cost |= ~is_code & evidence.shared(_costly_ops)[op] & evidence.in_iterations(points)
    result: Ints = points[is_cost]
    return result


def _names(evidence: Evidence, points: Ints) -> tuple[Ints, Ints]:
    """Return what the time before each point is called by, and the place of its name."""
    run, attributed = evidence.run, evidence.attributed
    here = points - run.hosts
    call, system = (column[here].astype(np.int64) for column in (run.host.call, run.host.system))
    op = lookup(evidence.own_op, run.host.node[here])
    is_code = (op == NONE) & (call == NONE) & (system == NONE)
    is_free = is_code & evidence.in_iterations(points)
    call = np.where(is_free, _compiling_next(evidence)[here], call)  # it makes what is loaded then
    is_once = is_code & ~evidence.in_iterations(points)
    system = np.where(is_once, _of_file(evidence)[here], system)
    launches, systems = (
        attributed.capture.launches.name,
        attributed.capture.system_calls.name,
    )
    allocates = lookup(calls_matching(attributed, ALLOCATING), call, False)
    memory = lookup(_memory(evidence), call)
    is_lock = np.isin(points, run.releases.python)
    names = (
        np.zeros(len(points), np.int64),
        memory,
        op,
        lookup(launches.codes, call),
        lookup(systems.codes, system),
    )
    tests = [is_lock, allocates, op != NONE, call != NONE, system != NONE]
    by = np.select(tests, [LOCK, MEMORY, OP, CUDA, OS], CODE)
    return by, np.select(tests, names, NONE)


def _memory(evidence: Evidence) -> Ints:
    """Return what each API call would allocate or release, a place in `MEMORY_NAMES`.

    Memory of the device ran out for an allocation that failed, and for what its thread allocates and releases there
    behind it, in the same op and until it launches or copies something.
    """
    attributed = evidence.attributed
    pinned = calls_matching(attributed, PINNED_MEMORY)
    result = pinned.astype(np.int64)
    allocates = calls_matching(attributed, ALLOCATING) & ~pinned
    failed = allocates & (results(attributed) == cuda_errors.OUT_OF_MEMORY)
    if failed.any():
        nesting, start = (
            attributed.attribution.nesting,
            evidence.capture.launches.start,
        )
        order = order_by(attributed.attribution.stack, start)
        stack, node = attributed.attribution.stack[order], attributed.launch_node[order]
        issues = calls_matching(attributed, LAUNCHING) | calls_matching(attributed, COPYING)
        begins = issues[order] | np.append(True, stack[1:] != stack[:-1])
        place = np.arange(len(order))
        first, last = (
            np.maximum.accumulate(np.where(is_one, place, NONE))
            for is_one in (begins, failed[order])
        )
        op = node[last]
        is_within = np.where(op == NONE, node == NONE, start[order] < lookup(nesting.end, op, 0))
        result[order[(last >= first) & (last != NONE) & is_within & allocates[order]]] = RAN_OUT
    return result


def _compiling_next(evidence: Evidence) -> Ints:
    """Return the next API call after each point of the host, if it loads code and is in no op; else NONE."""
    host, op = evidence.run.host, np.append(evidence.own_op, NONE)
    compiles = calls_matching(evidence.attributed, COMPILING)
    compiles = np.append(compiles & (op[evidence.attributed.launch_node] == NONE), False)
    calls = np.append(np.flatnonzero(host.call != NONE), NONE)
    following = calls[np.searchsorted(calls[:-1], np.arange(len(host.time)))]
    thread = np.append(host.stack, NONE)
    call = np.where(thread[following] == host.stack, lookup(host.call, following), NONE)
    return np.where(compiles[call], call, NONE)


def _of_file(evidence: Evidence) -> Ints:
    """Return the call that reads a file right before code in no call, or writes one right after it, and lasts as long.

    NONE where there is none: longer code does something else.
    """
    host, names = evidence.run.host, evidence.capture.system_calls.name
    call = names.at(host.system)
    reads, writes = call.matching(READING.fullmatch), call.matching(WRITING.fullmatch)
    result = np.full(len(host.time), NONE)
    before, after = host.system[:-1], host.system[1:]
    delay = evidence.run.host_delay
    read = reads[:-1] & host.chained[:-1] & host.chained[1:] & (delay[1:] <= delay[:-1])
    result[1:][read] = before[read]
    written = writes[1:] & host.chained[1:] & (delay[:-1] <= delay[1:])
    result[:-1][written] = after[written]
    return np.where((host.call == NONE) & (host.system == NONE), result, NONE)


def _prepares(evidence: Evidence) -> Flags:
    run = evidence.run
    return interventions.prepares(
        run, calls_matching(evidence.attributed, LAUNCHING) & run.work.issues
    )


def _costly_ops(evidence: Evidence) -> Flags:
    """Return which ops launch no kernel, and do more than wait and copy; the last entry is for no op."""
    run, attributed = evidence.run, evidence.attributed
    size = len(attributed.ops) + 1
    calls = np.flatnonzero(calls_matching(attributed, COPYING) | run.waits.waits)
    op = lookup(evidence.own_op, attributed.launch_node[calls])
    calls, op = calls[op != NONE], op[op != NONE]
    moved = sums(op, (run.work.call_end - run.work.call_start)[calls], size)
    result: Flags = (moved > 0) & ~evidence.launching_ops
    result[NONE] = False
    if result.any():
        here = lookup(evidence.own_op, run.host.node)
        kind = run.kind_of(run.hosts + np.arange(len(here)))
        cost = np.isin(kind, (KIND[HOST], KIND[SYSTEM])) & (here != NONE)
        worked = sums(here[cost], run.host_delay[cost], size)
        result &= worked >= MIN_COST * (worked + moved)
    return result


def _once(evidence: Evidence, points: Ints, by: Ints, name: Ints) -> Flags:
    """Return whether the time before each point is paid once: outside of iterations, and not as often as within them."""
    once = ~evidence.in_iterations(points)
    group, first = number_groups(by, name)
    delay = evidence.run.graph.delay[points]
    first_of_all = np.zeros(len(points), bool)
    stacks = evidence.run.host.stack[points - evidence.run.hosts]
    is_early = ~once & evidence.is_early(stacks, evidence.run.graph.time[points])
    later = highest(group[~once & ~is_early], delay[~once & ~is_early], len(first), empty=0)
    first_of_all[is_early] = delay[is_early] > OUTLYING * later[group[is_early]]
    compiles = is_compilation(evidence.attributed)[np.where(by == OP, name, NONE)] & (by == OP)
    first_of_all |= is_early & compiles
    once = once | (first_of_all & np.isin(by, (MEMORY, CUDA, OP)))
    largest = highest(group[~once], delay[~once], len(first), empty=0)
    count = np.bincount(group[~once], minlength=len(first))
    here = points - evidence.run.hosts
    is_code = (evidence.run.host.call[here] == NONE) & (evidence.run.host.system[here] == NONE)
    is_same = (
        ((by == OP) | ~is_code)
        & ~compiles
        & (count >= MIN_REPEATED)[group]
        & (delay <= ALIKE * largest[group])
    )
    result: Flags = once & ~is_same & ~_goes_on(evidence, points, (by == CODE) & once, by == CODE)
    return result


def _goes_on(evidence: Evidence, points: Ints, once: Flags, code: Flags) -> Flags:
    """Return whether code begins as iterations end, and lasts as long as some of its thread within them.

    That is what runs now and then, such as garbage collection.
    """
    run = evidence.run
    delay, stack = run.graph.delay[points], run.host.stack[points - run.hosts].astype(np.int64)
    begins = run.graph.time[points] - delay
    parts = Parts.of_run(evidence.attributed)
    ends = np.array([end for _, end in parts.iterations] if parts is not None else [], np.int64)
    rows = np.flatnonzero(once & np.isin(begins, ends))
    inside = np.flatnonzero(code & evidence.in_iterations(points))
    inside = inside[order_by(stack[inside], delay[inside])]
    within = stack[inside], delay[inside]
    first = search_groups(*within, stack[rows], delay[rows] // ALIKE, side="left")
    last = search_groups(*within, stack[rows], delay[rows] * ALIKE, side="right")
    result = np.zeros(len(points), bool)
    result[rows[last - first >= MIN_PAUSES]] = True
    return result


def _findings(
    evidence: Evidence,
    wanted: Callable[[HostGroups, int], bool],
    *,
    realistic: bool = True,
    once: bool | None = False,
) -> Iterator[Finding]:
    """Yield a finding for each of the largest groups that are wanted."""
    groups, run = evidence.shared(HostGroups.of), evidence.run
    least, count = MIN_PATH * run.span, 0
    for group in range(len(groups.path_ns)):
        if groups.path_ns[group] < least or count == MOST:
            return
        if (once is None or bool(groups.once[group]) == once) and wanted(groups, group):
            count += 1
            yield _finding(evidence, group, realistic=realistic)


def _finding(evidence: Evidence, group: int, *, realistic: bool) -> Finding:
    groups, run = evidence.shared(HostGroups.of), evidence.run
    whole = points = groups.take(group)
    table = _table(evidence, points)
    named = (
        " and ".join(dict.fromkeys(filter(None, table["within"].tolist()[:2])))
        if groups.kind[group] in {MEMORY, OP}
        else ""
    )
    here = points - run.hosts
    is_code = (run.host.call[here] == NONE) & (run.host.system[here] == NONE)
    if groups.kind[group] == OS and is_code.any():
        named = "and the code of what it reads or writes"
    figures = {
        "what": group_name(evidence, group) + (f" ({named})" if named else ""),
        "host_ns": int(run.own_delay(points).sum()),
        "path_ns": int(groups.path_ns[group]),
        "path_share": int(groups.path_ns[group]) / max(1, run.span),
    }
    stays = (groups.kind[group] == OP) & (is_code | bool(groups.once[group]))
    stays |= bool(groups.once[group]) & _is_file(evidence, groups, group)

    def limit(draft: Draft) -> None:
        draft.remove(whole)
        draft.cut(whole)

    rest = REST
    if _is_beside(evidence, group):  # more threads share the work, but for that of the first batch
        points = points[run.graph.time[points] > evidence.shared(_first_batch)]
        rest, stays = 1 / MORE_WORKERS, np.ones(len(points), bool)
    gone = points[~stays]
    if (
        _is_loading(evidence, groups, group) and not stays.all()
    ):  # the first batch has to be waited for
        gone = gone[~_is_first_wait(run, gone)]
    hide = _hidden_copies(evidence, group)

    def change(draft: Draft) -> None:
        draft.scale(points[stays], rest)
        draft.remove(gone)
        draft.cut(gone)
        hide(draft)

    return Finding(
        figures,
        table,
        change=change if realistic else None,
        limit=limit,
        once=bool(groups.once[group]),
        is_named=True,
    )


def _is_first_wait(run: Run, points: Ints) -> Flags:
    """Return whether the time before each point is the first wait of its thread for data."""
    here = points - run.hosts
    waits = run.host.system[here] != NONE
    stack = run.host.stack[here].astype(np.int64)
    size = int(stack.max(initial=0)) + 1
    first = lowest(stack[waits], points[waits], size, empty=NONE)
    result: Flags = waits & (points == first[stack])
    return result


def _hidden_copies(evidence: Evidence, group: int) -> Change:
    """Return the change that copies of an op, which are part of its cost, run beside kernels."""
    groups, attributed = evidence.shared(HostGroups.of), evidence.attributed
    op = int(groups.name[group])
    is_op = groups.kind[group] == OP and not groups.once[group]
    if not is_op or not evidence.shared(_costly_ops)[op]:
        return interventions.nothing
    owner = lookup(evidence.own_op, attributed.node)
    return interventions.hidden(evidence.run, evidence.is_kind(frames.MEMCPY) & (owner == op))


def group_name(evidence: Evidence, group: int) -> str:
    """Return what a group of host time is called."""
    groups, capture = evidence.shared(HostGroups.of), evidence.capture
    kind, name = int(groups.kind[group]), int(groups.name[group])
    if kind == LOCK:
        return LOCK_NAME
    if kind == MEMORY:
        return MEMORY_NAMES[name]
    if kind == OP:
        return str(folded_ops(evidence.attributed.ops)[name])
    if kind == CUDA:
        return str(capture.launches.name.texts[name])
    if kind == OS:
        return str(capture.system_calls.name.texts[name])
    return CODE_NAME


def _table(evidence: Evidence, points: Ints) -> Table:
    """Return op, path and call of the time before some points of the host."""
    run, capture = evidence.run, evidence.capture
    here = points - run.hosts
    node, call, system = run.host.node[here], run.host.call[here], run.host.system[here]
    launches, systems = capture.launches.name, capture.system_calls.name
    names = [*launches.texts, *systems.texts]
    code = np.where(
        call != NONE,
        lookup(launches.codes, call),
        np.where(
            system != NONE,
            lookup(systems.codes, system) + len(launches.texts),
            NONE,
        ),
    )
    columns = rule.op_and_path(evidence, node.astype(np.int64))
    example = lookup(evidence.attributed.attribution.nesting.range, node)
    return rule.group_rows({**columns, "within": (code, names)}, run.own_delay(points), example)


# -- Which groups are whose


def _is_loading(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    kind, name = groups.kind[group], groups.name[group]
    if _is_beside(evidence, group):
        return True
    if kind == OP:
        return bool(is_data_loading(evidence.attributed)[name])
    return bool(kind == OS and not groups.once[group] and _waits(evidence, group))


def _is_file(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    """Return whether a group reads or writes files."""
    name = group_name(evidence, group)
    is_file = READING.fullmatch(name) or WRITING.fullmatch(name)
    return bool(groups.kind[group] == OS and is_file)


def _is_beside(evidence: Evidence, group: int) -> bool:
    """Return whether the threads of a group work for ops that load data."""
    run = evidence.run
    points = evidence.shared(HostGroups.of).take(group)
    time = run.graph.delay[points]
    return bool(2 * time[run.loads[points - run.hosts]].sum() > time.sum())


def _first_batch(evidence: Evidence) -> int:
    """Return when the first wait for a loader that was recorded ended."""
    times = evidence.run.graph.time[evidence.run.data_waits]
    return int(times.min()) if len(times) else 0


def _waits(evidence: Evidence, group: int) -> bool:
    """Return whether a call of the operating system waits for another thread or process."""
    name = group_name(evidence, group)
    return (
        WAITING.fullmatch(name) is not None and not SERVING.fullmatch(name) and "mutex" not in name
    )


def _is_compiling(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    kind, name = groups.kind[group], groups.name[group]
    if kind == OP:
        return bool(is_compilation(evidence.attributed)[name])
    return bool(kind == CUDA and COMPILING.match(group_name(evidence, group)))


def _allocates(_evidence: Evidence, groups: HostGroups, group: int) -> bool:
    return bool(groups.kind[group] == MEMORY)


def _is_locked(_evidence: Evidence, groups: HostGroups, group: int) -> bool:
    return bool(groups.kind[group] == LOCK)


def _is_served(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    """Return whether a group waits for requests."""
    return bool(groups.kind[group] == OS and SERVING.fullmatch(group_name(evidence, group)))


def _is_other(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    return not any(
        test(evidence, groups, group)
        for test in (_is_locked, _is_loading, _is_compiling, _allocates, _is_served)
    )


def waits_for_data(evidence: Evidence) -> Iterator[Finding]:
    """Yield what keeps the run waiting for data that other processes or threads load."""
    waits = list(
        _findings(
            evidence,
            lambda groups, group: (
                _is_loading(evidence, groups, group) and not _is_beside(evidence, group)
            ),
        )
    )
    waits = [finding for finding in waits if not _loads_itself(finding)]
    loaders = list(_findings(evidence, lambda _, group: _is_beside(evidence, group)))
    if loaders:
        yield _of_loaders(evidence, waits[:1] or loaders[:1], loaders)
    else:
        yield from waits


def _of_loaders(
    evidence: Evidence, waits: Sequence[Finding], loaders: Sequence[Finding]
) -> Finding:
    """Return the finding that a thread waits for loaders that were recorded, on the critical path, too.

    Loaders that wait for most of the time are fast enough: they should be further ahead.
    """
    run = evidence.run
    parts = loaders if waits[0] is loaders[0] else (*waits, *loaders)
    path_ns = sum(cast(int, one.figures["path_ns"]) for one in parts)
    figures = {"path_ns": path_ns, "path_share": path_ns / max(1, run.span)}
    changes = [one.change for one in loaders if one.change is not None]
    limits = [one.limit for one in (*waits, *loaders) if one.limit is not None]
    points = run.hosts + np.flatnonzero(run.loads & run.host.chained)
    kind = run.kind_of(points)
    waiting = points[(kind == KIND[SYSTEM]) & _in_wait(evidence, points)]
    here = (waiting - run.hosts, points - run.hosts)
    idle, whole = (int((run.host.time[p] - run.host.time[p - 1]).sum()) for p in here)

    def ahead(draft: Draft) -> None:
        draft.remove(waiting)
        draft.cut(waiting)

    change = ahead if idle > MIN_AHEAD * whole else interventions.together(changes)
    return replace(
        waits[0],
        figures={**waits[0].figures, **figures},
        change=change,
        limit=interventions.together(limits),
    )


def _in_wait(evidence: Evidence, points: Ints) -> Flags:
    """Return whether each point of the host lies in a call of the operating system that waits."""
    run = evidence.run
    names = evidence.capture.system_calls.name
    waits = [WAITING.fullmatch(str(name)) is not None for name in names.texts]
    name = lookup(names.codes, run.host.system[points - run.hosts])
    result: Flags = np.array([*waits, False], bool)[name]
    return result


def loads_itself(evidence: Evidence) -> Iterator[Finding]:
    """Yield the loading of data by the thread that launches work."""
    for finding in _findings(
        evidence,
        lambda groups, group: (
            _is_loading(evidence, groups, group) and not _is_beside(evidence, group)
        ),
    ):
        if _loads_itself(finding):
            yield finding


def _loads_itself(finding: Finding) -> bool:
    """Return whether the host works while it loads, rather than waits."""
    table = finding.evidence
    if SINGLE_PROCESS.fullmatch(str(finding.figures["what"])):
        return True
    if WORKERS.fullmatch(str(finding.figures["what"])):
        return False
    waits = [WAITING.fullmatch(str(call)) is not None for call in table["within"]]
    return int(table["total_ns"][waits].sum()) * 2 < int(table["total_ns"].sum())


def compiles(evidence: Evidence) -> Iterator[Finding]:
    """Yield compilation and loading of modules within iterations."""
    yield from _findings(evidence, lambda groups, group: _is_compiling(evidence, groups, group))


def allocates(evidence: Evidence) -> Iterator[Finding]:
    """Yield allocations and releases of memory within iterations."""
    yield from _findings(
        evidence,
        lambda groups, group: _allocates(evidence, groups, group) and groups.name[group] != RAN_OUT,
    )


def runs_out_of_memory(evidence: Evidence) -> Iterator[Finding]:
    """Yield allocations within iterations that failed, and what was released and allocated for them."""
    yield from _findings(
        evidence,
        lambda groups, group: _allocates(evidence, groups, group) and groups.name[group] == RAN_OUT,
    )


def waits_for_lock(evidence: Evidence) -> Iterator[Finding]:
    """Yield waits for Python's lock within iterations, with what other threads of the process run meanwhile."""
    for finding in _findings(evidence, lambda groups, group: _is_locked(evidence, groups, group)):
        yield replace(finding, figures={**finding.figures, "holder": _holder(evidence)})


def _holder(evidence: Evidence) -> str:
    """Return the op that other threads run for most of the time of waits for Python's lock, or a name for other code."""
    run = evidence.run
    waits, lasting = run.releases.python, run.lasting_on_host
    here = lasting - run.hosts
    runs = (run.host.call[here] == NONE) & (run.host.system[here] == NONE)
    process, time, stack = run.work.process_of_stacks, run.graph.time, run.host.stack

    def spans(points: Ints) -> tuple[Ints, Ints, Ints]:
        home = process[stack[points - run.hosts]]
        return home, time[points] - run.graph.delay[points], time[points]

    code = lasting[runs]
    found = meetings(*spans(waits), spans(code))
    other = stack[code[found.event] - run.hosts] != stack[waits[found.interval] - run.hosts]
    names = [*folded_ops(evidence.attributed.ops), "code in no op"]
    op = lookup(evidence.own_op, run.host.node[code - run.hosts]) % len(names)
    total = sums(op[found.event[other]], found.time[other], len(names))
    return str(names[int(np.argmax(total))]) if total.any() else "code that was not recorded"


def works(evidence: Evidence) -> Iterator[Finding]:
    """Yield what else the host does within iterations while the run waits for it."""
    yield from _findings(evidence, lambda groups, group: _is_other(evidence, groups, group))


def paid_once(evidence: Evidence) -> Iterator[Finding]:
    """Yield what the host does before, between and behind iterations.

    Code in no range has no estimate, unless it reads or writes a file for most of the time.
    """

    def is_known(groups: HostGroups, group: int) -> bool:
        name = group_name(evidence, group)
        kind = groups.kind[group]
        is_long = bool(groups.path_ns[group] >= MIN_ONCE_NS)
        if kind == OP:
            return is_long or not _is_loading(evidence, groups, group)
        if kind == CUDA:
            return COMPILING.match(name) is not None
        is_waiting = _waits(evidence, group) or DRIVER.fullmatch(name)
        return bool(kind == OS and is_long and not is_waiting)

    yield from _not_begun(evidence)
    yield from _findings(evidence, is_known, once=True)
    yield from _findings(
        evidence, lambda groups, group: not is_known(groups, group), once=True, realistic=False
    )


TEXT = "the run waits for {what} for {path_ns}, {path_share} of it; in all it takes {host_ns}"
ESTIMATE = f"the run with {REST:.0%} of the code of an op, and without calls and what is in no op"


def _not_begun(evidence: Evidence) -> Iterator[Finding]:
    """Yield the time of the run before the first event of the thread on which the critical path begins."""
    elements = evidence.run.elements
    if not len(elements.kind) or elements.kind[0] != KIND[UNKNOWN]:
        return
    time = int(elements.end[0] - elements.start[0])
    figures = {
        "what": "what the program does before its first call or range that is recorded",
        "host_ns": time,
        "path_ns": time,
        "path_share": time / max(1, evidence.run.span),
    }
    table = Table({"what": ["not recorded"], "total_ns": [time]})
    if time >= MIN_PATH * evidence.run.span:
        yield Finding(figures, table, ceiling_ns=time, once=True, is_named=True)


RULES = (
    Check(
        name="data-loading",
        title="The run waits for data",
        when="a thread waits for a loader on the critical path of iterations",
        text=TEXT,
        remedy="give the loader more workers (num_workers) and batches ahead (prefetch_factor), and pin_memory=True; decode and augment on the GPU",
        estimate=f"the run without these waits, but for the first; {MORE_WORKERS} times as many threads, where the loader's are recorded",
        source=TENSORBOARD,
        needs=("work", "graph"),
        find=waits_for_data,
        remedy_elsewhere="load in more threads or processes, and further ahead",
    ),
    Check(
        name="single-process-loader",
        title="The thread that launches work loads the data itself",
        when="loading of data is on the critical path of iterations, and its thread does not wait in it",
        text=TEXT,
        remedy="use DataLoader(num_workers=4) or more: workers load data while the GPU runs",
        estimate=f"the run with {REST:.0%} of this code",
        source=TORCH_TIDY,
        needs=("work", "ops", "graph"),
        find=loads_itself,
        remedy_elsewhere="load in other threads or processes, ahead",
    ),
    Check(
        name="recompilation",
        title="Code is compiled or loaded within iterations",
        when="ops or API calls that compile or load code are on the critical path of iterations",
        text=TEXT,
        remedy="keep shapes constant, or use torch.compile(dynamic=True); TORCH_LOGS=recompiles shows the reasons; load modules before the loop (CUDA_MODULE_LOADING=EAGER)",
        estimate=ESTIMATE,
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "graph"),
        find=compiles,
    ),
    Check(
        name="allocation",
        title="Memory is allocated or released within iterations",
        when="calls that allocate or release memory of the device, or pinned memory, are on the critical path of iterations",
        text=TEXT,
        remedy="allocate once, before the loop; use a pool (PyTorch's caching allocator, cudaMallocAsync)",
        estimate=ESTIMATE,
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "graph"),
        find=allocates,
    ),
    Check(
        name="memory-ran-out",
        title="Memory runs out within iterations, and is released to try again",
        when="allocations that fail for want of memory, and what is released and allocated behind them, are on the critical path of iterations",
        text=TEXT,
        remedy="make the batch smaller, keep less in memory (checkpointing, a lower precision), or lessen fragmentation (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)",
        estimate="the run without these calls",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "results", "graph"),
        find=runs_out_of_memory,
        remedy_elsewhere="keep less in memory, or allocate what is needed once, before the loop",
    ),
    Check(
        name="python-lock",
        title="The run waits for Python's lock",
        when="waits for the global interpreter lock are on the critical path of iterations",
        text="the run waits for Python's lock for {path_ns}, {path_share} of it; meanwhile other threads run {holder}",
        remedy="run the other threads' code in a process of its own, or in calls that release the lock",
        estimate="the run without these waits",
        source=NSIGHT_BRIDGE,
        needs=("work", "graph"),
        find=waits_for_lock,
    ),
    Check(
        name="host-bound",
        title="The run waits for the host",
        when="code of an op that launches nothing, a call of the operating system, another API call or code outside of ops is on the critical path of iterations",
        text=TEXT,
        remedy="make it faster, run it in another thread or process, or while the GPU has enough work queued",
        estimate=ESTIMATE,
        source=NSIGHT_BRIDGE,
        needs=("work", "graph"),
        find=works,
    ),
    Check(
        name="paid-once",
        title="The run waits for what happens once",
        when="host code before, between and behind iterations is on the critical path; a pause right behind the last one that recurs within them is one of those",
        text=TEXT,
        remedy="keep what it makes in a cache, do it in parallel, or leave it out; a longer run pays it once, too",
        estimate=f"the run with {REST:.0%} of an op, and without calls that compile or use the operating system; none for these and for the first batch below {MIN_ONCE_NS // 1_000_000} ms",
        source=NSIGHT_BRIDGE,
        needs=("work", "graph"),
        find=paid_once,
    ),
)

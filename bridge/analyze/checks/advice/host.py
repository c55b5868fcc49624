"""Rules about what the host does on the critical path: code of ops, calls of the operating system and of CUDA."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import NSIGHT_BRIDGE, TENSORBOARD, TORCH_TIDY, Finding, Rule
from bridge.analyze.core.folding import folded_ops
from bridge.analyze.core.groups import sums
from bridge.analyze.core.kinds import (
    COMPILING,
    COPYING,
    LAUNCHING,
    calls_matching,
    is_compilation,
    is_data_loading,
)
from bridge.analyze.run.critical.releases import WAITING
from bridge.analyze.run.critical.retiming import Draft
from bridge.analyze.run.critical.run import API, HOST, KIND, SYSTEM
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by

MIN_PATH = 0.005  # of the run, on the critical path, from which on a cause is looked at
MOST = 3  # findings of each rule
ALLOCATING = re.compile(
    r"cu(?:da)?(?:Mem)?(?:Alloc|Free|Malloc|HostAlloc|FreeHost|MallocHost|AllocHost|HostRegister|HostUnregister)\w*"
)
INPUT = re.compile(r"f?getc(?:har)?|getline|f?gets|readline|scanf")
SERVING = re.compile(r"recv\w*|accept4?|epoll_p?wait\d?")
SINGLE_PROCESS = re.compile(r".*SingleProcess.*")
OP, CUDA, OS, CODE = range(4)  # what a group is called by: its op, or in no op its call, or neither
CODE_NAME = "code outside of ops and calls"


@dataclass(frozen=True)
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
        run, attributed = evidence.run, evidence.attributed
        points = run.hosts + np.flatnonzero(run.graph.delay[run.hosts : run.hosts + len(run.host.time)])
        kind = run.kind_of(points)
        here = points - run.hosts
        call, system = run.host.call[here], run.host.system[here]
        op = np.append(evidence.own_op, NONE)[run.host.node[here]]
        issues = calls_matching(attributed, LAUNCHING) | calls_matching(attributed, COPYING)
        is_cost = np.isin(kind, (KIND[HOST], KIND[SYSTEM]))
        is_cost |= (kind == KIND[API]) & ~np.append(issues, False)[call]
        is_cost &= ~((call == NONE) & (system == NONE) & evidence.launching_ops[op])
        points, call, system, op = (c[is_cost] for c in (points, call, system, op))
        names = attributed.capture.launches["name"], attributed.capture.system_calls["name"]
        call_name, system_name = (
            np.append(frames.codes(named), NONE)[rows] for named, rows in zip(names, (call, system), strict=True)
        )
        by = np.select([op != NONE, call != NONE, system != NONE], [OP, CUDA, OS], CODE)
        name = np.select([by == OP, by == CUDA, by == OS], [op, call_name, system_name], NONE)
        once = ~evidence.in_iterations(points)
        group, first = number_groups(by, name, once.astype(np.int64))
        on_path = np.zeros(len(run.graph), bool)
        on_path[run.path] = True
        path_ns = sums(group, np.where(on_path[points], run.graph.delay[points], 0), len(first))
        order = order_by(-path_ns)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        first = first[order]
        return cls(points, rank[group], by[first], name[first], once[first], path_ns[order])

    def take(self, group: int) -> Ints:
        """Return the points of a group."""
        return self.points[self.group == group]


def _findings(
    evidence: Evidence, wanted: Callable[[HostGroups, int], bool], *, realistic: bool = True, once: bool | None = False
) -> Iterator[Finding]:
    """Yield a finding for each of the largest groups that are wanted."""
    groups, run = evidence.host_groups, evidence.run
    least, count = MIN_PATH * run.span, 0
    for group in range(len(groups.path_ns)):
        if groups.path_ns[group] < least or count == MOST:
            return
        if (once is None or bool(groups.once[group]) == once) and wanted(groups, group):
            count += 1
            yield _finding(evidence, group, realistic=realistic)


def _finding(evidence: Evidence, group: int, *, realistic: bool) -> Finding:
    groups, run = evidence.host_groups, evidence.run
    points = groups.take(group)
    table = _table(evidence, points)
    named = " and ".join(dict.fromkeys(filter(None, table["call"].tolist()[:2]))) if groups.kind[group] == OP else ""
    figures = {
        "what": group_name(evidence, group) + (f" ({named})" if named else ""),
        "host_ns": int(run.graph.delay[points].sum()),
        "path_ns": int(groups.path_ns[group]),
        "path_share": int(groups.path_ns[group]) / max(1, run.span),
    }

    def change(draft: Draft) -> None:
        draft.remove(points)
        draft.cut(points)

    return Finding(
        figures, table, change=change if realistic else None, limit=change, once=bool(groups.once[group]), is_named=True
    )


def group_name(evidence: Evidence, group: int) -> str:
    """Return what a group of host time is called."""
    groups, capture = evidence.host_groups, evidence.capture
    kind, name = int(groups.kind[group]), int(groups.name[group])
    if kind == OP:
        return str(folded_ops(evidence.attributed.ops)[name])
    if kind == CUDA:
        return str(capture.launches["name"].cat.categories[name])
    if kind == OS:
        return str(capture.system_calls["name"].cat.categories[name])
    return CODE_NAME


def _table(evidence: Evidence, points: Ints):  # noqa: ANN202 (a frame)
    """Return op, path and call of the time before some points of the host."""
    run, capture = evidence.run, evidence.capture
    here = points - run.hosts
    node, call, system = run.host.node[here], run.host.call[here], run.host.system[here]
    launches, systems = capture.launches["name"], capture.system_calls["name"]
    names = [*map(str, launches.cat.categories), *map(str, systems.cat.categories)]
    code = np.where(
        call != NONE,
        np.append(frames.codes(launches), NONE)[call],
        np.where(
            system != NONE, np.append(frames.codes(systems), NONE)[system] + len(launches.cat.categories), NONE
        ),
    )
    columns = rule.op_and_path(evidence, node.astype(np.int64))
    example = np.append(evidence.attributed.attribution.nesting.range, NONE)[node]
    return rule.group_rows({**columns, "call": (code, names)}, run.graph.delay[points], example)


# -- Which groups are whose


def _is_loading(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    kind, name = groups.kind[group], groups.name[group]
    if kind == OP:
        return bool(is_data_loading(evidence.attributed)[name])
    return bool(kind == OS and not groups.once[group] and _waits(evidence, group))


def _waits(evidence: Evidence, group: int) -> bool:
    """Return whether a call of the operating system waits for another thread or process."""
    name = group_name(evidence, group)
    return WAITING.fullmatch(name) is not None and not SERVING.fullmatch(name) and "mutex" not in name


def _is_compiling(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    kind, name = groups.kind[group], groups.name[group]
    if kind == OP:
        return bool(is_compilation(evidence.attributed)[name])
    return bool(kind == CUDA and COMPILING.match(group_name(evidence, group)))


def _allocates(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    return bool(groups.kind[group] == CUDA and ALLOCATING.match(group_name(evidence, group)))


def _is_served(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    """Return whether a group waits for requests."""
    return bool(groups.kind[group] == OS and SERVING.fullmatch(group_name(evidence, group)))


def _is_other(evidence: Evidence, groups: HostGroups, group: int) -> bool:
    return not any(
        test(evidence, groups, group) for test in (_is_loading, _is_compiling, _allocates, _is_served)
    )


def waits_for_data(evidence: Evidence) -> Iterator[Finding]:
    """Yield what keeps the run waiting for data that other processes or threads load."""
    for finding in _findings(evidence, lambda groups, group: _is_loading(evidence, groups, group)):
        if not _loads_itself(finding):
            yield finding


def loads_itself(evidence: Evidence) -> Iterator[Finding]:
    """Yield the loading of data by the thread that launches work."""
    for finding in _findings(evidence, lambda groups, group: _is_loading(evidence, groups, group)):
        if _loads_itself(finding):
            yield finding


def _loads_itself(finding: Finding) -> bool:
    """Return whether the host works while it loads, rather than waits."""
    table = finding.evidence
    if SINGLE_PROCESS.fullmatch(str(finding.figures["what"])):
        return True
    waits = [WAITING.fullmatch(str(call)) is not None for call in table["call"]]
    return int(table["total_ns"][waits].sum()) * 2 < int(table["total_ns"].sum())


def compiles(evidence: Evidence) -> Iterator[Finding]:
    """Yield compilation and loading of modules within iterations."""
    yield from _findings(evidence, lambda groups, group: _is_compiling(evidence, groups, group))


def allocates(evidence: Evidence) -> Iterator[Finding]:
    """Yield allocations and releases of memory within iterations."""
    yield from _findings(evidence, lambda groups, group: _allocates(evidence, groups, group))


def works(evidence: Evidence) -> Iterator[Finding]:
    """Yield what else the host does within iterations while the run waits for it."""
    yield from _findings(evidence, lambda groups, group: _is_other(evidence, groups, group))


def paid_once(evidence: Evidence) -> Iterator[Finding]:
    """Yield what the host does before, between and behind iterations; what is in no range has no estimate."""

    def is_known(groups: HostGroups, group: int) -> bool:
        name = group_name(evidence, group)
        kind = groups.kind[group]
        return bool(kind == OP or (kind == CUDA and COMPILING.match(name)) or (kind == OS and not _waits(evidence, group)))

    yield from _findings(evidence, is_known, once=True)
    yield from _findings(evidence, lambda groups, group: not is_known(groups, group), once=True, realistic=False)


TEXT = "the run waits for {what} for {path_ns}, {path_share} of it; in all it takes {host_ns}"
ESTIMATE = "the run without it"

RULES = (
    Rule(
        "data-loading",
        "The run waits for data",
        "a thread waits for a loader on the critical path of iterations",
        TEXT,
        "give the loader more workers (num_workers) and batches ahead (prefetch_factor), and pin_memory=True; decode and augment on the GPU",
        "the run without these waits",
        TENSORBOARD,
        ("work", "graph"),
        waits_for_data,
        "load in more threads or processes, and further ahead",
    ),
    Rule(
        "single-process-loader",
        "The thread that launches work loads the data itself",
        "loading of data is on the critical path of iterations, and its thread does not wait in it",
        TEXT,
        "use DataLoader(num_workers=4) or more: workers load data while the GPU runs",
        "the run without this code",
        TORCH_TIDY,
        ("work", "ops", "graph"),
        loads_itself,
        "load in other threads or processes, ahead",
    ),
    Rule(
        "recompilation",
        "Code is compiled or loaded within iterations",
        "ops or API calls that compile or load code are on the critical path of iterations",
        TEXT,
        "keep shapes constant, or use torch.compile(dynamic=True); TORCH_LOGS=recompiles shows the reasons; load modules before the loop (CUDA_MODULE_LOADING=EAGER)",
        ESTIMATE,
        NSIGHT_BRIDGE,
        ("work", "calls", "graph"),
        compiles,
    ),
    Rule(
        "allocation",
        "Memory is allocated or released within iterations",
        "calls that allocate or release memory of the device, or pinned memory, are on the critical path of iterations",
        TEXT,
        "allocate once, before the loop; use a pool (PyTorch's caching allocator, cudaMallocAsync)",
        ESTIMATE,
        NSIGHT_BRIDGE,
        ("work", "calls", "graph"),
        allocates,
    ),
    Rule(
        "host-bound",
        "The run waits for the host",
        "code of an op that launches nothing, a call of the operating system, another API call or code outside of ops is on the critical path of iterations",
        TEXT,
        "make it faster, run it in another thread or process, or while the GPU has enough work queued",
        ESTIMATE,
        NSIGHT_BRIDGE,
        ("work", "graph"),
        works,
    ),
    Rule(
        "paid-once",
        "The run waits for what happens once",
        "host code before, between and behind iterations is on the critical path",
        TEXT,
        "keep what it makes in a cache, do it in parallel, or leave it out; a longer run pays it once, too",
        "the run without it, where an op or a call is known that could be left out",
        NSIGHT_BRIDGE,
        ("work", "graph"),
        paid_once,
    ),
)

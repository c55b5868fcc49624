"""Where to annotate: the places of a program whose ranges would own the GPU time that is in no op.

A place is a function or a line of the user's program that stands on the call stacks of the CUDA calls, or,
where these were not recorded, on the samples of the CPU around them; or the iterations that the work
repeats. docs/annotate.md has the rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from bridge.analyze.core.groups import counts, highest, lowest, sums
from bridge.analyze.core.source_lines import (
    PYTHON_FUNCTION,
    call_tree,
    frames_of_program,
)
from bridge.analyze.run.account import RunClocks
from bridge.analyze.run.parts import Parts
from bridge.importers import frames
from bridge.importers.arrays import lookup, scatter
from bridge.importers.call_chains import Nodes, python_frame
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, search_groups
from bridge.join.attributed import NEVER_ISSUED, AttributedCapture
from bridge.join.forest import levels, nearest
from bridge.join.loops import Loop
from bridge.join.steps import RANGE
from bridge.knowledge.libraries import framework_of
from bridge.knowledge.suggestions import unknown_name

LEAST = 20  # a place holds at least one in so many ns of the work whose stacks are known
MOST_FRAMES = 1_000  # of a stack, the innermost
MOST_GAP_NS = 10_000_000  # between the samples around a call
SURE = 10  # a confidence holds for all but one in so many ns
MOST_TURNS = 10  # of one in so many iterations the lines may go back
EVIDENCE = STACK, SAMPLES, REPETITION = ("call stack", "samples", "repetition")
CONFIDENCE = HIGH, MEDIUM, LOW = ("high", "medium", "low")
KINDS = FUNCTION, LINES, ITERATION, PART = ("function", "lines", "iteration", "part")
VERDICTS = ANNOTATED, ENOUGH, THIN = ("annotated", "enough", "thin")
PYTHON, NATIVE = ("python", "native")
UNNAMED = ("<lambda>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")  # no place for a range
MODULE = "<module>"


@record
class Candidate:
    """A place to annotate, and the work in no op that it would own.

    What is not known is '' or -1. ``file`` of native code is its module. ``line`` and ``last_line`` are those seen on
    the stacks, or those that an iteration holds. ``part`` is the part of the run that the place is around, and
    ``first_work`` and ``last_work`` are what it launches. ``gpu_ns`` and ``activities`` are of the work that no place
    within holds, ``total_ns`` is the time of all. ``calls`` of an iteration are how many there are.
    """

    kind: str
    language: str
    function: str
    file: str
    line: int
    last_line: int
    part: str
    first_work: str
    last_work: str
    gpu_ns: int
    total_ns: int
    activities: int
    calls: int
    evidence: tuple[str, ...]
    confidence: str


@record
class Annotations:
    """Where a program lacks ranges.

    ``gpu_ns`` is the sum of ``in_ops_ns``, of the places' ``gpu_ns``, and of ``unplaced_ns``. ``stack_ns`` and
    ``sample_ns`` are the time of the work in no op of which call stacks or samples tell a frame of the program.
    ``framework`` is one that ``bridge run --auto`` annotates, ``script`` the file in which most of that work begins; ''
    where unknown. ``verdict`` is enough if places of high or medium confidence own half of the work in no op. Work of
    the ops ``inside`` counts as work in no op. ``coarse`` is an op that owns most work where nothing is to add, or ''.
    """

    gpu_ns: int
    in_ops_ns: int
    unplaced_ns: int
    stack_ns: int
    sample_ns: int
    verdict: str
    framework: str
    script: str
    places: tuple[Candidate, ...]
    inside: tuple[str, ...] = ()
    coarse: str = ""


# -- Where the calls of the work were made


@record
class Work:
    """The work in no op: its activities, their time, and the paths of frames that their calls were made on.

    ``path`` is a row of ``leaf`` and ``by_samples``, or NONE.
    """

    rows: Ints
    time: Ints
    path: Ints
    leaf: Ints
    by_samples: Flags

    @classmethod
    def of(
        cls, attributed: AttributedCapture, nodes: Nodes, leaf: Ints, inside: Sequence[int] = ()
    ) -> Work:
        """Return the work in no op, or in those ``inside``; ``leaf`` is the innermost node of each call's stack."""
        is_meant = np.isin(attributed.activity_op, [NONE, *inside])
        rows = np.flatnonzero(attributed.counted & is_meant)
        call = attributed.attribution.launch[rows]
        of_program = nearest(nodes.parent, np.logical_or(*frames_for_ranges(nodes))) != NONE
        node = lookup(leaf, call)
        node = np.where(lookup(of_program, node, False), node, NONE)
        sampled = np.full(len(leaf), NONE)
        missing = np.unique(call[(node == NONE) & (call != NONE)])
        sampled[missing] = between_samples(attributed, nodes, missing)
        by_samples = node == NONE
        node = np.where(by_samples, lookup(sampled, call), node)
        node = np.where(lookup(of_program, node, False), node, NONE)
        path, first = number_groups(node, by_samples.astype(np.int64))
        kept = np.flatnonzero(node[first] != NONE)
        number = scatter(np.arange(len(kept)), kept, len(first))
        return cls(
            rows=rows,
            time=attributed.duration[rows],
            path=lookup(number, path),
            leaf=node[first][kept],
            by_samples=by_samples[first][kept],
        )

    @property
    def path_ns(self) -> Ints:
        """The time of the work of each path."""
        known = self.path != NONE
        return sums(self.path[known], self.time[known], len(self.leaf))


def between_samples(attributed: AttributedCapture, nodes: Nodes, calls: Ints) -> Ints:
    """Return the innermost frame that the samples before and after each API call share, on its thread, or NONE."""
    samples, launches = attributed.capture.chains.samples, attributed.capture.launches
    rows = np.flatnonzero(samples.chain != NONE)
    if not len(rows) or not len(calls):
        return np.full(len(calls), NONE)
    of_sample, of_call = frames.key_codes(
        (samples.report[rows], samples.thread[rows]),
        (launches.report[calls], launches.thread[calls]),
    )
    order = order_by(of_sample, samples.time[rows])
    rows, of_sample = rows[order], of_sample[order]
    time, start = samples.time[rows], launches.start[calls]
    after = search_groups(of_sample, time, of_call, start, side="right")
    before, last = np.maximum(after - 1, 0), np.minimum(after, len(rows) - 1)
    is_between = (after > 0) & (after < len(rows))
    is_between &= (of_sample[before] == of_call) & (of_sample[last] == of_call)
    is_between &= time[last] - time[before] <= MOST_GAP_NS
    pair, first = number_groups(samples.chain[rows[before]], samples.chain[rows[last]])
    common = common_frames(nodes, *(samples.chain[rows[at]][first] for at in (before, last)))
    return np.where(is_between, common[pair], NONE)


def common_frames(nodes: Nodes, one: Ints, other: Ints) -> Ints:
    """Return the innermost node of ``one`` up to which both paths are of the same functions, or NONE."""
    code, _ = number_groups(nodes.function.codes, nodes.file.codes)
    level = levels(nodes.parent)
    result = np.full(len(one), NONE)
    for depth in range(int(level.max(initial=-1)), -1, -1):
        there = [lookup(level, node) >= depth for node in (one, other)]
        is_same = there[0] & there[1] & (lookup(code, one) == lookup(code, other))
        result = np.where(is_same, np.where(result == NONE, one, result), NONE)
        one, other = (
            np.where(is_there, lookup(nodes.parent, node), node)
            for is_there, node in zip(there, (one, other), strict=True)
        )
    return result


# -- What stands on the paths


def frames_for_ranges(nodes: Nodes) -> tuple[Flags, Flags]:
    """Return which nodes are frames of the program that a range can be in: of Python, and native ones."""
    is_python, is_native = frames_of_program(nodes)
    is_named = ~nodes.function.among(*UNNAMED, "")
    return is_python & is_named, is_native & is_named


@record
class Frames:
    """The frames of the program on the paths: a row per path and place.

    ``rank`` grows inward, by four per frame; a line is two behind its function. Of each place ``node`` is one of its
    nodes, ``function`` a number, ``is_line`` tells whether it is a line of that, ``is_module`` whether it is a module;
    ``line`` and ``last_line`` are the first and the last one seen.
    """

    path: Ints
    place: Ints
    rank: Ints
    node: Ints
    function: Ints
    is_line: Flags
    is_module: Flags
    line: Ints
    last_line: Ints

    @classmethod
    def of(cls, nodes: Nodes, work: Work) -> Frames:
        """Return the functions on each path and, of call stacks of Python, their lines."""
        path, node, depth = on_paths(nodes, work)
        function = functions_by_name(nodes)
        has_line = (nodes.python & (nodes.line > 0))[node] & ~work.by_samples[path]
        parts = [np.arange(len(node)), np.flatnonzero(has_line)]
        row, kind = np.concatenate(parts), np.repeat((0, 1), [len(part) for part in parts])
        of_line = np.where(kind == 1, nodes.line[node[row]], NONE)
        place, first = number_groups(function[node[row]], of_line)
        line = nodes.line[node[row]]
        seen = ~work.by_samples[path[row]] & (line > 0)
        size = len(first)
        return cls(
            path=path[row],
            place=place,
            rank=4 * depth[row] + 2 * kind,
            node=node[row][first],
            function=function[node[row]][first],
            is_module=nodes.function.among(MODULE)[node[row]][first] & (kind[first] == 0),
            is_line=kind[first] == 1,
            line=lowest(place[seen], line[seen], size),
            last_line=highest(place[seen], line[seen], size),
        )

    def without_recursion(self) -> tuple[Ints, Ints]:
        """Return each path and place once."""
        _, first = number_groups(self.path, self.place)
        return self.path[first], self.place[first]


def functions_by_name(nodes: Nodes) -> Ints:
    """Return the function of each node, as a number in the order of names and files."""
    function, first = number_groups(nodes.function.codes, nodes.file.codes)
    names = list(zip(nodes.function[first], nodes.file[first], strict=True))
    order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
    return lookup(scatter(np.arange(len(order)), order, len(order)), function)


def on_paths(nodes: Nodes, work: Work) -> tuple[Ints, Ints, Ints]:
    """Return path, node and depth of the frames of the program: of Python, or native where a path has none of these."""
    current, path = work.leaf, np.arange(len(work.leaf))
    found: list[tuple[Ints, Ints]] = []
    while len(current) and len(found) < MOST_FRAMES:
        found.append((path, current))
        above = nodes.parent[current]
        current, path = above[above != NONE], path[above != NONE]
    none = np.empty(0, np.int64)
    path, node = (
        np.concatenate([none, *parts]) for parts in zip((none, none), *found, strict=True)
    )
    is_python, is_native = frames_for_ranges(nodes)
    has_python = counts(path[is_python[node]], len(work.leaf)) > 0
    kept = np.where(has_python[path], is_python[node], is_native[node])
    path, node = path[kept], node[kept]
    return path, node, levels(nodes.parent)[node]


def chosen(found: Frames, time: Ints) -> list[int]:
    """Return the places that split the work of paths, of which ``time`` is given.

    First those that hold at most half of it, the largest first, of equal ones functions and the outermost. Then larger
    ones that do not hold nearly all, of equal ones the innermost, a function before its lines. Each holds a twentieth
    that none before it does; the last tie is by name. If there is none, it is the innermost of those that hold most.
    """
    path, place = found.without_recursion()
    size, whole, left = len(found.node), int(time.sum()), time.copy()
    held, result = sums(place, time[path], size), list[int]()
    outer = lowest(found.place, found.rank, size)
    outer = -outer - np.where(found.is_line, outer.max(initial=0) + 1, 0)
    inner = 2 * (highest(found.place, found.rank, size) // 4) - found.is_line
    is_part, is_most = 2 * held <= whole, LEAST * held >= (LEAST - 1) * whole
    for fits, order in ((is_part, outer), (~is_part & ~is_most, inner), (is_most, inner)):
        if result and fits is is_most:
            break
        while True:
            rest = np.where(fits & ~found.is_module, sums(place, left[path], size), 0)
            most = int(rest.max(initial=0))
            if not most or LEAST * most < whole:
                break
            best = np.flatnonzero(rest == most)
            result.append(int(best[np.argmax(order[best])]))
            left[path[place == result[-1]]] = 0
    return result


# -- Parts of the run


@record
class Part:
    """The work in no op of a part of the run: of the iterations of a loop that no range marks, or of what lies around.

    ``inside`` tells for each row of `Work` whether it was issued there, ``iteration`` in which iteration, and
    ``issued`` when. ``loop`` is None outside of iterations.
    """

    name: str
    loop: Loop | None
    inside: Flags
    iteration: Ints
    issued: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture, work: Work) -> list[Part]:
        """Return the iterations of each loop, and then the other parts of a run that has any."""
        iteration, issued = attributed.activity_iteration[work.rows], attributed.issued[work.rows]
        when = {"iteration": iteration, "issued": issued}
        number = lookup(attributed.iterations.loop, iteration)
        loops = enumerate(attributed.loops.iterations)
        result = [
            cls(name=ITERATION, loop=loop, inside=number == at, **when)
            for at, loop in loops
            if loop.found_by != RANGE
        ]
        parts = Parts.of_run(attributed)
        if parts is None or not parts.loops:
            return result
        clock = RunClocks.of(attributed).offset[attributed.capture.activities.report[work.rows]]
        began = issued + np.where(issued == NEVER_ISSUED, 0, clock)
        for name, times in parts.by_name.items():
            if name != "iterations":
                edges = np.array(times, np.int64).reshape(-1)
                inside = np.searchsorted(edges, began, side="right") % 2 == 1
                inside &= (number == NONE) & (work.path == NONE)
                result.append(cls(name=name, loop=None, inside=inside, **when))
        return result

    def lines(self, found: Frames, work: Work) -> tuple[Ints, int, int] | None:
        """Return what holds an iteration: the rows of ``found`` that are lines of one function, the first and the last.

        It is the innermost function through which nearly all work of the iterations goes, if its lines do not go back
        within an iteration: else it is called, or turns, several times in each.
        """
        rows = np.flatnonzero(self.inside & (work.path != NONE))
        rows = rows[~work.by_samples[work.path[rows]]]
        time = sums(work.path[rows], work.time[rows], len(work.leaf))
        path, place = found.without_recursion()
        held = sums(place, time[path], len(found.node))
        is_around = (LEAST * held >= (LEAST - 1) * time.sum()) & ~found.is_line & (held > 0)
        if not is_around.any():
            return None
        rank = np.where(is_around, highest(found.place, found.rank, len(found.node)), NONE)
        function = found.function[np.argmax(rank)]
        of_frame = np.flatnonzero((found.is_line & (found.function == function))[found.place])
        line = scatter(found.line[found.place[of_frame]], found.path[of_frame], len(work.leaf))
        rows = rows[line[work.path[rows]] != NONE]
        if not len(rows) or len(np.unique(found.path[of_frame])) < len(of_frame):  # it calls itself
            return None
        rows = rows[order_by(self.iteration[rows], self.issued[rows])]
        seen, turn = line[work.path[rows]], self.iteration[rows]
        goes_back = (seen[1:] < seen[:-1]) & (turn[1:] == turn[:-1])
        turned = len(np.unique(turn[1:][goes_back]))
        first, last = int(seen.min()), int(seen.max())
        if first == last or MOST_TURNS * turned > len(np.unique(turn)):
            return None
        own = found.line[found.place[of_frame]]
        return of_frame[(own >= first) & (own <= last)], first, last

    def ends(self, attributed: AttributedCapture, work: Work) -> tuple[str, str]:
        """Return the names of the first and the last work, of iterations those of the kernels in the middle one."""
        rows = np.flatnonzero(self.inside)
        is_kernel = attributed.capture.activities.kind.among(frames.KERNEL)[work.rows[rows]]
        rows = rows[is_kernel] if self.loop is not None and is_kernel.any() else rows
        if not len(rows):
            return "", ""
        middle = np.sort(self.iteration[rows])[len(rows) // 2]
        rows = rows[self.iteration[rows] == middle]
        rows = work.rows[rows[order_by(self.issued[rows])]]
        name = attributed.capture.activities.name
        return name[int(rows[0])], name[int(rows[-1])]


# -- The places, and the work of each


@record
class Site:
    """A place before its work is counted: the rows of `Frames` that it is, and the part of the run that it is around.

    ``line`` and ``last_line`` are the first and the last one that it holds. Without rows no stack tells where it is.
    """

    rows: Ints
    line: int = NONE
    last_line: int = NONE
    part: Part | None = None


def sites(attributed: AttributedCapture, work: Work, found: Frames) -> Iterator[Site]:
    """Yield the iterations of each loop, then the places that split the work."""
    for one in Part.of(attributed, work):
        lines = one.lines(found, work) if one.loop else None
        if lines is not None:
            yield Site(*lines, part=one)
        elif LEAST * int(work.time[one.inside].sum()) >= int(work.time.sum()) > 0:
            yield Site(np.empty(0, np.int64), part=one)
    for place in chosen(found, work.path_ns):
        first, last = int(found.line[place]), int(found.last_line[place])
        yield Site(np.flatnonzero(found.place == place), first, last)


def owners(listed: Sequence[Site], work: Work, found: Frames) -> Ints:
    """Return which site owns each row of the work: the innermost on its path, else the iteration; NONE for none."""
    rows = np.concatenate([np.empty(0, np.int64), *(site.rows for site in listed)])
    site = np.repeat(np.arange(len(listed)), [len(site.rows) for site in listed])
    rank = found.rank[rows] - np.array([site.part is not None for site in listed], np.int64)[site]
    order = order_by(rank)
    owner = lookup(scatter(site[order], found.path[rows[order]], len(work.leaf)), work.path)
    for at, one in enumerate(listed):
        if one.part is not None:
            owner = np.where((owner == NONE) & one.part.inside, at, owner)
    return owner


@record
class Account:
    """What the candidates are made of: the sites, and which of them owns each row of the work."""

    attributed: AttributedCapture
    nodes: Nodes
    work: Work
    found: Frames
    sites: tuple[Site, ...]
    owner: Ints
    framework: str

    @classmethod
    def of(cls, attributed: AttributedCapture, nodes: Nodes, work: Work) -> Account:
        """Return the account of a capture; ``nodes`` are those of its stacks."""
        found = Frames.of(nodes, work)
        listed = tuple(sites(attributed, work, found))
        return cls(
            attributed=attributed,
            nodes=nodes,
            work=work,
            found=found,
            sites=listed,
            owner=owners(listed, work, found),
            framework=framework_of(
                [*attributed.capture.activities.full_name.used, *nodes.file.used]
            ),
        )

    def candidates(self) -> tuple[Candidate, ...]:
        """Return the places: iterations first, then by the time that is in no place within; none without any."""
        made = [self._candidate(at, site) for at, site in enumerate(self.sites)]
        kept = [one for one in made if one.gpu_ns or one.kind == ITERATION]
        return tuple(sorted(kept, key=lambda one: (one.kind != ITERATION, -one.gpu_ns)))

    def _candidate(self, at: int, site: Site) -> Candidate:
        work, part = self.work, site.part
        own: Flags = self.owner == at
        is_on_path = np.zeros(len(work.leaf) + 1, bool)
        is_on_path[self.found.path[site.rows]] = True
        held = own | (is_on_path[work.path] if len(site.rows) or part is None else part.inside)
        evidence, confidence = self._evidence(held, site)
        first, last = part.ends(self.attributed, work) if part else ("", "")
        node = int(self.found.node[self.found.place[site.rows[0]]]) if len(site.rows) else NONE
        return Candidate(
            kind=self._kind(site),
            language=self._language(site, node),
            function=self.nodes.function[node] if node != NONE else "",
            file=self.nodes.file[node] if node != NONE else "",
            line=site.line,
            last_line=site.last_line,
            part=part.name if part else "",
            first_work=first,
            last_work=last,
            gpu_ns=int(work.time[own].sum()),
            total_ns=int(work.time[held].sum()),
            activities=int(np.count_nonzero(own)),
            calls=self._calls(node) if part is None else part.loop.count if part.loop else NONE,
            evidence=evidence,
            confidence=confidence,
        )

    def _kind(self, site: Site) -> str:
        if site.part:
            return ITERATION if site.part.loop else PART
        return LINES if self.found.is_line[self.found.place[site.rows[0]]] else FUNCTION

    def _evidence(self, held: Flags, site: Site) -> tuple[tuple[str, ...], str]:
        """Return what tells that the work belongs to a place, and how sure that is."""
        if not len(site.rows):
            return (REPETITION,), LOW
        path, time = self.work.path[held], self.work.time[held]
        by_samples = np.append(self.work.by_samples, False)[path]
        known = int(time[path != NONE].sum())
        sampled, whole = int(time[by_samples].sum()), int(time.sum())
        parts = (known > sampled, sampled > 0, site.part is not None)
        evidence = tuple(name for name, is_used in zip(EVIDENCE, parts, strict=True) if is_used)
        if SURE * (known - sampled) >= (SURE - 1) * whole:
            return evidence, HIGH
        return evidence, MEDIUM if SURE * known >= (SURE - 1) * whole else LOW

    def _language(self, site: Site, node: int) -> str:
        if node != NONE:
            return PYTHON if self.nodes.python[node] else NATIVE
        if self.framework or self.nodes.python.any():
            return PYTHON
        processes = self.attributed.capture.processes
        rows = self.work.rows[site.part.inside] if site.part else self.work.rows
        is_meant = np.isin(processes.process, self.attributed.capture.activities.process[rows])
        is_python = any(name.startswith(PYTHON) for name in processes.name[is_meant])
        return PYTHON if is_python else NATIVE

    def _calls(self, node: int) -> int:
        """Return how often a function was called, which PyTorch's profiler tells; -1 where nobody does."""
        ranges = self.attributed.capture.ranges
        if PYTHON_FUNCTION not in ranges.domain_name.texts:
            return NONE
        function, file = self.nodes.function[node], self.nodes.file[node]
        parsed = map(python_frame, ranges.name.texts)
        is_it = np.array(
            [one is not None and (one.function, one.file) == (function, file) for one in parsed]
        )
        of_functions = ranges.domain_name.among(PYTHON_FUNCTION)
        return int(np.count_nonzero(lookup(is_it, ranges.name.codes, False) & of_functions)) or NONE

    def script(self) -> str:
        """Return the file that most of the work begins in, '' where no stack of Python tells it."""
        path, node, depth = on_paths(self.nodes, self.work)
        is_python = self.nodes.python[node]
        path, node, depth = path[is_python], node[is_python], depth[is_python]
        order = order_by(-depth)
        first = scatter(node[order], path[order], len(self.work.leaf))
        known = first != NONE
        if not known.any():
            return ""
        file = self.nodes.file.codes[first[known]]
        return self.nodes.file.texts[
            int(np.argmax(sums(file, self.work.path_ns[known], int(file.max()) + 1)))
        ]


# -- The answer


def places_to_annotate(attributed: AttributedCapture, inside: Sequence[str] = ()) -> Annotations:
    """Return where ranges would own the work that is in no op, or in none but those ``inside``.

    Raises ValueError, with a message for the user, for an op that is not in the capture.
    """
    unknown = next((op for op in inside if op not in attributed.ops), None)
    if unknown is not None:
        shown_by = "bridge report REPORT --by op"
        raise ValueError(unknown_name("op", unknown, attributed.ops, shown_by))
    tree = call_tree(attributed)
    work = Work.of(attributed, tree.nodes, tree.leaf, [attributed.ops.index(op) for op in inside])
    account = Account.of(attributed, tree.nodes, work)
    whole, without = int(attributed.duration[attributed.counted].sum()), int(work.time.sum())
    is_annotated = not without or LEAST * without < whole
    places = () if is_annotated else account.candidates()
    placed = sum(place.gpu_ns for place in places)
    sure = sum(place.gpu_ns for place in places if place.confidence != LOW)
    is_known, by_samples = work.path != NONE, np.append(work.by_samples, False)[work.path]
    return Annotations(
        gpu_ns=whole,
        in_ops_ns=whole - without,
        unplaced_ns=without - placed,
        stack_ns=int(work.time[is_known & ~by_samples].sum()),
        sample_ns=int(work.time[by_samples].sum()),
        verdict=ANNOTATED if is_annotated else ENOUGH if 2 * sure >= without else THIN,
        framework=account.framework,
        script=account.script(),
        places=places,
        inside=tuple(inside),
        coarse=coarse_op(attributed, tree.leaf) if is_annotated else "",
    )


def coarse_op(attributed: AttributedCapture, leaf: Ints) -> str:
    """Return the op that owns over half of all work, if stacks of its calls may split it; '' if there is none."""
    op, launch = attributed.activity_op, attributed.attribution.launch
    time = sums(op[op != NONE], attributed.duration[op != NONE], len(attributed.ops))
    most = int(np.argmax(time)) if len(time) else NONE
    if most == NONE or 2 * time[most] <= attributed.whole_ns:
        return ""
    has_stack = lookup(leaf, launch[op == most]) != NONE
    return attributed.ops[most] if has_stack.any() else ""

"""A capture with every activity attributed to an op: the input of all analyses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import factorize, lookup, positions
from bridge.importers.capture import MAX_SPAN_NS, Capture, check_totals, total_ns
from bridge.importers.frames import CALL_ID, CALL_ID_SHIFT, Names
from bridge.importers.records import record
from bridge.join.adoption import with_autograd_work, with_guesses
from bridge.join.arrays import NONE, Flags, Ints, number_groups, repeated
from bridge.join.attribution import (
    INVALID_TIME,
    Activities,
    Attribution,
    Creations,
    Launches,
    NodeEvents,
    Ranges,
    calls_of,
    creation_of,
    log_attribution,
)
from bridge.join.autograd import Directions
from bridge.join.families import chosen_names
from bridge.join.hierarchy import CALLER, with_callers, with_forward_ranges
from bridge.join.nesting import Modules, Nesting
from bridge.join.options import (
    AttributionOptions,
    Rule,
    accepted_ranges,
    ops_of,
    with_domain_prefix,
    with_ranks,
)
from bridge.join.paths import paths
from bridge.join.phases import Records, attribute_with_phases
from bridge.join.steps import Steps
from bridge.knowledge.kernels import Rules, readable_names
from bridge.knowledge.suggestions import unknown_name

if TYPE_CHECKING:
    from bridge.join.loops import Evidence, LoopTree

# -- The rows that are counted, for example those of a time window


@record
class RowSelection:
    """Which rows of each of six frames are counted, one flag per row, and the time of the selection.

    ``start`` and ``end`` are per report, in ns: of a window of time, or of the hull of chosen ranges; the end is before
    the start in reports of which nothing was chosen. ``is_window`` tells that work is cut at both; else that of the
    selection may lie before the start or after the end.
    """

    activities: Flags
    ranges: Flags
    launches: Flags
    waits: Flags
    memory: Flags
    system_calls: Flags
    start: Ints
    end: Ints
    is_window: bool = False

    @classmethod
    def of(
        cls, rows: Mapping[str, Flags], start: Ints, end: Ints, *, is_window: bool = False
    ) -> Self:
        """Return the selection of the rows of frames by name."""
        return cls(**rows, start=start, end=end, is_window=is_window)

    def __and__(self, other: RowSelection) -> RowSelection:
        """Return the rows that both selections contain."""
        return RowSelection(
            activities=self.activities & other.activities,
            ranges=self.ranges & other.ranges,
            launches=self.launches & other.launches,
            waits=self.waits & other.waits,
            memory=self.memory & other.memory,
            system_calls=self.system_calls & other.system_calls,
            start=np.maximum(self.start, other.start),
            end=np.minimum(self.end, other.end),
            is_window=self.is_window and other.is_window,
        )


# -- The op of every range: its name without the per-call part, or its whole text


def _check_steps(capture: Capture, wanted: str | None) -> None:
    """Refuse a name of steps that no range has."""
    names = list(capture.ranges.name.texts)
    if wanted is not None and not chosen_names(names, wanted).any():
        shown_by = "bridge report REPORT --by range --names raw"  # ops lack the numbers of families
        raise ValueError(unknown_name("range", wanted, names, shown_by))


def op_names(capture: Capture, rules: Sequence[Rule]) -> tuple[Sequence[str], Ints]:
    """Return the distinct ops, and each range's code into them.

    ``rules`` come before built-in rules.
    """
    column = capture.ranges.name
    ops = Names.of(ops_of(column.texts, rules))
    return ops.texts, lookup(ops.codes, column.codes)


def raw_names(capture: Capture) -> tuple[Sequence[str], Ints]:
    """Return the distinct texts, with ``domain:`` before them, and each range's code into them."""
    text, texts = capture.texts.factorize()
    domain = capture.ranges.domain_name
    domains = max(1, len(domain.texts))
    text = lookup(text, capture.ranges.text)
    codes, distinct = factorize(text * domains + domain.codes)
    pairs = [divmod(pair, domains) for pair in distinct.tolist()]
    named = Names.of(with_domain_prefix(domain.texts[d], texts[t]) for t, d in pairs)
    return named.texts, named.codes[codes]


# -- The attributed capture


T = TypeVar("T")
Options = ParamSpec("Options")
DEFAULT = AttributionOptions()
KEY = ("report", "process", "correlation")
NEVER_ISSUED = int(np.iinfo(np.int64).min)
DIRECTIONS = FORWARD, BACKWARD, BOTH = ("forward", "backward", "both")


@record
class AttributedCapture:
    """A capture, its attribution, and the op of every range.

    ``ops`` are the distinct ops; ``op`` is a code into them per range, NONE for a range that is not
    an op (a phase beside push/pop ranges, or a range of a library). Analyses count only the rows of
    one ``direction`` and of the ``selection``. ``kernel_rules`` are the user's rules for classes of
    kernels. ``place`` is the index of the first report in the whole run. ``parent`` is the node
    around each node in the `hierarchy`. ``notes`` are lines for the user about what the ops are.
    ``step_name`` names the ranges that are steps, None if they are to be found. ``unselected`` is the capture before a
    selection, whose work is not cut; None where nothing is selected.
    """

    capture: Capture
    attribution: Attribution
    ops: tuple[str, ...]
    op: Ints
    parent: Ints
    direction: str = BOTH
    selection: RowSelection | None = None
    kernel_rules: Rules | None = None
    place: int = 0
    backward_under: str = CALLER
    notes: tuple[str, ...] = ()
    step_name: str | None = None
    unselected: Self | None = None

    @classmethod
    def of(cls, capture: Capture, options: AttributionOptions = DEFAULT) -> Self:
        """Attribute the activities of a capture to ops, or to raw texts (``options.raw``).

        Raises ValueError with a message for the user if an option names nothing in the capture.
        """
        _check_steps(capture, options.steps)
        capture = with_ranks(capture, options.rank_from)
        names, codes = raw_names(capture) if options.raw else op_names(capture, options.op_rules)
        launches = _filled(Launches, capture.launches)
        accepted = accepted_ranges(capture.ranges, options.only, options.exclude_domains)
        records = Records(
            _filled(Activities, capture.activities),
            launches,
            _filled(Ranges, capture.ranges, is_op=accepted),
            _filled(Creations, capture.graph_nodes, event=_creations(capture)),
        )
        result = attribute_with_phases(
            capture,
            records,
            prefer_capture=options.prefer_capture,
            phases=not (options.raw or options.is_window),
        )
        attribution, is_op = result.attribution, result.is_op
        if options.adopts_autograd:
            attribution = with_autograd_work(
                capture, attribution, launches, is_window=options.is_window
            )
        if options.adopt:
            attribution = with_guesses(attribution, capture, launches)
        op = np.where(is_op, codes, NONE)
        _check_delays(capture, attribution.launch)
        log_attribution(capture.source, is_op, attribution)
        return cls(
            capture=capture,
            attribution=attribution,
            ops=tuple(names),
            op=op,
            parent=attribution.nesting.parent
            if options.raw
            else with_callers(capture, attribution.nesting),
            kernel_rules=options.kernel_rules,
            place=options.place,
            backward_under=CALLER if options.raw else options.backward_under,
            notes=result.notes,
            step_name=options.steps,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle: without `results`, whose functions another process does not know."""
        return {name: value for name, value in vars(self).items() if name != "results"}

    def within(self, selection: RowSelection) -> AttributedCapture:
        """Return the capture with only the rows of ``selection`` counted, and work cut at the edges of a window.

        The attribution does not change.
        """
        capture = _cut(self.capture, selection) if selection.is_window else self.capture
        both = selection if self.selection is None else self.selection & selection
        return replace(self, capture=capture, selection=both, unselected=self.unselected or self)

    def only(self, direction: str) -> AttributedCapture:
        """Return the capture with only one direction counted: "forward", "backward", or "both".

        The accounting and the paths do not change. Raises ValueError for another word.
        """
        if direction not in DIRECTIONS:
            raise ValueError(unknown_name("direction", direction, DIRECTIONS))
        return self if direction == self.direction else replace(self, direction=direction)

    @cached_property
    def results(self) -> dict[tuple[object, ...], Any]:
        """What functions marked with `once` returned for this capture, by function and arguments."""
        return {}

    def forget(self) -> None:
        """Give back the memory of all that was computed from the fields; it is computed again on demand."""
        for name in self.__dict__.keys() - {field.name for field in fields(self)}:
            del self.__dict__[name]

    @cached_property
    def duration(self) -> Ints:
        """Duration of each activity in ns; 0 if its times are invalid."""
        activities = self.capture.activities
        length = activities.end - activities.start
        return np.where(self.attribution.reason == INVALID_TIME, 0, length)

    @property
    def end(self) -> Ints:
        """End of each activity in ns; its start if its times are invalid."""
        return self.capture.activities.start + self.duration

    @cached_property
    def activity_name(self) -> Names:
        """The readable name of every activity, a categorical."""
        return readable_activities(self.capture.activities)

    @cached_property
    def directions(self) -> Directions:
        """Which ranges are forward and which backward, and the links between them."""
        return Directions.of(self.capture, self.attribution.nesting)

    @cached_property
    def forward_or_own_node(self) -> Ints:
        """The owner of each node's work: the first node of its forward range, or else itself."""
        forward, nesting = self.directions.forward, self.attribution.nesting
        first = nesting.first_nodes(len(self.capture.ranges))
        return np.where(forward == NONE, np.arange(len(nesting)), lookup(first, forward))

    @cached_property
    def hierarchy(self) -> Nesting:
        """The nesting across threads: the backward work of PyTorch's engine is under its caller.

        With ``backward_under`` "forward" it is under the range around its forward range.
        """
        nesting = self.attribution.nesting
        if self.backward_under == CALLER and self.parent is nesting.parent:
            return nesting
        of_forward = self._of_forward
        parent = np.where(of_forward == NONE, self.parent, of_forward)
        return replace(nesting, parent=parent)

    @cached_property
    def hierarchy_names(self) -> tuple[Ints, Sequence[str]]:
        """A name of each node in the hierarchy, as a code, and the names.

        It is the op, or ``backward of`` the forward op, where the node is under the range of that.
        """
        moved = np.flatnonzero(self._of_forward != NONE)
        if not len(moved):
            return self.node_op, self.ops
        code = self.node_op.copy()
        code[moved] = len(self.ops) + self.op[self.directions.forward[moved]]
        return code, [*self.ops, *(f"backward of {op}" for op in self.ops)]

    @cached_property
    def _of_forward(self) -> Ints:
        nesting = self.attribution.nesting
        if self.backward_under == CALLER:
            return np.full(len(nesting), NONE)
        return with_forward_ranges(self.capture, nesting, self.directions)

    @cached_property
    def modules(self) -> Modules:
        """The modules in which ranges run."""
        return Modules.of_report(self.capture, self.hierarchy, self.node_op, self.ops)

    @cached_property
    def module_of_work(self) -> Ints:
        """The node of modules that the work of each node belongs to, or NONE.

        Backward work belongs to the module of its forward range, if that is marked as a module.
        Other ranges have only the work under them.
        """
        modules = self.modules
        of_forward = modules.nearest[self.forward_or_own_node]
        is_marked = lookup(modules.marked, of_forward, False)
        return np.where(is_marked, of_forward, modules.nearest)

    @cached_property
    def steps(self) -> Steps:
        """The steps that ranges mark."""
        from bridge.join.marks import chosen_steps, marked_steps  # most tables need no steps

        if self.step_name is not None:
            return chosen_steps(self.capture, self.step_name)
        return marked_steps(self._evidence)

    @cached_property
    def loops(self) -> LoopTree:
        """What the program repeats: its iterations, the epochs around them and the parts in them.

        If the user names the ranges of steps, those are the iterations.
        """
        from bridge.join.loops import loops_of
        from bridge.join.marks import with_loop_ends, with_optimizer_steps

        if self.step_name is not None:
            return loops_of(self._evidence, self.steps, by_work=False)
        marked = with_loop_ends(self.steps, self.capture, self.op, self.ops)
        # Without a timeline repetitions would be replays of single kernels.
        is_timeline = all(facts.timeline for facts in self.capture.facts)
        if is_timeline:
            marked = with_optimizer_steps(marked, self._evidence, self.op)
        return loops_of(self._evidence, marked, by_work=is_timeline)

    @property
    def _evidence(self) -> Evidence:
        """What steps and loops are found in; it is not kept, as little else needs it."""
        from bridge.join.loops import Evidence

        attribution = self.attribution
        return Evidence.of(self.capture, attribution.nesting, attribution.launch, self.duration)

    @property
    def iterations(self) -> Steps:
        """The instances of the loops of iterations, an entry per process."""
        return self.loops.steps

    def why_no_iterations(self) -> str:
        """Return in a clause why a capture has no iterations, and what repeats instead."""
        return self.loops.why

    @cached_property
    def issued(self) -> Ints:
        """When the API call of each activity began, in ns; its own start in a process without calls of work.

        It is `NEVER_ISSUED` for other work without a call: that was launched before the recording began.
        """
        whole = self.unselected or self  # a window cuts the work of `capture`
        activities, launch = whole.capture.activities, self.attribution.launch
        start = activities.start
        issued: Ints = lookup(self.capture.launches.start, launch, 0)
        if not (launch == NONE).any():  # as in most captures
            return issued
        home, _ = number_groups(activities.report, activities.process)
        has_calls = np.zeros(int(home.max()) + 1, bool)
        has_calls[home[launch != NONE]] = True
        return np.where(launch != NONE, issued, np.where(has_calls[home], NEVER_ISSUED, start))

    @cached_property
    def activity_step(self) -> Ints:
        """The step in which each activity was issued, or NONE."""
        return self._issued_in(self.steps)

    @cached_property
    def activity_iteration(self) -> Ints:
        """The row of `iterations` in which each activity was issued, or NONE."""
        return self._issued_in(self.iterations)

    def _issued_in(self, steps: Steps) -> Ints:
        activities = self.capture.activities
        report, process = activities.report, activities.process
        return steps.at(report, process, self.issued)

    @cached_property
    def listed(self) -> Flags:
        """Which nodes belong to a range that is counted."""
        if self.selection is None:
            return self.nodes_in_direction
        flags: Flags = (
            self.nodes_in_direction & self.selection.ranges[self.attribution.nesting.range]
        )
        return flags

    @cached_property
    def nodes_in_direction(self) -> Flags:
        """Which nodes are of the counted direction, whether or not they are in the selection."""
        if self.direction == BOTH:
            return np.ones(len(self.attribution.nesting), bool)
        is_counted: Flags = self.directions.ranges == (self.direction == BACKWARD)
        return is_counted[self.attribution.nesting.range]

    @cached_property
    def listed_ranges(self) -> Flags:
        """Which ranges are ops and counted."""
        listed: Flags = (self.op != NONE) & self.counted_ranges
        return listed

    @cached_property
    def node(self) -> Ints:
        """The node that owns each activity, NONE for an activity without one or not counted."""
        node = self.attribution.node
        return node if self.counted.all() else np.where(self.counted, node, NONE)

    @cached_property
    def counted(self) -> Flags:
        """Which activities are counted; for one direction, activities without an op are not."""
        if self.direction == BOTH:
            return self.accounted
        node, backward = self.attribution.node, self.directions.backward
        counted: Flags = lookup(backward == (self.direction == BACKWARD), node, False)
        return counted & self.accounted

    @cached_property
    def accounted(self) -> Flags:
        """Which activities are in the selection, in either direction; shares are of their time."""
        all_rows = np.ones(len(self.capture.activities), bool)
        return all_rows if self.selection is None else self.selection.activities

    @cached_property
    def whole_ns(self) -> int:
        """Time of all activities in the selection in ns, the denominator of shares."""
        return int(self.duration[self.accounted].sum())

    @cached_property
    def counted_ranges(self) -> Flags:
        """Which ranges, ops or not, are of the counted direction and in the selection."""
        counted = np.ones(len(self.op), bool)
        if self.direction != BOTH:
            counted &= self.directions.ranges == (self.direction == BACKWARD)
        return counted if self.selection is None else counted & self.selection.ranges

    @cached_property
    def counted_launches(self) -> Flags:
        """Which API calls are counted; for one direction, calls outside all ranges are not."""
        if self.direction == BOTH:
            return self.accounted_launches
        is_counted: Flags = np.append(
            self.directions.backward == (self.direction == BACKWARD), False
        )
        return self.accounted_launches & is_counted[self.launch_node]

    @cached_property
    def accounted_launches(self) -> Flags:
        """Which API calls are in the selection, in either direction."""
        all_rows = np.ones(len(self.capture.launches), bool)
        return all_rows if self.selection is None else self.selection.launches

    @cached_property
    def counted_waits(self) -> Flags:
        """Which waits are in the selection, in either direction."""
        all_rows = np.ones(len(self.capture.waits), bool)
        return all_rows if self.selection is None else self.selection.waits

    @cached_property
    def counted_system_calls(self) -> Flags:
        """Which calls of the operating system are in the selection, in either direction."""
        all_rows = np.ones(len(self.capture.system_calls), bool)
        return all_rows if self.selection is None else self.selection.system_calls

    def calls_of(self, report: Ints, process: Ints, correlation: Ints) -> Ints:
        """Return the row of the API call with each (report, process, correlation id), or NONE."""
        return calls_of(report, process, correlation, _filled(Launches, self.capture.launches))

    @cached_property
    def launch_node(self) -> Ints:
        """The innermost node open when each API call began, or NONE."""
        attribution, start = self.attribution, self.capture.launches.start
        return attribution.nesting.innermost(attribution.stack, start)

    @cached_property
    def wait_node(self) -> Ints:
        """The innermost node open when the API call of each wait began, or NONE."""
        call = self.calls_of(*(self.capture.waits[c] for c in KEY))
        node: Ints = lookup(self.launch_node, call)
        return node

    @cached_property
    def node_op(self) -> Ints:
        """The op of each node of the nesting, as a code into ``ops``."""
        return self.op[self.attribution.nesting.range]

    @cached_property
    def activity_op(self) -> Ints:
        """The innermost op of each counted activity, or NONE."""
        return lookup(self.node_op, self.node)

    @cached_property
    def call(self) -> Ints:
        """The call number of each counted op range, NONE for other ranges.

        Slices of one call share it.
        """
        ranges = self.capture.ranges
        rows = np.flatnonzero(self.listed_ranges)
        call = positions(rows, len(ranges))
        payload = ranges.payload[rows]
        sliced = rows[payload >> CALL_ID_SHIFT == CALL_ID]
        if len(sliced):
            keys = ranges.report, ranges.process, ranges.domain, ranges.payload
            call[sliced] = frames.key_codes([key[sliced] for key in keys])[0] + len(rows)
        call[rows] = factorize(call[rows])[0]
        return call

    @cached_property
    def node_path(self) -> tuple[Ints, list[str]]:
        """The path of ops of each node as a code, and the distinct paths."""
        return paths(self.hierarchy.parent, *self.hierarchy_names)


def _cut(capture: Capture, window: RowSelection) -> Capture:
    """Return the capture with the work of the window cut where that begins and ends."""
    report, start, end = capture.activities.report, capture.activities.start, capture.activities.end
    rows = np.flatnonzero(window.activities & (start <= end))
    cut = start.copy(), end.copy()
    cut[0][rows] = np.maximum(start[rows], window.start[report[rows]])
    cut[1][rows] = np.minimum(end[rows], window.end[report[rows]])
    return replace(capture, activities=capture.activities.replace(start=cut[0], end=cut[1]))


class Remembering(Protocol):
    """What keeps the results of functions."""

    @property
    def results(self) -> dict[tuple[object, ...], Any]:
        """The results by function and arguments."""


Subject = TypeVar("Subject", bound=Remembering)


def once(
    function: Callable[Concatenate[Subject, Options], T],
) -> Callable[Concatenate[Subject, Options], T]:
    """Return the function with a memory: what it returns of a capture, or of a run, is computed once.

    Arguments besides that must be hashable. Callers share the result and must not change it.
    """

    def remembering(of: Subject, /, *args: Options.args, **kwargs: Options.kwargs) -> T:
        key = (function, args, tuple(kwargs.items()))
        if key not in of.results:
            of.results[key] = function(of, *args, **kwargs)
        result: T = of.results[key]
        return result

    update_wrapper(remembering, function)
    return remembering


def _creations(capture: Capture) -> Ints:
    """Return the row of the event that created the graph node of each activity, or NONE."""
    node = capture.activities.graph_node
    if not len(capture.graph_nodes):
        return repeated(NONE, len(node))
    report_of, process = capture.activities.report, capture.activities.process
    return creation_of(report_of, process, node, _filled(NodeEvents, capture.graph_nodes))


def _filled(kind: type[T], table: frames.Records, **values: Flags | Ints) -> T:
    """Return a ``kind`` with the fields ``values`` and columns of ``table`` of the same names."""
    names = [field.name for field in fields(kind) if field.name not in values]  # type: ignore[arg-type]
    return kind(**{name: table[name] for name in names}, **values)


# -- Readable names of activities


MAX_TABLE = 1 << 22  # entries of a table of all pairs of names


def _check_delays(capture: Capture, launch: Ints) -> None:
    """Raise NotAReport if the delays from API calls to their work add up to more ns than 64 bits hold."""
    first, last = zip(*(facts.span for facts in capture.facts), strict=True)
    if len(launch) * (max(last) - min(first)) <= MAX_SPAN_NS:  # as in nearly every real capture
        return
    rows = np.flatnonzero(launch != NONE)
    called, began = (
        capture.launches.start[launch[rows]],
        capture.activities.start[rows],
    )
    check_totals(", ".join(capture.source), [total_ns(called, began), total_ns(began, called)])


def readable_activities(activities: frames.Activities) -> Names:
    """Return a readable name per activity.

    Every pair of a short and a demangled name is looked at once.
    """
    short, full = activities.name, activities.full_name
    shorts, fulls = ([*column.texts, ""] for column in (short, full))
    other = len(fulls)  # stands for the demangled name of an activity that is no kernel
    pair = np.where(activities.kind.among(frames.KERNEL), full.codes, other - 1)
    pair = (pair + 1) * len(shorts) + short.codes + 1
    pair_number, distinct = _numbered(pair, (other + 1) * len(shorts))
    of_full, of_short = (codes - 1 for codes in np.divmod(distinct, len(shorts)))
    is_kernel = of_full < other - 1
    names = np.array([shorts[code] for code in of_short.tolist()], dtype=object)
    kernels = zip(of_short[is_kernel].tolist(), of_full[is_kernel].tolist(), strict=True)
    names[is_kernel] = readable_names((shorts[s], fulls[f]) for s, f in kernels)
    readable = Names.of(names.tolist())
    code = readable.codes
    code[(of_short == NONE) & (~is_kernel | (of_full == NONE))] = NONE
    return Names(code[pair_number], readable.texts)


def _numbered(values: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the number of each value, and the distinct values; all are below ``size``."""
    if size > MAX_TABLE:
        return factorize(values)
    is_used = np.zeros(size, bool)
    is_used[values] = True
    distinct = np.flatnonzero(is_used)
    number = np.empty(size, np.int64)
    number[distinct] = np.arange(len(distinct))
    return number[values], distinct

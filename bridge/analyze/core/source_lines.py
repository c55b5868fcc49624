"""The line of the user's program that made each API call, from call stacks that were recorded.

It is the innermost frame that is not of a library (`bridge.knowledge.libraries`): of a stack with frames of
Python the innermost of these, else the innermost native one. Without a stack it is the place of the innermost
op of the call whose place is known (``nvtx_op(source=True)``).
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.call_details import call_stacks
from bridge.importers import frames
from bridge.importers.arrays import lookup, scatter
from bridge.importers.call_chains import Frame, Nodes, Sources, nodes_of, python_frame, tree
from bridge.importers.frames import Names, key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups
from bridge.join.attributed import AttributedCapture, once
from bridge.join.attribution import BY_CAPTURE
from bridge.join.forest import nearest
from bridge.join.nesting import Nesting
from bridge.knowledge.libraries import is_library_file, is_library_function

# Reasons why a call, or work, has no line: the first rows of `SourceLines.lines`.
REASONS = NO_CALL, NO_CHAIN, ONLY_LIBRARIES = (
    "(no API call)",
    "(no call stack)",
    "(only library frames)",
)
NATIVE, PYTHON, OP = KINDS = (
    "native",
    "python",
    "op",
)  # the first two by whether a frame is of Python
PYTHON_FUNCTION = (
    "python_function"  # the domain of ranges that PyTorch's profiler records of Python
)

# -- Trees of call stacks


@record
class CallTree:
    """Call stacks as a tree: ``nodes`` as in `bridge.importers.call_chains`.

    ``leaf`` is the innermost node of each API call, ``within`` that of each range of the nesting of which a stack
    was recorded, or of a range around it.
    """

    nodes: Nodes
    leaf: Ints
    within: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture) -> CallTree:
        """Return the stacks of a capture: those of its file, or Python functions that are ranges."""
        capture = attributed.capture
        none = np.full(len(capture.launches), NONE)
        own = capture.chains.launch if len(capture.chains.launch) else none
        within = _of_ranges(attributed, capture.chains.range)
        own = np.where(own == NONE, _around_calls(attributed, within), own)
        result = cls(capture.chains.nodes, own, within)
        for other in (_recorded(attributed), _python_functions(attributed)):
            if other is not None:
                result = result.with_others(other)
        return result

    def with_others(self, other: CallTree) -> CallTree:
        """Return both trees as one; calls without a stack have that of the other tree."""
        size = len(self.nodes)
        parent, leaf, within = (
            np.where(column == NONE, NONE, column + size)
            for column in (other.parent, other.leaf, other.within)
        )
        nodes = Nodes.concat([self.nodes, other.nodes.replace(parent=parent)])
        return CallTree(
            nodes,
            np.where(self.leaf == NONE, leaf, self.leaf),
            np.where(self.within == NONE, within, self.within),
        )

    @property
    def parent(self) -> Ints:
        """The node of the caller of each node, NONE for the outermost."""
        return self.nodes.parent

    def stack(self, node: int) -> list[Frame]:
        """Return the frames of a stack, the innermost first."""
        result, nodes = [], self.nodes
        while node != NONE:
            function, file, line = nodes.function[node], nodes.file[node], int(nodes.line[node])
            result.append(Frame(function, file, line, python=bool(nodes.python[node])))
            node = int(nodes.parent[node])
        return result


def _recorded(attributed: AttributedCapture) -> CallTree | None:
    """Return the stacks that annotations recorded of their calls, None if there are none."""
    code, stacks = call_stacks(attributed)
    split = [stack.splitlines() for stack in stacks]
    number = {text: row for row, text in enumerate(dict.fromkeys(f for s in split for f in s))}
    if not number:
        return None
    rows = [(c, d, number[f]) for c, stack in enumerate(split) for d, f in enumerate(stack)]
    chain, depth, frame = np.array(rows, np.int64).reshape(-1, 3).T
    made = tree(chain, depth, frame, len(split))
    known = [python_frame(text) or Frame(text, "", python=True) for text in number]
    within = _of_ranges(attributed, made.leaf[code])
    return CallTree(
        nodes_of(made.parent, made.frame, known), _around_calls(attributed, within), within
    )


def _of_ranges(attributed: AttributedCapture, of_range: Ints) -> Ints:
    """Return the stack of each node of the nesting, or of the innermost one around it that has one."""
    nesting = attributed.attribution.nesting
    if not len(of_range):
        return np.full(len(nesting), NONE)
    own = of_range[nesting.range]
    return lookup(own, nearest(nesting.parent, own != NONE))


def _around_calls(attributed: AttributedCapture, within: Ints) -> Ints:
    """Return the stack of the innermost range of each API call that has one."""
    leaf: Ints = np.append(within, NONE)[attributed.launch_node]
    return leaf


def _python_functions(attributed: AttributedCapture) -> CallTree | None:
    """Return the stacks that ranges of Python functions are, None if there are none."""
    capture = attributed.capture
    ranges, launches = capture.ranges, capture.launches
    if PYTHON_FUNCTION not in ranges.domain_name.texts:
        return None
    rows = np.flatnonzero(ranges.domain_name.among(PYTHON_FUNCTION))
    range_stack, launch_stack = key_codes(
        (ranges.report, ranges.thread), (launches.report, launches.thread)
    )
    start, end = ranges.start[rows], ranges.end[rows]
    nesting = Nesting.of(range_stack[rows], start, end, rows)
    leaf = nesting.innermost(launch_stack, launches.start)
    code = ranges.name.codes[nesting.range]
    known = [python_frame(name) or Frame(name, "", python=True) for name in ranges.name.texts]
    nowhere = np.full(len(attributed.attribution.nesting), NONE)
    return CallTree(nodes_of(nesting.parent, code, known), leaf, nowhere)


# -- The line of each API call


class Lines(frames.Frame):
    """Lines of the program.

    ``source`` is ``file:line``, of native code the module. ``kind`` is python, native or op, '' for a
    reason.
    """

    function: Names
    source: Names
    file: Names
    line: Ints
    kind: Names


@record
class SourceLines:
    """Lines of the program, the first of which are reasons, and what is of which.

    ``call`` is the row of ``lines`` of each API call, ``own`` that of each node of the nesting by the
    recorded place of its op, ``node`` by that of its op or of an op around it, ``captured`` by the stack that
    was recorded of it or around it; NONE where there is none.
    """

    lines: Lines
    call: Ints
    own: Ints
    node: Ints
    captured: Ints

    @property
    def known(self) -> bool:
        return bool((self.call >= len(REASONS)).any() or (self.captured != NONE).any())


@once
def call_tree(attributed: AttributedCapture) -> CallTree:
    return CallTree.of(attributed)


@once
def source_lines(attributed: AttributedCapture) -> SourceLines:
    """Return the line of the program that made each API call, or why it is not known."""
    tree = call_tree(attributed)
    frame = user_frames(tree.nodes)
    owner = lookup(frame, tree.leaf)
    row, lines = _distinct(tree.nodes, attributed.capture.chains.sources)
    row = np.append(row + len(REASONS), NONE)
    own = row[len(tree.nodes) :][_op_places(attributed)]
    above = nearest(attributed.hierarchy.parent, own != NONE)
    node = np.append(lookup(own, above), NONE)
    call = np.where(owner == NONE, node[attributed.launch_node], row[owner])
    reason = np.where(tree.leaf == NONE, REASONS.index(NO_CHAIN), REASONS.index(ONLY_LIBRARIES))
    nothing = Names.of([""] * len(REASONS))
    heads = Lines(function=nothing, source=Names.of(REASONS), file=nothing, kind=nothing)
    lines = Lines.concat([heads, lines])
    captured = lookup(row, lookup(frame, tree.within))
    call = np.where(call == NONE, reason, call)
    return SourceLines(lines, call, own=own, node=node[:-1], captured=captured)


def distinct_frames(nodes: Nodes) -> tuple[Ints, Lines]:
    """Return the row of each node of a tree among its distinct frames, and these."""
    return _distinct(nodes, Sources())


def _distinct(nodes: Nodes, sources: Sources) -> tuple[Ints, Lines]:
    """Return the row of each node, then of each place of an op, among the distinct lines, and these."""
    function = Names.concat([nodes.function, sources.function])
    file = Names.concat([nodes.file, sources.file])
    line = np.append(nodes.line, sources.line)
    kind = np.append(nodes.python.astype(np.int64), np.full(len(sources), KINDS.index(OP)))
    row, first = number_groups(function.codes, file.codes, line, kind)
    function, file, line = function[first], file[first], line[first]
    places = zip(file, line.tolist(), strict=True)
    source = Names.of(f"{name}:{number}" if number > 0 else name for name, number in places)
    lines = Lines(function=function, source=source, file=file, line=line)
    return row, lines.replace(kind=Names(kind[first], KINDS))


def user_frames(nodes: Nodes) -> Ints:
    """Return for each node of a tree the innermost frame of the user's program, itself or above, or NONE."""
    is_python, is_native = frames_of_program(nodes)
    python = nearest(nodes.parent, is_python)
    return np.where(python == NONE, nearest(nodes.parent, is_native), python)


def frames_of_program(nodes: Nodes) -> tuple[Flags, Flags]:
    """Return which nodes of a tree are frames of the user's program in Python, and which native ones."""
    is_python = nodes.python
    of_library = nodes.file.matching(is_library_file)
    code, first = number_groups(nodes.function.codes, nodes.file.codes)
    pairs = zip(nodes.function[first], nodes.file[first], strict=True)
    of_native = np.array([is_library_function(*pair) for pair in pairs], bool)
    is_native_user = ~is_python & ~(of_native[code] if len(code) else is_python)
    return is_python & ~of_library, is_native_user


def _op_places(attributed: AttributedCapture) -> Ints:
    """Return the recorded place of the op of each node, a row of ``sources``, or NONE.

    A name that stands in two places of a program has none.
    """
    capture, nesting = attributed.capture, attributed.attribution.nesting
    sources = capture.chains.sources
    if not len(sources):
        return np.full(len(nesting), NONE)
    ranges = capture.ranges
    name = np.split(Names.concat([sources.op, ranges.name]).codes, [len(sources)])
    of_source, of_range = key_codes(
        (sources.report, sources.process, sources.domain, name[0]),
        (ranges.report, ranges.process, ranges.domain, name[1]),
    )
    place = scatter(
        np.arange(len(sources)), of_source, int(max(of_source.max(), of_range.max(initial=0))) + 1
    )
    row, _ = _distinct(Nodes(), sources)
    place[of_source[row != row[place[of_source]]]] = NONE  # several places
    own: Ints = place[of_range][nesting.range]
    return own


def activity_lines(attributed: AttributedCapture, rows: Ints | slice) -> Ints:
    """Return the row of `SourceLines.lines` of activities: of the API call, or of the capture of a CUDA graph."""
    lines, attribution = source_lines(attributed), attributed.attribution
    call = np.append(lines.call, REASONS.index(NO_CALL))[attribution.launch[rows]]
    in_capture = np.where(attribution.rule == BY_CAPTURE, attribution.captured_in, NONE)[rows]
    captured = np.append(lines.captured, NONE)[in_capture]
    return np.where(captured == NONE, call, captured)

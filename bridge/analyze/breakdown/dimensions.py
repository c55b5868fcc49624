"""The dimensions that rows are told apart by: what ranges are called and say, where and when work ran."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from bridge.analyze import kinds
from bridge.analyze.breakdown import places, said
from bridge.analyze.breakdown.coded import Coded
from bridge.analyze.breakdown.events import Events
from bridge.analyze.groups import texts
from bridge.analyze.modules import NO_MODULE
from bridge.analyze.names import KERNEL_NAMES
from bridge.join.attributed import DIRECTIONS, Attributed
from bridge.join.order import NONE, Ints
from importers import frames
from importers.texts import unique_names

Dimension = Callable[[Attributed, Sequence[Events]], Coded]


def _op(joined: Attributed, events: Sequence[Events]) -> Coded:
    return _by_range(events, "op", joined.op, joined.ops)


def _path(joined: Attributed, events: Sequence[Events]) -> Coded:
    """Code events by the ops around them; a range of no length is never open: its path is its name alone."""
    code, names = joined.node_path
    same, distinct = unique_names(np.arange(len(names) + len(joined.ops)), [*names, *joined.ops])
    of_range = np.append(same[len(names) :], NONE)[joined.op]
    return _by_node(events, "path", same[code], of_range, distinct)


def _module(joined: Attributed, events: Sequence[Events]) -> Coded:
    modules = joined.modules
    place = modules.of[joined.belongs]
    code = np.where(place == NONE, NONE, np.append(modules.path, NONE)[place])
    rows = [e.node for e in events]
    return Coded.of_rows("module", code, modules.paths, rows, none=NO_MODULE)


def _direction(joined: Attributed, events: Sequence[Events]) -> Coded:
    found = joined.directions
    codes = (found.backward.astype(np.int64), found.ranges.astype(np.int64))
    return _by_node(events, "direction", *codes, DIRECTIONS[:2])


def _shape(joined: Attributed, events: Sequence[Events]) -> Coded:
    return _by_range(events, "shape", *said.shapes(joined), none="")


def _dtype(joined: Attributed, events: Sequence[Events]) -> Coded:
    return _by_range(events, "dtype", *said.dtypes(joined), none="")


def _api(joined: Attributed, events: Sequence[Events]) -> Coded:
    column = joined.report.launches["name"]
    rows = [e.launch for e in events]
    return Coded.of_rows("api", frames.codes(column), column.cat.categories, rows, none="")


def _kind(joined: Attributed, events: Sequence[Events]) -> Coded:
    return Coded.of_rows("kind", *kinds.kind(joined), [e.activity for e in events])


def _library(joined: Attributed, events: Sequence[Events]) -> Coded:
    return Coded.of_rows("library", *kinds.library(joined), [e.activity for e in events])


def _fused(joined: Attributed, events: Sequence[Events]) -> Coded:
    return Coded.of_rows("fused", *kinds.made_of(joined), [e.activity for e in events])


def _copy(joined: Attributed, events: Sequence[Events]) -> Coded:
    return _named(joined, events, "operation", "name", (frames.COPY, frames.FILL))


def kernel(names: str) -> Dimension:
    """Return the dimension of kernels by one of their `KERNEL_NAMES`."""
    column = KERNEL_NAMES[names]
    return lambda joined, events: _named(joined, events, "kernel", column, (frames.KERNEL,))


# Of ranges, and all that they launch; of API calls, and what these launch; of activities alone.
OF_RANGES: Mapping[str, Dimension] = {
    "op": _op,
    "path": _path,
    "module": _module,
    "direction": _direction,
    "shape": _shape,
    "dtype": _dtype,
    "step": places.step,
    "phase": places.phase,
    "thread": places.thread,
    "process": places.process,
    "report": places.report,
    "rank": places.rank,
    "host": places.host,
}
OF_CALLS: Mapping[str, Dimension] = {"api": _api}
OF_ACTIVITIES: Mapping[str, Dimension] = {
    "kernel": kernel("short"),
    "copy": _copy,
    "kind": _kind,
    "library": _library,
    "fused": _fused,
    "device": places.device,
    "stream": places.stream,
    "geometry": places.geometry,
}


def _by_node(
    events: Sequence[Events], name: str, of_node: Ints, of_range: Ints, names: Collection[str]
) -> Coded:
    """Code events by the piece of a range that they are in; ranges without one by themselves."""
    rows = [
        np.where((e.node == NONE) & (e.range != NONE), len(of_node) + e.range, e.node)
        for e in events
    ]
    return Coded.of_rows(name, np.concatenate((of_node, of_range)), names, rows, none="")


def _by_range(
    events: Sequence[Events], name: str, code: Ints, names: Collection[str], none: str | None = None
) -> Coded:
    """Code events by the range that they are in."""
    return Coded.of_rows(name, code, names, [e.range for e in events], none)


def _named(
    joined: Attributed, events: Sequence[Events], label: str, column: str, kinds: Sequence[str]
) -> Coded:
    """Code activities of some kinds by their name; all others are in no row."""
    activities = joined.report.activities
    code = np.where(frames.is_kind(activities, *kinds), frames.codes(activities[column]), NONE)
    names = texts(activities[column].cat.categories)
    return Coded({label: names}, [code[e.activity] for e in events])

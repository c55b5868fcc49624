"""The host of a profile as frames: ranges, the calls of the driver, and marks.

Ranges are events of the program and its libraries, ops that XLA ran on the CPU, ops of GPUs around the calls that
launched them, and the modules around ops of both kinds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Flags, Ints, factorize, positions
from bridge.importers.frames import Names, distinct_keys
from bridge.importers.kineto.device import UniqueValues
from bridge.importers.kineto.events import PYTHON, clean_names
from bridge.importers.kineto.read import BITS, DEFAULT_DOMAIN, PYTHON_DOMAIN, numbers_of
from bridge.importers.range_texts import name_lengths
from bridge.importers.records import record
from bridge.importers.texts import Texts
from bridge.importers.xplane.ops import RUN, Op
from bridge.importers.xplane.scopes import Spans, modules
from bridge.importers.xplane.space import TEXTS, WHOLE_NUMBERS, Part, Space, Stats

CORRELATION, STEP = "correlation_id", "step_num"  # stats of events
PYTHON_MARK = "$"  # the names of functions of Python begin with it
END = "end: "  # begins the name of the event that an op of XLA has ended
GRAPH_CALL = re.compile(r" \(CudaGraph:\d+\)$")  # which graph a call launches
PROCESS = "process_id"  # a stat of planes
MAX_STATS = 64  # of an event that are kept
RANGES, CALLS, MARKS, SKIPPED = range(4)  # what events of the host are


@record
class Places:
    """The threads of the host: the number of each line's, and its process."""

    thread: Ints
    process: int

    @classmethod
    def of(cls, space: Space) -> Places:
        """Number threads by themselves where 24 bits hold their numbers; lines of one number are one thread."""
        pids = space.plane_stats.integers(PROCESS, len(space.planes))
        pid = next((pid for pid in pids.tolist() if 0 <= pid < 1 << BITS), 0)
        numbers = numbers_of(space.line_number.tolist())
        threads = [numbers[number] for number in space.line_number.tolist()]
        return cls((pid << BITS) | np.array(threads, np.int64), pid << BITS)

    def threads(self, space: Space, lines: Ints) -> frames.Threads:
        """Return the frame `threads` of some lines; a name repeats no number of its line."""
        thread, first = np.unique(self.thread[lines], return_index=True)
        lines = lines[first]
        names = [
            name.removesuffix(f"/{number}")
            for name, number in zip(
                space.line_name[lines], space.line_number[lines].tolist(), strict=True
            )
        ]
        process = np.full(len(thread), self.process)
        return frames.Threads(thread=thread, process=process, name=clean_names(names))


@record
class Host:
    """The events of the host, and what each is; ``op`` is the number of the op in each, -1 for none."""

    part: Part
    op: Ints
    ops: Sequence[Op]
    places: Places
    sort: Ints

    @classmethod
    def of(cls, part: Part, op: Ints, ops: Sequence[Op], places: Places) -> Host:
        """Tell what the events of the host are."""
        names, events = part.names, part.events
        ended = {END + name for name in part.texts("hlo_op").texts}
        is_point = (events.start == events.end) & (op == MISSING) & ~_is_python(names)
        is_point &= part.integers(STEP) == MISSING
        is_call = part.integers(CORRELATION) != MISSING
        kinds = [names.matching(ended.__contains__), is_call, is_point]
        sort = np.select(kinds, [SKIPPED, CALLS, MARKS], RANGES)
        return cls(part=part, op=op, ops=ops, places=places, sort=sort)

    def rows(self, sort: int) -> Ints:
        return np.flatnonzero(self.sort == sort)

    def common(self, rows: Ints) -> dict[str, Any]:
        """Return the columns that say when and where events were."""
        events = self.part.events
        return {
            "start": events.start[rows],
            "end": events.end[rows],
            "thread": self.places.thread[events.line[rows]],
            "process": np.full(len(rows), self.places.process),
        }

    def launches(self) -> frames.Launches:
        """Return the frame `launches`: calls of the driver, by which device work is found."""
        rows = self.rows(CALLS)
        code, names = factorize(self.part.names.codes[rows])
        texts = [GRAPH_CALL.sub("", self.part.names.texts[name]) for name in names.tolist()]
        return frames.Launches(
            self.common(rows),
            correlation=self.part.integers(CORRELATION)[rows],
            name=clean_names(texts)[code] if texts else Names.none(0),
        )

    def marks(self) -> frames.Marks:
        """Return the frame `marks`: events without a length."""
        rows = self.rows(MARKS)
        common = self.common(rows)
        return frames.Marks(
            time=common["start"],
            thread=common["thread"],
            process=common["process"],
            domain=np.zeros(len(rows), np.int64),
            domain_name=Names(np.zeros(len(rows), np.int64), [""]),
            name=self.part.names[rows],
        )

    def ranges(
        self, launches: frames.Launches, launched: UniqueValues, *, with_json: bool
    ) -> tuple[frames.Ranges, Texts]:
        """Return the frame `ranges` and its texts; ``launched`` knows the op of each correlation id."""
        events = self._events(self.rows(RANGES), with_json=with_json)
        ops = self._ops(launches, launched, with_json=with_json)
        nested = Spans.concat([events.take(~events.python), ops])
        around = modules(nested, [op.path for op in self.ops])
        return _frame(Spans.concat([events, ops, around]), self.places.process)

    def _events(self, rows: Ints, *, with_json: bool) -> Spans:
        """Return events as ranges."""
        common, op, name = self.common(rows), self.op[rows], self.part.names[rows]
        step = self.part.integers(STEP)[rows]
        code, first = distinct_keys(name.codes, op, step)
        texts = [self._text(name[row], int(op[row]), int(step[row])) for row in first.tolist()]
        return Spans(
            start=common["start"],
            end=common["end"],
            thread=common["thread"],
            op=op,
            run=self.part.integers(RUN)[rows],
            text=clean_names(texts or [""])[code],
            json=self._details(rows) if with_json else Names.none(len(rows)),
            python=_is_python(name),
        )

    def _text(self, name: str, op: int, step: int) -> str:
        if op != MISSING:
            return self.ops[op].text
        if step != MISSING:
            return f"{name}#{STEP}={step}#"
        return name.removeprefix(PYTHON_MARK)

    def _details(self, rows: Ints) -> Names:
        """Return what is told of events as JSON: of an op what is known of it, of others their stats."""
        op = self.op[rows]
        stats = _stats_as_json(self.part.stats, positions(rows, len(self.part)), len(rows))
        of_ops = Names.of([o.details for o in self.ops] or [""])
        both = Names.concat([stats, of_ops.at(op)])
        of_stats, of_op = np.split(both.codes, 2)
        return Names(np.where(op == MISSING, of_stats, of_op), both.texts)

    def _ops(self, launches: frames.Launches, launched: UniqueValues, *, with_json: bool) -> Spans:
        """Return the ops of GPUs as ranges, each as long as the call that launched work of it."""
        op = launched.get(launches.correlation)
        calls = np.flatnonzero(op != MISSING)
        details = [known.details if with_json else "" for known in self.ops]
        return Spans(
            start=launches.start[calls],
            end=launches.end[calls],
            thread=launches.thread[calls],
            op=op[calls],
            text=clean_names([known.text for known in self.ops] or [""]).at(op[calls]),
            json=clean_names(details or [""]).at(op[calls]),
        )


def _is_python(names: Names) -> Flags:
    return names.matching(lambda name: name.startswith(PYTHON_MARK))


# -- Ranges


def _frame(ranges: Spans, process: int) -> tuple[frames.Ranges, Texts]:
    """Return the frame `ranges`, outer ones before inner ones, and its texts."""
    # Of ranges with one start and one end, modules are the outer ones.
    inner = ranges.module == MISSING
    ranges = ranges.take(np.lexsort((ranges.module, inner, -ranges.end, ranges.start)))
    texts = Texts.of(ranges.text.texts or [""])
    name_code, names = texts.factorize(name_lengths(texts))
    domain = np.where(ranges.python, PYTHON_DOMAIN, DEFAULT_DOMAIN)
    text, count = ranges.text.codes, len(ranges)
    return frames.Ranges(
        start=ranges.start,
        end=ranges.end,
        thread=ranges.thread,
        process=np.full(count, process),
        domain=domain,
        domain_name=Names(domain, ("", PYTHON)),
        name=Names(name_code[text], names),
        kind=Names(np.zeros(count, np.int64), frames.RANGE_KINDS),
        category=Names(np.where(ranges.python, 0, MISSING), (PYTHON,)),
        json=ranges.json,
        text=text,
    ), texts


# -- Stats as JSON


def _stats_as_json(stats: Stats, row: Ints, rows: int) -> Names:
    """Return the stats of events as JSON texts, none where there are none; ``row`` is that of each owner, or -1."""
    is_told = np.isin(stats.kind, (*WHOLE_NUMBERS, *TEXTS)) & (stats.name != STEP)
    kept = np.flatnonzero(is_told & (row[stats.owner] != MISSING))
    stats = stats.take(kept)
    owner = row[stats.owner]
    order = np.argsort(owner, kind="stable")
    stats, owner = stats.take(order), owner[order]
    is_text = np.isin(stats.kind, TEXTS)
    (value, _) = distinct_keys(stats.name.codes, is_text.astype(np.int64), stats.value)
    first = np.searchsorted(owner, np.arange(rows))
    count = np.minimum(np.bincount(owner, minlength=rows), MAX_STATS)
    code = np.full(rows, MISSING)
    for place in range(int(count.max(initial=0))):
        more = np.flatnonzero(count > place)
        code[more], _ = distinct_keys(code[more], value[first[more] + place])
    code, examples = distinct_keys(count, code)
    texts = [_as_json(stats, first[row], first[row] + count[row]) for row in examples.tolist()]
    return clean_names(texts)[code] if texts else Names.none(0)


def _as_json(stats: Stats, first: int, last: int) -> str:
    """Return some stats as JSON, '' if there are none."""
    rows = stats.take(np.arange(first, last))
    values = (
        rows.texts[value] if kind in TEXTS else value
        for kind, value in zip(rows.kind.tolist(), rows.value.tolist(), strict=True)
    )
    known = dict(zip(rows.name, values, strict=True))
    return json.dumps(known) if known else ""

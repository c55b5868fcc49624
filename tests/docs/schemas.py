"""The JSON Schemas of the documents that commands print, from the descriptions of columns and from dataclasses.

`contracts` writes them. A document may get new fields in a minor version, so no schema forbids further ones.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import takewhile
from typing import Any, Union, get_args, get_origin, get_type_hints

from bridge.analyze.checks.advice.places import Place
from bridge.analyze.checks.annotate import CONFIDENCE, VERDICTS, Annotations, Candidate
from bridge.analyze.checks.annotate import EVIDENCE as PLACE_EVIDENCE
from bridge.analyze.checks.annotate import KINDS as PLACE_KINDS
from bridge.analyze.checks.costs import Costs
from bridge.analyze.checks.failures import FailedCalls, LostRecords, NotRecorded, ProgramError
from bridge.analyze.checks.hang import Hang
from bridge.analyze.checks.summary import FirstAdvice, Iteration, OpTime
from bridge.analyze.checks.why import Why
from bridge.analyze.compare.gates import Verdict
from bridge.analyze.compare.overall import Change
from bridge.analyze.compare.trend import FIGURES as FIGURES_OF_TREND
from bridge.analyze.compare.trend import KINDS, LABELS, WHOLE
from bridge.analyze.core.catalog import TABLES, VIEWS, TableColumns, describe
from bridge.analyze.core.catalog.column import (
    NAMES,
    Column,
)
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import (
    ACTIVITY_DIMENSIONS,
    CALL_DIMENSIONS,
    columns_are_chosen,
    labels_of,
)
from bridge.analyze.core.catalog.views import ACTIVITIES, CALLS, RANGES
from bridge.analyze.run.account import EVIDENCE, GpuAccount
from bridge.analyze.run.gpu_use import IdleCause
from bridge.analyze.run.what_if import WhatIf
from bridge.capture.doctor import Finding

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"
RULES = (
    "Integers have 64 bits. Names of times end in _ns; -1 is an unknown integer where a description says so."
    " A minor version may add fields; those here keep their names, types and meanings."
)
INTEGER, FRACTION, TEXT, FLAG = (
    {"type": name} for name in ("integer", "number", "string", "boolean")
)
ANY: Schema = {}  # a text or lists
TIME = {"type": "integer", "description": "ns"}
TEXTS = {"type": "array", "items": TEXT}
SOURCE = {**TEXTS, "description": "names of the files"}
FIGURES = {"type": "object", "description": "the figures of the text, by name"}
PLAIN: Mapping[Any, Schema] = {int: INTEGER, float: FRACTION, str: TEXT, bool: FLAG, object: {}}


# -- The parts of a schema


def record(optional: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Return the schema of an object that has all these fields but the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def listed(items: Schema, **more: Any) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": items, **more}


def nullable(schema: Schema) -> Schema:
    """Return the schema of a value that may be missing."""
    return {"anyOf": [schema, {"type": "null"}]}


def by_name(values: Schema, **more: Any) -> Schema:
    """Return the schema of an object whose names are data."""
    return {"type": "object", "additionalProperties": values, **more}


def of(kind: Any) -> Schema:
    """Return the schema of a dataclass or of the type of a field, as `dataclasses.asdict` writes it."""
    if kind in PLAIN:
        return PLAIN[kind]
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return record(**{field.name: of(hints[field.name]) for field in fields(kind)})
    if issubclass(kind, tuple) if isinstance(kind, type) else False:  # a NamedTuple
        return record(**{name: of(hint) for name, hint in get_type_hints(kind).items()})
    return _generic(get_origin(kind), get_args(kind))


def _generic(origin: Any, inner: tuple[Any, ...]) -> Schema:
    """Return the schema of ``X | None``, of a tuple, or of a mapping."""
    if origin in {Union, types.UnionType}:
        [known] = [item for item in inner if item is not type(None)]
        return nullable(of(known))
    if origin is tuple:
        return listed(of(inner[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return by_name(of(inner[1]))
    raise TypeError(f"no schema for {origin}")


# -- Tables: columns and rows

RUNNING = {"^running_": {**FRACTION, "description": "the running sum of the column (--running)"}}
# Labels of rows by dimensions that are integers; all others are texts.
NUMBERED = frozenset("step pid tid context stream rank registers shared_bytes".split())


def row(table: TableColumns, names: tuple[str, ...] = (), labels: Schema | None = None) -> Schema:
    """Return the schema of a row: its names always, other columns by default or by --columns."""
    columns = {column.name: value(column) for column in table.columns}
    return {
        "type": "object",
        "required": list(names),
        "properties": {**(labels or {}), **columns},
        "patternProperties": RUNNING,
        "x-default-columns": list(table.default),
    }


def value(column: Column) -> Schema:
    """Return the schema of a cell."""
    unknown = "; -1 where it is not known" if column.missing else ""
    return {"type": column.type, "description": f"{column.meaning} ({column.unit}){unknown}"}


def _names(by: str) -> tuple[str, ...]:
    """Return the columns that name the rows of a table, which every row has."""
    columns = TABLES[by].columns
    if columns_are_chosen(by):
        rare = {"source", "target"} if by == "memcpy" else set()  # with --memory-kinds
        return tuple(name for name in labels_of(by) if name not in rare)
    return tuple(c.name for c in takewhile(lambda c: c.unit in NAMES, columns) if c.default)


def _labels() -> Schema:
    """Return the columns that name the rows of tables by dimensions."""
    columns = (
        describe(name, is_number=name in NUMBERED) for name in labels_of(",".join(DIMENSIONS))
    )
    return {
        column.name: {
            "type": "integer" if column.name in NUMBERED else "string",
            "description": f"of rows by this dimension ({column.unit})",
        }
        for column in columns
    }


# -- bridge report

AMOUNT = record(activities=INTEGER, gpu_ns=TIME)
TOTALS = {
    **record(
        ("adopted",),
        activities=INTEGER,
        gpu_ns=TIME,
        attributed_ns=TIME,
        unattributed=by_name(AMOUNT, description="by reason"),
        adopted=AMOUNT,
    ),
    "description": "all activities of the report, whatever the rows are",
}


def report() -> Schema:
    """Return the schema of bridge.report/2."""
    document = record(
        ("units", "run_ns", "ranks"),
        format={"const": "bridge.report/2"},
        by={**TEXT, "description": "the table, or the dimensions of its rows, with commas"},
        source=SOURCE,
        totals=TOTALS,
        units=by_name(TEXT, description="of metrics of Nsight Compute"),
        run_ns=TIME,
        ranks=listed({"$ref": "#/$defs/ranks"}, description="beside the table by skew"),
        rows=listed({"type": "object"}),
    )
    labels = _labels()
    views = {name: row(TABLES[name], _names(name)) for name in VIEWS}
    dimensions = {name: row(TABLES[name], (), labels) for name in (RANGES, CALLS, ACTIVITIES)}
    return {
        **document,
        "allOf": [*_of_views(), *_of_dimensions()],
        "$defs": {**views, **dimensions, "ranks": row(TABLES["ranks"])},
    }


def _of_views() -> Iterator[Schema]:
    for name in VIEWS:
        yield _rows_where({"const": name}, name)


def _of_dimensions() -> Iterator[Schema]:
    """Yield the rows of tables by dimensions, whose columns depend on the kinds of the dimensions."""
    on_gpu, calls = _one_of(ACTIVITY_DIMENSIONS), _one_of(CALL_DIMENSIONS)
    other = {"type": "string", "not": {"enum": list(VIEWS)}}
    yield _rows_where({**other, "pattern": on_gpu}, ACTIVITIES)
    yield _rows_where({"allOf": [other, {"pattern": calls}, {"not": {"pattern": on_gpu}}]}, CALLS)
    neither = [{"not": {"pattern": pattern}} for pattern in (on_gpu, calls)]
    yield _rows_where({"allOf": [other, *neither]}, RANGES)


def _one_of(dimensions: frozenset[str]) -> str:
    return f"(^|,)({'|'.join(sorted(dimensions))})(,|$)"


def _rows_where(by: Schema, name: str) -> Schema:
    rows = {"properties": {"rows": {"items": {"$ref": f"#/$defs/{name}"}}}}
    return {"if": {"properties": {"by": by}}, "then": rows}


# -- Other commands


def failures() -> Schema:
    """Return the schema of what failed or was lost; fields besides these two depend on the kind."""
    kinds = [one.kind for one in (FailedCalls, ProgramError, NotRecorded, LostRecords)]
    one = {
        "type": "object",
        "required": ["kind", "text"],
        "properties": {"kind": {"enum": kinds}, "text": TEXT},
    }
    return listed(
        one, description="what failed and what was lost, in the order in which it is told"
    )


def summary() -> Schema:
    """Return the schema of bridge.summary/1."""
    gpu = of(GpuAccount)["properties"]
    gpu["states"]["description"] = "what the GPU did: ns per state, which add up to length_ns"
    gpu["processes"]["description"] = "the states by process id, if several used the GPU"
    busy = {**FRACTION, "description": "busy_ns by length_ns"}
    return record(
        ("runs",),
        format={"const": "bridge.summary/1"},
        source=SOURCE,
        totals=TOTALS,
        run=nullable({**_run(), "description": "the run; null if there are none or several"}),
        runs=listed(_run(), description="of reports without a common clock"),
        gpus=listed(
            record(**gpu, length_ns=TIME, busy_ns=TIME, idle_ns=TIME, busy_share=busy),
        ),
        idle_ns=TIME,
        causes=listed(of(IdleCause)),
        failures=failures(),
        parts=by_name(TIME, description="the parts of the run, in order"),
        costs=nullable({**of(Costs), "description": "what the run pays for"}),
        iterations=listed(of(Iteration)),
        no_iterations={**TEXT, "description": "why there are no iterations, though ranges repeat"},
        rates={**TEXTS, "description": "rates that the program printed"},
        mfu={**FRACTION, "description": "of an iteration of the longest loop; -1 if unknown"},
        ops=listed(of(OpTime)),
        advice=nullable({**of(FirstAdvice), "description": "the first piece of advice"}),
        rows=listed(row(TABLES["op-kernel"], ("op", "kernel"))),
    )


def _run() -> Schema:
    """Return the schema of a run, and of the selected part of one."""
    span = {"start_ns": TIME, "end_ns": TIME, "length_ns": TIME}
    evidence = {"enum": list(EVIDENCE), "description": "the events that tell when the run began"}
    selected = {**record(**span), "description": "the span of what is selected"}
    return record(("selected",), **span, evidence=evidence, selected=selected)


def advice() -> Schema:
    """Return the schema of bridge.advice/1."""
    place = nullable({**of(Place), "description": "the line of the program"})
    piece = record(
        rule=TEXT,
        title=TEXT,
        text=TEXT,
        figures=FIGURES,
        remedy=TEXT,
        same_time={**TEXTS, "description": "rules that tell of the same time"},
        estimate={**TEXT, "description": "none, or how saving_ns was estimated"},
        saving_ns={**TIME, "description": "what it could save in ns; -1 where it is not known"},
        ceiling_ns={**TIME, "description": "what it saves at most in ns; -1 where it is not known"},
        share={**FRACTION, "description": "of the time of the run"},
        place=place,
        evidence_rows=INTEGER,
        evidence=listed({"type": "object"}, description="rows of a table that the rule chooses"),
    )
    return record(
        format={"const": "bridge.advice/1"},
        source=SOURCE,
        wall_ns=TIME,
        failures=failures(),
        advice=listed(piece),
        small=listed(piece, description="below the threshold of --over"),
        passed={**TEXTS, "description": "rules without a finding"},
        not_judged=listed(record(rule=TEXT, missing=TEXT, record=TEXT)),
    )


def quality() -> Schema:
    """Return the schema of bridge.quality/1."""
    reason = record(
        reason=TEXT,
        cost=nullable({**INTEGER, "description": "points of the score"}),
        value=FRACTION,
        unit=TEXT,
        text=TEXT,
        figures=FIGURES,
        remedy=TEXT,
    )
    return record(
        format={"const": "bridge.quality/1"},
        source=SOURCE,
        score=nullable({**INTEGER, "description": "100 to 0; null where nothing ran on a GPU"}),
        covers=TEXTS,
        reasons=listed(reason),
        judged={**TEXTS, "description": "checks that apply"},
        messages={**TEXTS, "description": "of the profiler"},
        printed={**TEXTS, "description": "lines of the program"},
        overhead=listed({"type": "object"}, description="of the profiler, by kind"),
    )


def doctor() -> Schema:
    """Return the schema of bridge.doctor/1."""
    return record(
        format={"const": "bridge.doctor/1"},
        installed=by_name(TEXT, description="version or place, empty where it is not installed"),
        findings=listed({**of(Finding), "description": "kind is ok, note or lost"}),
    )


def why() -> Schema:
    """Return the schema of bridge.why/1."""
    return record(format={"const": "bridge.why/1"}, **of(Why)["properties"])


def hang() -> Schema:
    """Return the schema of bridge.hang/1."""
    return record(format={"const": "bridge.hang/1"}, source=SOURCE, hangs=listed(of(Hang)))


def annotate() -> Schema:
    """Return the schema of bridge.annotate/1."""
    place = {
        **of(Candidate)["properties"],
        "kind": {"enum": list(PLACE_KINDS)},
        "evidence": listed({"enum": list(PLACE_EVIDENCE)}),
        "confidence": {"enum": list(CONFIDENCE)},
        "source": {**TEXT, "description": "file:line, or the module of native code"},
        "add": {**TEXT, "description": "the line of code"},
        "where": {**TEXT, "description": "where that belongs"},
    }
    answer = {
        **of(Annotations)["properties"],
        "verdict": {"enum": list(VERDICTS)},
        "places": listed(record(**place)),
        "automatic": {**TEXT, "description": "the command that annotates without changes"},
    }
    return record(format={"const": "bridge.annotate/1"}, source=SOURCE, **answer)


def what_if() -> Schema:
    """Return the schema of bridge.what-if/1."""
    return record(format={"const": "bridge.what-if/1"}, source=SOURCE, **of(WhatIf)["properties"])


def diff() -> Schema:
    """Return the schema of bridge.diff/1; with a budget and one report, what compares two is missing."""
    pair = record(before_ns=TIME, after_ns=TIME, diff_ns=TIME)
    change = record(**of(Change)["properties"], diff_ns=FRACTION, ratio=FRACTION)
    use = record(busy_ns=TIME, span_ns=TIME, idle_ns=TIME)
    overall = record(
        iteration=nullable(change),
        gpu=nullable(record(before=use, after=use)),
        idle=nullable(change),
        idle_per_step=FLAG,
        causes=listed(record(cause=TEXT, **change["properties"])),
    )
    tested = _tested()
    return record(
        ("by", "times", "totals", "steps", "whole_step"),
        format={"const": "bridge.diff/1"},
        before=SOURCE,
        after=SOURCE,
        by=TEXT,
        times={"enum": ["gpu", "cpu"]},
        totals=record(**pair["properties"], rows_diff_ns=TIME, outside=by_name(pair)),
        steps=record(
            before=INTEGER, after=INTEGER, all=listed(INTEGER), per_step=FLAG, untested=TEXT
        ),
        whole_step={**record(tuple(tested), **tested), "description": "empty without steps"},
        overall=nullable(overall),
        gates=listed(of(Verdict)),
        rows=listed(_diff_row(pair, tested)),
    )


def _tested() -> dict[str, Schema]:
    """Return the fields of a time per step, its interval and its test."""
    names = (
        "step_before_ns step_after_ns low_ns high_ns p q step_ratio step_ratio_low step_ratio_high"
    )
    return {**dict.fromkeys(names.split(), FRACTION), "state": TEXT}


def _diff_row(pair: Schema, tested: dict[str, Schema]) -> Schema:
    """Return the schema of a row of bridge.diff/1; which counts it has depends on its dimensions."""
    sides = ("calls", "activities", "unmatched")
    counts = {f"{name}_{side}": INTEGER for name in sides for side in ("before", "after")}
    counts["matched_calls"] = INTEGER
    means = dict.fromkeys(("call_mean_diff_ns", "call_median_diff_ns"), FRACTION)
    rare = {**_labels(), "kernel_before": TEXT, "cause": TEXT, **counts, **means}
    always = {**pair["properties"], "ratio": FRACTION, "share": FRACTION, **tested}
    return record(tuple(rare), **rare, **always)


def trend() -> Schema:
    """Return the schema of bridge.trend/1."""
    run = record(label=TEXT, source=SOURCE, steps=INTEGER, iteration_ns=FRACTION, total_ns=FRACTION)
    left_out = record(label=TEXT, source=SOURCE, evidence=TEXT)
    labels = dict.fromkeys(LABELS.values(), TEXT)
    series = record(tuple(labels), **labels, medians_ns=listed(FRACTION))
    unknown = {"type": "integer", "description": "a place in runs, from 0; -1 without a change"}
    kinds = {"run": TEXT, "state": TEXT, **dict.fromkeys(("at", "earliest", "latest"), unknown)}
    figures = {name: kinds.get(name, FRACTION) for name in FIGURES_OF_TREND}
    return record(
        format={"const": "bridge.trend/1"},
        by={"enum": list(KINDS)},
        per_step=FLAG,
        untested=TEXT,
        runs=listed(run),
        left_out=listed(left_out),
        gates=listed(of(Verdict)),
        overall=listed(record(time={"enum": list(WHOLE)}, **figures)),
        series=listed(series),
        rows=listed(record(tuple(labels), **labels, **figures)),
    )


def memory() -> Schema:
    """Return the schema of bridge.memory/1."""
    names = {name.removeprefix("memory "): name for name in TABLES if name.startswith("memory ")}
    return {
        **record(
            format={"const": "bridge.memory/1"},
            by=TEXT,
            source=SOURCE,
            rows=listed({"type": "object"}),
        ),
        "allOf": [_rows_where({"const": by}, by) for by in names],
        "$defs": {by: row(TABLES[name]) for by, name in names.items()},
    }


def onednn() -> Schema:
    """Return the schema of bridge.onednn/1."""
    return record(
        format={"const": "bridge.onednn/1"},
        by={**TEXT, "description": "the dimensions of the rows, with commas"},
        source=SOURCE,
        library={**TEXTS, "description": "what the library says of itself"},
        rows=listed(row(TABLES["onednn"])),
    )


def graph() -> Schema:
    """Return the schema of bridge.graph/1; what is not known of a call is left out."""
    known = record(
        ("overload", "op_id", "seq", "shapes", "dtypes", "strides", "output_shapes"),
        id=INTEGER,
        parent={**INTEGER, "description": "the id of the call around it, 0 for none"},
        name=TEXT,
        overload=TEXT,
        op_id=INTEGER,
        seq=INTEGER,
        process=INTEGER,
        thread=INTEGER,
        start_ns=TIME,
        duration_ns=TIME,
        gpu_ns=TIME,
        backward=FLAG,
        **dict.fromkeys(("shapes", "dtypes", "strides", "output_shapes"), ANY),
    )
    edge = record(
        ("output", "input"),
        kind={"enum": ["data", "backward"]},
        source=INTEGER,
        target=INTEGER,
        output=INTEGER,
        input=INTEGER,
        tensor=INTEGER,
    )
    return record(
        format={"const": "bridge.graph/1"}, source=SOURCE, nodes=listed(known), edges=listed(edge)
    )


def bench() -> Schema:
    """Return the schema of bridge.bench/1; the parameters of a grid are further fields of a row."""
    texts = dict.fromkeys(("name", "shapes", "streams", "device", "clock"), TEXT)
    times = dict.fromkeys(("min_ns", "max_ns"), FRACTION)
    means = ("median_ns", "mean_ns", "p10_ns", "p90_ns", "iqr_ns", "loop_ns")
    rates = ("spread_share", "tflop_per_s", "gb_per_s")
    counts = ("workspace_bytes", "flop", "moved_bytes", "runs", "number")
    rows = record(
        **texts,
        **times,
        **dict.fromkeys((*means, *rates), FRACTION),
        **dict.fromkeys(counts, INTEGER),
        cold=FLAG,
        graph=FLAG,
        latencies_ns=listed(INTEGER),
    )
    return record(format={"const": "bridge.bench/1"}, rows=listed(rows))


def names() -> Schema:
    """Return the schema of bridge.list/1; which fields a row has depends on what is listed."""
    row_fields = record(
        ("kind", "heading", "unit", "type", "default"),
        name={**TEXT, "description": "as options take it"},
        kind={"enum": ["table", "dimension"]},
        heading={**TEXT, "description": "of the column, in tables for people"},
        unit=TEXT,
        type={"enum": ["string", "integer", "number"], "description": "of the column, in JSON"},
        default={**FLAG, "description": "whether the table has the column unless others are named"},
        meaning=TEXT,
    )
    return record(
        ("by", "sets"),
        format={"const": "bridge.list/1"},
        list={"enum": ["tables", "columns", "rules"]},
        by={**TEXT, "description": "the table of the columns"},
        sets={**TEXTS, "description": "sets of columns that --columns takes"},
        rows=listed(row_fields),
    )


TITLES = {  # what prints each document, and its schema
    "report": ("bridge report --format json", report),
    "summary": ("bridge summary --format json", summary),
    "advice": ("bridge advise --format json", advice),
    "diff": ("bridge diff --format json", diff),
    "why": ("bridge why --format json", why),
    "hang": ("bridge hang --format json", hang),
    "annotate": ("bridge annotate --format json", annotate),
    "what-if": ("bridge what-if --format json", what_if),
    "quality": ("bridge doctor REPORT --format json", quality),
    "doctor": ("bridge doctor --format json", doctor),
    "trend": ("bridge trend --format json", trend),
    "memory": ("bridge memory --format json", memory),
    "graph": ("bridge graph --format json", graph),
    "onednn": ("bridge onednn --format json", onednn),
    "bench": ("bridge bench --format json", bench),
    "list": ("bridge report --by list --format json", names),
}


def schemas() -> Iterator[tuple[str, Schema]]:
    """Yield the name of the file of each schema, and the schema."""
    for title, make in TITLES.values():
        schema = make()
        name, version = schema["properties"]["format"]["const"].split("/")
        file = f"{name}-{version}.schema.json"
        head = {"$schema": DIALECT, "$id": file, "title": f"What {title} prints"}
        yield file, {**head, "description": RULES, **schema}

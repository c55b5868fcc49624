"""A recording with ranges becomes a `Report`: host times alone, as a session without a profiler has them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.errors import NothingRecorded
from importers.frames import shared
from importers.percall import name_lengths
from importers.recording.lines import (
    CALL_IDS,
    PROCESS_BITS,
    START,
    Payloads,
    Recording,
    parse,
    read,
)
from importers.report import Facts, Report
from importers.texts import Ints, Texts, unique_names

# -- The details of calls in recordings become the JSON of the calls' ranges


PIDS = (1 << PROCESS_BITS) - 1


def with_details(report: Report, recordings: Sequence[Recording]) -> Report:
    """Return the report with what recordings say of its calls, as the JSON of their ranges."""
    if not recordings:
        return report
    column = report.ranges["json"]
    (call, said), row = _details(recordings), _row_of_call(report, recordings)
    code, names = frames.codes(column), [*column.cat.categories]
    nothing = np.array([*(name == "" for name in names), True])  # also what has no name at all
    there = (row != frames.MISSING) & nothing[code]
    code[there] = call[row[there]] + len(names)
    facts = replace(report.facts[0], metadata={**report.facts[0].metadata, **metadata(recordings)})
    json = frames.names(*unique_names(code, [*names, *said]))
    return replace(report, ranges=report.ranges.assign(json=json), facts=(facts, *report.facts[1:]))


def _details(recordings: Sequence[Recording]) -> tuple[Ints, list[str]]:
    """Return which of the distinct details each call has, and these as JSON."""
    texts = [text for one in recordings for text in one.details]
    first = np.cumsum([0, *(len(one.details) for one in recordings)])
    codes = [one.columns["calls"][1] + at for one, at in zip(recordings, first, strict=False)]
    return np.concatenate(codes), texts


def _row_of_call(report: Report, recordings: Sequence[Recording]) -> Ints:
    """Return for each range the call of the recordings that it is of, -1 for none."""
    call = np.concatenate([one.columns["calls"][0] for one in recordings]) + CALL_IDS
    process = np.concatenate(
        [np.full(len(one.columns["calls"][0]), one.process) for one in recordings]
    )
    own = [frames.ints(report.ranges, c) for c in ("process", "payload")]
    of_range, of_call = shared([own[0] & (PIDS << PROCESS_BITS), own[1]], [process, call])
    row = np.full(max(of_range.max(initial=0), of_call.max(initial=0)) + 1, frames.MISSING)
    row[of_call] = np.arange(len(of_call))
    return row[of_range]


def metadata(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return what recordings say of their processes, as far as they agree."""
    first, *others = (of_process(one) for one in recordings)
    return {k: v for k, v in first.items() if all(other.get(k) == v for other in others)}


def of_process(found: Recording) -> dict[str, Any]:
    """Return what a recording says of its process, and what the program said of itself."""
    names = ("trace_id", "host", "program")
    own = {key: found.header[key] for key in names if found.header.get(key)}
    ranks = {k: found.header[k] for k in ("rank", "local_rank", "world_size") if k in found.header}
    return own | ranks | found.metadata


# -- A recording with ranges becomes a `Report`: host times alone, as a session without a profiler has them


TIME = 2  # the column of marks
DEFAULT = 0  # the number of NVTX's default domain


def load(path: Path) -> Report:
    """Read a recording as a report; raises NothingRecorded if it holds details alone."""
    return _complete(os.fsencode(path.name).decode(errors="replace"), read(path))


def of_lines(name: str, lines: Iterable[bytes]) -> Report:
    """Read the lines of a recording that is in no file."""
    return _complete(name, parse(name, lines))


def _complete(name: str, found: Recording) -> Report:
    return with_details(report(name, found), [found])


def report(name: str, found: Recording) -> Report:
    """Return the frames of a recording; times are those of its host's monotonic clock, in ns."""
    ranges, marks = found.columns["ranges"], found.columns["marks"]
    if not len(ranges[START]) + len(marks[TIME]):
        raise NothingRecorded(
            f"{name}: details of calls, but no times: it belongs beside a profiler's report; give that one"
        )
    labels = _Labels(found)
    columns = _ranges(found, labels)
    times = np.concatenate([columns["start"], columns["end"], marks[TIME]])
    return Report(
        source=(name,),
        facts=(_facts(name, found, (int(times.min()), int(times.max()))),),
        ranges=frames.frame("ranges", columns),
        marks=frames.frame("marks", _marks(found, labels)),
        launches=_none("launches"),
        activities=_none("activities"),
        threads=_threads(found),
        processes=_processes(found),
        devices=_none("devices"),
        texts=labels.texts,
    )


def _facts(name: str, found: Recording, span: tuple[int, int]) -> Facts:
    warnings = [f"{name}: {_timed(found)}: no kernels"]
    if found.torn:
        warnings.append(f"{name}: cut in its last line; what was written before is complete")
    epoch = int(found.header["epoch_ns"]) - int(found.header["monotonic_ns"])
    version = str(found.header["format"])
    return Facts("nsight-bridge", version, span, tuple(warnings), epoch, metadata([found]))


def _timed(found: Recording) -> str:
    """Return what the times are: of the host, or what a benchmark's clocks measured."""
    try:
        clocks = {str(one["clock"]) for one in found.metadata["bench"]["results"]}
    except (KeyError, TypeError):  # what else a program calls so
        return "host times alone, recorded without a profiler"
    return f"latencies of a benchmark, by {', '.join(sorted(clocks))}"


class _Labels:
    """The labels of a recording as columns by their numbers."""

    def __init__(self, found: Recording) -> None:
        name, domain, category, color = zip(*found.labels, strict=True)
        self.texts = Texts.of(name)
        self.name = self.texts.factorize(name_lengths(self.texts))
        self.domain = pd.factorize(np.array(["", *(d or "" for d in domain)], dtype=object))
        self.category = pd.factorize(np.array([c or "" for c in category], dtype=object))
        self.color = np.array([frames.MISSING if c is None else c for c in color], np.int64)

    def columns(self, label: Ints, payloads: Payloads) -> dict[str, Any]:
        """Return what ranges and marks have in common."""
        codes, names = self.name
        domain, domains = self.domain
        category, categories = self.category
        return {
            "name": frames.names(codes[label], names),
            "domain": domain[1:][label] + DEFAULT,
            "domain_name": frames.names(domain[1:][label], list(domains)),
            "category": frames.names(category[label], list(categories)),
            "payload": payloads.ints,
            "json": _others(payloads),
        }


def _others(payloads: Payloads) -> Any:
    """Return the payloads that are no integers as texts, '' for the others."""
    distinct = ["", *dict.fromkeys(payloads.others.values())]
    codes = np.zeros(len(payloads.ints), np.int64)
    place = {text: code for code, text in enumerate(distinct)}
    codes[list(payloads.others)] = [place[text] for text in payloads.others.values()]
    return frames.names(codes, distinct)


def _ranges(found: Recording, labels: _Labels) -> dict[str, Any]:
    """Return the columns of ranges; what never ended ends with the last event, and is open."""
    label, kind, thread, start, end = found.columns["ranges"]
    endless = end == frames.MISSING
    last = max(int(c.max(initial=0)) for c in (start, end, found.columns["marks"][TIME]))
    return labels.columns(label, found.payloads["ranges"]) | {
        "start": start,
        "end": np.where(endless, last, end),
        "kind": frames.names(kind, frames.RANGE_KINDS),
        "thread": found.process | thread,
        "process": _constant(found.process, len(label)),
        "color": labels.color[label],
        "open": endless,
        "text": label,
    }


def _marks(found: Recording, labels: _Labels) -> dict[str, Any]:
    label, thread, time = found.columns["marks"]
    return labels.columns(label, found.payloads["marks"]) | {
        "time": time,
        "thread": found.process | thread,
        "process": _constant(found.process, len(label)),
    }


def _threads(found: Recording) -> pd.DataFrame:
    thread = np.array(list(found.threads), np.int64) | found.process
    columns = {"thread": thread, "process": _constant(found.process, len(thread))}
    return frames.frame("threads", columns | {"name": frames.named(list(found.threads.values()))})


def _processes(found: Recording) -> pd.DataFrame:
    name = frames.named([str(found.header.get("program") or "")])
    return frames.frame("processes", {"process": np.array([found.process]), "name": name})


def _constant(value: int, rows: int) -> Ints:
    return np.broadcast_to(np.int64(value), (rows,))


def _none(kind: str) -> pd.DataFrame:
    return frames.frame(kind, {})

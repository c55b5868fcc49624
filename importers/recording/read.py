"""Read recordings into a `Capture`, or add their details to the capture of a profiler's report.

A recording alone has host times, as of a session without a profiler. A recording belongs to a
report only if it is of one of its processes and was written to during the capture. A range gets
details only by its call id.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints, factorize, positions
from bridge.importers.capture import ANNOTATION_COSTS, PROCESS_RANKS, Capture, Facts, Reader
from bridge.importers.column_files import FOLDERS
from bridge.importers.errors import NotAReport, NothingRecorded
from bridge.importers.frames import key_codes
from bridge.importers.graph_annotations import annotated_by_process
from bridge.importers.nsys.tables import Details
from bridge.importers.range_texts import name_lengths
from bridge.importers.recording.lines import (
    CALL_PAYLOAD_BASE,
    PROCESS_BITS,
    START,
    Payloads,
    Recording,
    header,
    is_recording,
    parse_recording,
    read_recording,
)
from bridge.importers.texts import Texts, unique_names

LOG = logging.getLogger("bridge.importers")

# -- Details of calls


PIDS = (1 << PROCESS_BITS) - 1
RANK_KEYS = ("rank", "local_rank", "world_size")
ANNOTATION_COST = "annotation_cost"  # keys in the metadata of a recording
GRAPH_ANNOTATIONS = "graph_annotations"
OF_PROCESS = frozenset([ANNOTATION_COST, GRAPH_ANNOTATIONS])


def with_details(capture: Capture, recordings: Sequence[Recording]) -> Capture:
    """Return the capture with the details of recorded calls as the JSON of their ranges."""
    if not recordings:
        return capture
    column = capture.ranges.json
    (call, texts), row = _details(recordings), _row_of_call(capture, recordings)
    code, names = column.codes, [*column.texts]
    is_empty = np.array([*(name == "" for name in names), True])  # and without a code
    has_details = (row != MISSING) & is_empty[code]
    code[has_details] = call[row[has_details]] + len(names)
    metadata = common_metadata(recordings) | metadata_of_processes(recordings)
    facts = replace(capture.facts[0], metadata={**capture.facts[0].metadata, **metadata})
    json = frames.Names(*unique_names(code, [*names, *texts]))
    result = replace(
        capture, ranges=capture.ranges.replace(json=json), facts=(facts, *capture.facts[1:])
    )
    for recording in recordings:
        if said := recording.metadata.get(GRAPH_ANNOTATIONS):
            result = annotated_by_process(result, recording.process, said)
    return result


def _details(recordings: Sequence[Recording]) -> tuple[Ints, list[str]]:
    """Return the index of each call's details, and the distinct details as JSON."""
    texts = [text for recording in recordings for text in recording.details]
    first = np.cumsum([0, *(len(entry.details) for entry in recordings)])
    codes = [entry.columns["calls"][1] + at for entry, at in zip(recordings, first, strict=False)]
    return np.concatenate(codes), texts


def _row_of_call(capture: Capture, recordings: Sequence[Recording]) -> Ints:
    """Return for each range the row of its call in the recordings, -1 for none."""
    call = (
        np.concatenate([recording.columns["calls"][0] for recording in recordings])
        + CALL_PAYLOAD_BASE
    )
    process = np.concatenate(
        [np.full(len(entry.columns["calls"][0]), entry.process) for entry in recordings]
    )
    keys = [capture.ranges.process, capture.ranges.payload]
    of_range, of_call = key_codes([keys[0] & (PIDS << PROCESS_BITS), keys[1]], [process, call])
    row = positions(of_call, max(of_range.max(initial=0), of_call.max(initial=0)) + 1)
    return row[of_range]


def common_metadata(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return the metadata that all recordings have in common."""
    first, *others = (process_metadata(recording) for recording in recordings)
    return {
        key: value
        for key, value in first.items()
        if all(other.get(key) == value for other in others)
    }


def metadata_of_processes(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return the ranks of each process, and what a range cost it in ns, by its number as a text, as JSON has it."""
    of = {str(recording.header["pid"]): process_metadata(recording) for recording in recordings}
    ranks = {
        pid: {key: metadata[key] for key in RANK_KEYS if key in metadata}
        for pid, metadata in of.items()
    }
    costs = {str(one.header["pid"]): _cost_of_range(one) for one in recordings}
    costs = {pid: ns for pid, ns in costs.items() if ns}
    return ({PROCESS_RANKS: ranks} if any(ranks.values()) else {}) | (
        {ANNOTATION_COSTS: costs} if costs else {}
    )


def _cost_of_range(recording: Recording) -> int:
    """Return what a range cost the process of a recording, in ns; 0 where it was not measured."""
    match recording.metadata.get(ANNOTATION_COST):
        case {"ns": int(ns), "ranges": int(ranges)} if 0 < ranges <= ns:
            return ns // ranges
    return 0


def process_metadata(recording: Recording) -> dict[str, Any]:
    """Return the metadata of a recording: its process, and what the program added."""
    names = ("trace_id", "host", "program")
    process = {key: recording.header[key] for key in names if recording.header.get(key)}
    ranks = {key: recording.header[key] for key in RANK_KEYS if key in recording.header}
    added = {key: value for key, value in recording.metadata.items() if key not in OF_PROCESS}
    return process | ranks | added


# -- A recording as a capture


TIME = 2  # column of marks
DEFAULT = 0  # number of NVTX's default domain


def read(path: Path, _details: Details = True) -> Capture:
    """Read a recording; raises NothingRecorded if it has details of calls only."""
    return _capture_with_details(
        os.fsencode(path.name).decode(errors="replace"), read_recording(path)
    )


def read_lines(name: str, lines: Iterable[bytes]) -> Capture:
    """Read the lines of a recording that is not in a file."""
    return _capture_with_details(name, parse_recording(name, lines))


def _capture_with_details(name: str, recording: Recording) -> Capture:
    return with_details(to_capture(name, recording), [recording])


def to_capture(name: str, recording: Recording) -> Capture:
    """Return the capture of a recording; times are of the host's monotonic clock, in ns."""
    ranges, marks = recording.columns["ranges"], recording.columns["marks"]
    if not len(ranges[START]) + len(marks[TIME]):
        raise NothingRecorded(f"{name}: {_why_no_times(recording)}")
    labels = _Labels(recording)
    columns = _ranges(recording, labels)
    times = np.concatenate([columns["start"], columns["end"], marks[TIME]])
    return Capture(
        source=(name,),
        facts=(_facts(name, recording, (int(times.min()), int(times.max()))),),
        ranges=frames.Ranges(columns),
        marks=frames.Marks(_marks(recording, labels)),
        launches=frames.Launches(),
        activities=frames.Activities(),
        threads=_threads(recording),
        processes=_processes(recording),
        devices=frames.Devices(),
        texts=labels.texts,
    )


def _why_no_times(recording: Recording) -> str:
    """Return why a recording has no times; only sessions record threads and labels."""
    has_calls = len(recording.columns["calls"][0]) > 0
    if has_calls and not (recording.threads or recording.labels):
        return "details of calls, but no times: it belongs to a profiler's report; give that one"
    if recording.torn:
        return (
            "a session that was cut before its first times were written, by a kill, a limit of"
            " file size or a full disk; record it again"
        )
    return "a session with no times: no range and no mark was recorded"


def _facts(name: str, recording: Recording, span: tuple[int, int]) -> Facts:
    warnings = [f"{name}: {_time_source(recording)}: no kernels"]
    if recording.torn:
        warnings.append(f"{name}: cut in its last line; what was written before is complete")
    epoch = int(recording.header["epoch_ns"]) - int(recording.header["monotonic_ns"])
    version = str(recording.header["format"])
    metadata = common_metadata([recording]) | metadata_of_processes([recording])
    return Facts(
        product="nsight-bridge",
        schema=version,
        span=span,
        warnings=tuple(warnings),
        epoch_ns=epoch,
        metadata=metadata,
    )


def _time_source(recording: Recording) -> str:
    """Return a text on the source of the times: the host, or the clocks of a benchmark."""
    try:
        clocks = {str(result["clock"]) for result in recording.metadata["bench"]["results"]}
    except (KeyError, TypeError):  # other metadata of this name
        return "host times alone, recorded without a profiler"
    return f"latencies of a benchmark, by {', '.join(sorted(clocks))}"


class _Labels:
    """The labels of a recording as columns, by index."""

    def __init__(self, recording: Recording) -> None:
        name, domain, category, color = zip(*recording.labels, strict=True)
        self.texts = Texts.of(name)
        self.name = self.texts.factorize(name_lengths(self.texts))
        self.domain = factorize(np.array(["", *(text or "" for text in domain)], dtype=object))
        self.category = factorize(np.array([value or "" for value in category], dtype=object))
        self.color = np.array([MISSING if value is None else value for value in color], np.int64)

    def columns(self, label: Ints, payloads: Payloads) -> dict[str, Any]:
        """Return the columns that ranges and marks have in common."""
        codes, names = self.name
        domain, domains = self.domain
        category, categories = self.category
        return {
            "name": frames.Names(codes[label], names),
            "domain": domain[1:][label] + DEFAULT,
            "domain_name": frames.Names(domain[1:][label], list(domains)),
            "category": frames.Names(category[label], list(categories)),
            "payload": payloads.ints,
            "json": _payload_texts(payloads),
        }


def _payload_texts(payloads: Payloads) -> Any:
    """Return the payloads that are not integers as texts, '' for the others."""
    distinct = ["", *dict.fromkeys(payloads.others.values())]
    codes = np.zeros(len(payloads.ints), np.int64)
    place = {text: code for code, text in enumerate(distinct)}
    codes[list(payloads.others)] = [place[text] for text in payloads.others.values()]
    return frames.Names(codes, distinct)


def _ranges(recording: Recording, labels: _Labels) -> dict[str, Any]:
    """Return the columns of ranges; those that never ended are open until the last event."""
    label, kind, thread, start, end = recording.columns["ranges"]
    is_endless = end == MISSING
    last = max(int(c.max(initial=0)) for c in (start, end, recording.columns["marks"][TIME]))
    return labels.columns(label, recording.payloads["ranges"]) | {
        "start": start,
        "end": np.where(is_endless, last, end),
        "kind": frames.Names(kind, frames.RANGE_KINDS),
        "thread": recording.process | thread,
        "process": _constant(recording.process, len(label)),
        "color": labels.color[label],
        "open": is_endless,
        "text": label,
    }


def _marks(recording: Recording, labels: _Labels) -> dict[str, Any]:
    label, thread, time = recording.columns["marks"]
    return labels.columns(label, recording.payloads["marks"]) | {
        "time": time,
        "thread": recording.process | thread,
        "process": _constant(recording.process, len(label)),
    }


def _threads(recording: Recording) -> frames.Threads:
    thread = np.array(list(recording.threads), np.int64) | recording.process
    name = frames.Names.of(recording.threads.values())
    return frames.Threads(thread=thread, process=np.full(len(thread), recording.process), name=name)


def _processes(recording: Recording) -> frames.Processes:
    name = frames.Names.of([str(recording.header.get("program") or "")])
    return frames.Processes(process=np.array([recording.process]), name=name)


def _constant(value: int, rows: int) -> Ints:
    return np.broadcast_to(np.int64(value), (rows,))


# -- Recordings beside a profiler's report


PATTERN = "bridge-*.jsonl"
FOLDER = "BRIDGE_SIDECAR"
OF_REPORT = ".recordings"  # ending of the folder of a report's recordings, as report1.recordings
SLACK_NS = 2_000_000_000  # tolerance of the file system's clock


class Candidate(NamedTuple):
    """A recording that may belong to a report, by its first line."""

    path: Path
    pid: int
    host: str
    begun: int  # ns since the Unix epoch
    written: int  # time of the last modification, ns since the Unix epoch


def with_recordings(capture: Capture, path: Path, sidecar: Sequence[Path] = ()) -> Capture:
    """Return the capture of a file with the details of its calls.

    Uses the recordings in ``sidecar`` (files or folders); by default those beside the report, in
    its own folder (``report1.recordings``) and in ``$BRIDGE_SIDECAR``, where a damaged one is only
    a warning. Raises NotAReport if a recording in ``sidecar`` is damaged, or if none of them
    belongs to the report.
    """
    candidates = _candidates_of_capture(
        capture, list(_candidates(_files(path, sidecar), sidecar)), bool(sidecar)
    )
    if sidecar and not candidates:
        names = ", ".join(place.name for place in sidecar)
        raise NotAReport(
            f"{names}: recorded by no process of {path.name}; to which report does it belong?"
        )
    LOG.debug("%s: recordings: %s", path, ", ".join(str(c.path) for c in candidates) or "none")
    recordings, problems = _read_candidates(candidates, strict=bool(sidecar))
    capture = with_details(capture, recordings)
    first, *others = capture.facts
    first = replace(
        first,
        warnings=(*first.warnings, *problems),
        recordings=tuple(candidate.path for candidate in candidates),
    )
    return replace(capture, facts=(first, *others))


def has_candidates(path: Path) -> bool:
    """Return whether there are files at the default places of recordings of a report."""
    return any(file.exists() for file in _files(path, ()))


def _files(path: Path, sidecar: Sequence[Path]) -> Iterator[Path]:
    folders = [path.parent, *_folders_of(path), Path(os.environ.get(FOLDER) or path.parent)]
    files = (file for place in sidecar or folders for file in _recordings_in(place))
    yield from {os.path.realpath(file): file for file in files}.values()


def _folders_of(path: Path) -> list[Path]:
    """Return the folders of a report's recordings; captures of one program, numbered by nsys, share one."""
    stem = re.sub(rf"({'|'.join(FOLDERS)})$", "", path.name) if path.is_dir() else path.stem
    stems = {stem, re.sub(r"\.\d+$", "", stem)}
    folders = (path.with_name(f"{stem}{OF_REPORT}") for stem in sorted(stems))
    # Unlike Path.is_dir, access is False where the name is too long for a folder.
    return [folder for folder in folders if os.access(folder, os.F_OK) and folder.is_dir()]


def _recordings_in(place: Path) -> list[Path]:
    return sorted(place.glob(PATTERN)) if place.is_dir() else [place]


def _candidates(paths: Iterable[Path], sidecar: Sequence[Path]) -> Iterator[Candidate]:
    """Yield the candidates; other files are skipped unless they are named in ``sidecar``."""
    for path in paths:
        try:
            fields = header(path)
            written = path.stat().st_mtime_ns
        except (OSError, NotAReport) as error:
            if path in sidecar:
                reason = error.strerror if isinstance(error, OSError) else None
                raise NotAReport(f"{path}: {reason}" if reason else str(error)) from error
            LOG.debug("%s: no recording: %s", path, error)
            continue
        yield Candidate(
            path=path,
            pid=fields["pid"],
            host=str(fields.get("host")),
            begun=fields["epoch_ns"],
            written=written,
        )


def _candidates_of_capture(
    capture: Capture, candidates: Sequence[Candidate], is_named: bool
) -> list[Candidate]:
    """Return one recording per process: the last that began during the capture."""
    facts = capture.facts[0]
    numbers = np.unique(capture.ranges.process)
    pids = {int(number) >> PROCESS_BITS & PIDS for number in numbers}
    fitting = [candidate for candidate in candidates if candidate.pid in pids]
    overlapping = [recording for recording in fitting if _overlaps_capture(recording, facts)]
    # Files that the user names are used even if the times do not overlap.
    fitting = overlapping or (fitting if is_named else [])
    same_host = [
        recording for recording in fitting if recording.host == facts.metadata.get("host")
    ] or fitting
    latest = {
        recording.pid: recording
        for recording in sorted(same_host, key=lambda recording: recording.begun)
    }
    return list(latest.values())


def _overlaps_capture(candidate: Candidate, facts: Facts) -> bool:
    if facts.epoch_ns == MISSING:
        return True
    first, last = (facts.epoch_ns + edge for edge in facts.span)
    return candidate.begun <= last + SLACK_NS and candidate.written >= first - SLACK_NS


def _read_candidates(
    candidates: Sequence[Candidate], *, strict: bool
) -> tuple[list[Recording], list[str]]:
    """Return the recordings and the messages about damaged ones."""
    recordings, problems = [], []
    for candidate in candidates:
        try:
            recordings.append(read_recording(candidate.path))
        except NotAReport as error:
            if strict:
                raise
            problems.append(f"{error}: its calls are without details")
    return recordings, problems


READER = Reader("recording", is_recording, read)

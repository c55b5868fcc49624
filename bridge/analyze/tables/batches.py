"""Tables of a server's requests and tokens, from the batches that ranges mark.

The GPU time of a batch is divided among its requests, or among prefill and decode, by the tokens that are scheduled
in it; what does not divide is a row of its own, so that all rows add up to the time of all activities in integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bridge.analyze.core.groups import counts, highest, lowest, quantiles, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture, once
from bridge.join.batches import DECODE, PHASES, PREFILL, Batches

REMAINDER, UNSAID, NO_BATCH = "(remainder)", "(batches without requests)", "(no batch)"
NO_TOKENS, NOT_SELECTED = "(batches without tokens)", "(batches that began before)"
UNKNOWN = (
    "first_token_ns",
    "token_p50_ns",
    "token_p95_ns",
    "token_max_ns",
    "pid",
)  # of what is no request
PREFILLS, DECODES = (PHASES.index(name) for name in (PREFILL, DECODE))


@record
class BatchWork:
    """The batches of a capture and their work: counted GPU time in ns, and when the last of it ended, else the batch.

    ``counted`` tells which batches are of the selection; ``outside`` is the GPU time of what is in none, by the reason.
    """

    batches: Batches
    counted: Flags
    gpu: Ints
    done: Ints
    outside: Mapping[str, int]


def nodes_of_launch(attributed: AttributedCapture, rows: Ints) -> Ints:
    """Return the node of the nesting in which each activity was launched, else that of its op.

    Work of a CUDA graph is of the op that captured it, and of the batch that launches the graph.
    """
    launch = attributed.attribution.launch[rows]
    node = np.append(attributed.launch_node, NONE)[launch]
    return np.where(node == NONE, attributed.attribution.node[rows], node)


@once
def batches_of(attributed: AttributedCapture) -> Batches:
    """Return the batches of a capture."""
    return Batches.of(attributed.capture)


@once
def batch_work(attributed: AttributedCapture) -> BatchWork:
    """Return the work of each batch: what was launched within it."""
    capture = attributed.capture
    batches = batches_of(attributed)
    nesting = attributed.attribution.nesting
    own = batches.of_nodes(nesting, len(capture.ranges))
    around = batches.around(nesting, own)
    every = np.arange(len(capture.activities))
    batch, size = lookup(around, nodes_of_launch(attributed, every)), len(batches)
    inside = batch != NONE
    end = capture.activities.start + attributed.duration
    last = highest(batch[inside], end[inside], size)
    is_counted = attributed.counted_ranges[batches.row] & ~batches.parts(own, around)
    time = np.where(attributed.counted, attributed.duration, 0)
    of_selected = np.append(is_counted, False)[batch]
    return BatchWork(
        batches=batches,
        counted=is_counted,
        gpu=sums(batch[of_selected], time[of_selected], size),
        done=np.where(last == NONE, capture.ranges.end[batches.row], last),
        outside={
            NOT_SELECTED: int(time[inside & ~of_selected].sum()),
            NO_BATCH: int(time[~inside].sum()),
        },
    )


# -- Requests


def by_request(attributed: AttributedCapture) -> Table:
    """Return one row per request of a process, then what is left of batches, and the work of none.

    ``first_token_ns`` is the time from the begin of a request's first batch to the end of the GPU work of its last
    prefill, ``token_*_ns`` that between the ends of its following batches. Where no phase is said, batches up to the
    last with more than one token of a request are its prefill. No rows without batches.
    """
    work, ranges = batch_work(attributed), attributed.capture.ranges
    batches = work.batches
    process = ranges.process[batches.row][batches.batch]
    report = ranges.report[batches.row][batches.batch]
    request, first = number_groups(report, process, batches.request)
    batch, counted, size = batches.batch, work.counted[batches.batch], len(first)
    share = _part_of(work.gpu[batch], batches.tokens, batches.scheduled[batch])
    is_prefill = _prefills(batches, request, size)
    of_prefill, of_decode = counted & is_prefill, counted & ~is_prefill
    begin = lowest(request, ranges.start[batches.row][batch], size)
    began = (
        counts(request[counted & (ranges.start[batches.row][batch] == begin[request])], size) > 0
    )
    prefilled = highest(request[is_prefill], work.done[batch][is_prefill], size)
    after = np.where(counted, _between(batches, request, work.done, is_prefill), NONE)
    has_requests = counts(batch, len(batches)) > 0
    divided = sums(batch, share, len(batches))
    rest = {
        REMAINDER: int((work.gpu - divided)[has_requests].sum()),
        UNSAID: int(work.gpu[~has_requests].sum()),
        **work.outside,
    }
    table = {
        "request": texts(batches.requests)[batches.request[first]],
        "pid": frames.pid(process[first]),
        "batches": counts(request[counted], size),
        "prefill_tokens": sums(request[of_prefill], batches.tokens[of_prefill], size),
        "decode_tokens": sums(request[of_decode], batches.tokens[of_decode], size),
        "gpu_ns": sums(request, share, size),
        "first_token_ns": np.where(began & (prefilled != NONE), prefilled - begin, NONE),
        **_waits(request, after, size),
    }
    selected = table["batches"] > 0
    table = {name: column[selected] for name, column in table.items()}
    return _with_rest(table, rest, attributed, len(batches))


def _part_of(time: Ints, tokens: Ints, total: Ints) -> Ints:
    """Return ``time * tokens // total``, in parts that 64 bits hold; 0 where nothing is scheduled."""
    whole = np.maximum(total, 1)
    part: Ints = time // whole * tokens + time % whole * tokens // whole
    return np.where(total > 0, part, 0)


def _prefills(batches: Batches, request: Ints, size: int) -> Flags:
    """Return of each request of a batch whether it is in its prefill there."""
    phase = batches.phase[batches.batch]
    many = batches.tokens > 1
    last = highest(request[many], batches.batch[many], size)
    first = lowest(request, batches.batch, size)
    inferred = batches.batch <= np.maximum(last, first)[request]
    return np.where(phase == PREFILLS, True, np.where(phase == DECODES, False, inferred))


def _between(batches: Batches, request: Ints, done: Ints, is_prefill: Flags) -> Ints:
    """Return the time since the last batch of the same request, NONE in its prefill and without a batch before."""
    order = order_by(request, batches.batch)
    own, at = request[order], done[batches.batch[order]]
    follows = np.append(False, own[1:] == own[:-1])[: len(order)]
    result = np.full(len(order), NONE)
    gap = np.append(0, np.diff(at))[: len(order)]
    result[order] = np.where(follows & ~is_prefill[order], np.maximum(gap, 0), NONE)
    return result


def _waits(request: Ints, after: Ints, size: int) -> dict[str, Any]:
    known = after != NONE
    has_any = counts(request[known], size) > 0
    middle = quantiles(request[known], after[known], size, 0.5, 0.95)
    median, high = (np.where(has_any, column, float(NONE)) for column in middle)
    worst = highest(request[known], after[known], size)
    return {"token_p50_ns": median, "token_p95_ns": high, "token_max_ns": worst}


# -- Tokens


def by_token(attributed: AttributedCapture) -> Table:
    """Return one row per phase of batches, with the GPU time per token; no rows without batches.

    A mixed batch whose tokens of both phases are known is divided between them; others are rows of their own.
    """
    work = batch_work(attributed)
    batches = work.batches
    parts = [_part(work, name) for name in (PREFILL, DECODE)]
    divided = parts[0].gpu + parts[1].gpu
    whole = (parts[0].tokens + parts[1].tokens) > 0
    others = ~whole
    rows = [(name, one) for name, one in zip((PREFILL, DECODE), parts, strict=True)]
    left = int((work.gpu - divided)[whole].sum())
    rest = {REMAINDER: left, NO_TOKENS: int(work.gpu[others].sum()), **work.outside}
    tokens = np.array([int(one.tokens.sum()) for _, one in rows], np.int64)
    time = np.array([int(one.gpu.sum()) for _, one in rows], np.int64)
    table = {
        "phase": texts(name for name, _ in rows),
        "batches": np.array([int((one.tokens > 0).sum()) for _, one in rows], np.int64),
        "tokens": tokens,
        "gpu_ns": time,
        "token_mean_ns": ratio(time, tokens),
    }
    used = (tokens > 0) | (time > 0)
    table = {name: column[used] for name, column in table.items()}
    return _with_rest(table, rest, attributed, len(batches))


@record
class _Part:
    """The tokens of one phase in each batch, and its part of the GPU time."""

    tokens: Ints
    gpu: Ints


def _part(work: BatchWork, name: str) -> _Part:
    """Return what batches do in a phase; requests of a batch of no phase are in theirs."""
    batches, size = work.batches, len(work.batches)
    prefills = _prefills(batches, batches.request, len(batches.requests))
    in_phase = prefills if name == PREFILL else ~prefills
    by_request = sums(batches.batch[in_phase], batches.tokens[in_phase], size)
    said = np.maximum(batches.prefill if name == PREFILL else batches.decode, 0)
    tokens = np.where(counts(batches.batch, size) > 0, by_request, said)
    tokens = np.where(work.counted, tokens, 0)
    return _Part(tokens, _part_of(work.gpu, tokens, batches.scheduled))


def _with_rest(
    table: dict[str, np.ndarray], rest: dict[str, int], attributed: AttributedCapture, batches: int
) -> Table:
    """Return rows with those of what is left, and each one's share of all GPU time; no rows without batches."""
    left = {name: time for name, time in rest.items() if time and batches}
    size = len(left)
    last = {name: _nothing(name, column, size) for name, column in table.items()}
    label = next(iter(table))
    last |= {label: texts(left), "gpu_ns": np.array([*left.values()], np.int64)}
    rows = {name: np.concatenate((column, last[name])) for name, column in table.items()}
    return Table(rows | {"share": ratio(rows["gpu_ns"], attributed.whole_ns)})


def _nothing(name: str, column: np.ndarray, rows: int) -> np.ndarray:
    """Return what a column has in rows of no request; the only process of a server is theirs, too."""
    if name == "pid" and len(column) and (column == column[0]).all():
        return np.full(rows, column[0])
    return np.full(rows, NONE if name in UNKNOWN else 0).astype(column.dtype)


def phase_of_batches(attributed: AttributedCapture, nodes: Iterable[Ints]) -> list[Ints]:
    """Return the phase of the batch around each node, a place in `PHASES`, NONE without a batch."""
    batches, nesting = batches_of(attributed), attributed.attribution.nesting
    around = batches.around(nesting, batches.of_nodes(nesting, len(attributed.capture.ranges)))
    return [lookup(batches.phase, lookup(around, node)) for node in nodes]

"""Tables of a server's requests and tokens, from the batches that ranges mark.

The GPU time of a batch is divided among its requests, or among prefill and decode, by the tokens that are scheduled
in it; what does not divide is a row of its own, so that all rows add up to the time of all activities in integers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from bridge.analyze.core.groups import counts, highest, lowest, quantiles, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, order_by
from bridge.join.attributed import AttributedCapture, once
from bridge.join.batches import DECODE, PHASES, PREFILL, Batches

REMAINDER, UNSAID, NO_BATCH = "(remainder)", "(batches without requests)", "(no batch)"
NO_TOKENS = "(batches without tokens)"
UNKNOWN = ("first_token_ns", "token_max_ns")  # of what is no request
PREFILLS, DECODES = (PHASES.index(name) for name in (PREFILL, DECODE))


@record
class BatchWork:
    """The batches of a capture and their work: GPU time in ns, and when the last of it ended, else the batch."""

    batches: Batches
    gpu: Ints
    done: Ints
    outside: int  # GPU time in no batch


@once
def batch_work(attributed: AttributedCapture) -> BatchWork:
    """Return the counted work of each batch: that of the innermost batch around its launch."""
    capture = attributed.capture
    batches = Batches.of(capture)
    around = batches.around(attributed.attribution.nesting, len(capture.ranges))
    rows = np.flatnonzero(attributed.counted)
    batch = lookup(around, attributed.attribution.node[rows])
    time = attributed.duration[rows]
    inside = batch != NONE
    size = len(batches)
    end = capture.activities.start[rows] + time
    last = highest(batch[inside], end[inside], size)
    return BatchWork(
        batches=batches,
        gpu=sums(batch[inside], time[inside], size),
        done=np.where(last == NONE, capture.ranges.end[batches.row], last),
        outside=int(time[~inside].sum()),
    )


# -- Requests


def by_request(attributed: AttributedCapture) -> Table:
    """Return one row per request, then what is left of batches, and the work of none; no rows without batches.

    ``first_token_ns`` is the time from the begin of a request's first batch to the end of the GPU work of its last
    prefill, ``token_*_ns`` that between the ends of its following batches. Where no phase is said, batches up to the
    last with more than one token of a request are its prefill.
    """
    work = batch_work(attributed)
    batches = work.batches
    request, tokens, batch = batches.request, batches.tokens, batches.batch
    size = len(batches.requests)
    total = batches.scheduled[batch]
    share = np.where(total > 0, work.gpu[batch] * tokens // np.maximum(total, 1), 0)
    is_prefill = _prefills(batches)
    begin = attributed.capture.ranges.start[batches.row][batch]
    first = lowest(request, begin, size)
    prefilled = highest(request[is_prefill], work.done[batch][is_prefill], size)
    after = _between(batches, work.done, is_prefill)
    divided = sums(batch, share, len(batches))
    has_requests = counts(batch, len(batches)) > 0
    rest = {
        REMAINDER: int((work.gpu - divided)[has_requests].sum()),
        UNSAID: int(work.gpu[~has_requests].sum()),
        NO_BATCH: work.outside,
    }
    table = {
        "request": texts(batches.requests),
        "batches": counts(request, size),
        "prefill_tokens": sums(request[is_prefill], tokens[is_prefill], size),
        "decode_tokens": sums(request[~is_prefill], tokens[~is_prefill], size),
        "gpu_ns": sums(request, share, size),
        "first_token_ns": np.where(prefilled == NONE, NONE, prefilled - first),
        **_waits(request, after, size),
    }
    return _with_rest(table, rest, attributed, len(batches))


def _prefills(batches: Batches) -> np.ndarray:
    """Return of each request of a batch whether it is in its prefill there."""
    phase = batches.phase[batches.batch]
    many = batches.tokens > 1
    last = highest(batches.request[many], batches.batch[many], len(batches.requests))
    first = lowest(batches.request, batches.batch, len(batches.requests))
    inferred = batches.batch <= np.maximum(last, first)[batches.request]
    return np.where(phase == PREFILLS, True, np.where(phase == DECODES, False, inferred))


def _between(batches: Batches, done: Ints, is_prefill: np.ndarray) -> Ints:
    """Return the time since the last batch of the same request, NONE in its prefill and without a batch before."""
    order = order_by(batches.request, batches.batch)
    request, at = batches.request[order], done[batches.batch[order]]
    follows = np.append(False, request[1:] == request[:-1])
    result = np.full(len(order), NONE)
    gap = np.append(0, at[1:] - at[:-1]) if len(at) else at
    result[order] = np.where(follows & ~is_prefill[order], np.maximum(gap, 0), NONE)
    return result


def _waits(request: Ints, after: Ints, size: int) -> dict[str, np.ndarray]:
    known = after != NONE
    median, high = quantiles(request[known], after[known], size, 0.5, 0.95)
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
    rest = {REMAINDER: left, NO_TOKENS: int(work.gpu[others].sum()), NO_BATCH: work.outside}
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
    batches = work.batches
    in_phase = _prefills(batches) if name == PREFILL else ~_prefills(batches)
    by_request = sums(batches.batch[in_phase], batches.tokens[in_phase], len(batches))
    said = np.maximum(batches.prefill if name == PREFILL else batches.decode, 0)
    tokens = np.where(counts(batches.batch, len(batches)) > 0, by_request, said)
    return _Part(tokens, work.gpu * tokens // np.maximum(batches.scheduled, 1))


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
    return np.full(rows, NONE if name in UNKNOWN else 0).astype(column.dtype)


def phase_of_batches(attributed: AttributedCapture, nodes: Iterable[Ints]) -> list[Ints]:
    """Return the phase of the innermost batch around each node, a place in `PHASES`, NONE without a batch."""
    batches = batch_work(attributed).batches
    around = batches.around(attributed.attribution.nesting, len(attributed.capture.ranges))
    return [lookup(batches.phase, lookup(around, node)) for node in nodes]

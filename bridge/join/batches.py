"""Batches of a server: ranges whose texts say which requests they run, or how many, and with how many tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.capture import Capture
from bridge.importers.frames import Names
from bridge.importers.graph_annotations import is_of_graph_node
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, order_by
from bridge.join.forest import nearest
from bridge.join.grammar import parse
from bridge.join.nesting import Nesting

PHASES = PREFILL, DECODE, MIXED, UNSAID = ("prefill", "decode", "mixed", "")
KIND = "batch"
COUNT = re.compile(r"\d{1,7}")  # of tokens or requests: larger numbers are none
QUOTED = re.compile(rb"%([0-9A-F]{2})")


@record
class Batches:
    """The batches of a capture in order of their begin, and which requests are scheduled in each.

    ``row`` is the range of each, ``phase`` a place in `PHASES`; ``prefill`` and ``decode`` are its tokens by phase, -1
    where the text does not say. ``batch``, ``request`` and ``tokens`` have a row per request of a batch: a place in
    ``row``, a code of ``requests``, and its tokens.
    """

    row: Ints
    phase: Ints
    prefill: Ints
    decode: Ints
    batch: Ints
    request: Ints
    tokens: Ints
    requests: list[str]

    @classmethod
    def of(cls, capture: Capture) -> Batches:
        """Return the batches that ranges of any server, or of `bridge.batch`, mark."""
        ranges = capture.ranges
        said = [_Said.of(name) for name in ranges.name.texts]
        is_batch = np.array([*(one is not None for one in said), False], bool)
        row = np.flatnonzero(is_batch[ranges.name.codes] & ranges.kind.among(frames.PUSH_POP))
        row = row[~is_of_graph_node(ranges.thread[row])]
        row = row[order_by(ranges.report[row], ranges.start[row])]
        code, place = np.unique(ranges.name.codes[row], return_inverse=True)
        known = [one for one in (said[c] for c in code.tolist()) if one is not None]
        phase, prefill, decode = (
            np.array([value(one) for one in known], np.int64)[place]
            for value in (_Said.phase_code, _Said.prefill_tokens, _Said.decode_tokens)
        )
        names = Names.of([name for one in known for name in one.requests])
        tokens = np.array([n for one in known for n in one.requests.values()], np.int64)
        size = np.array([len(one.requests) for one in known], np.int64)
        first, size = (np.cumsum(size) - size)[place], size[place]
        batch = np.repeat(np.arange(len(row)), size)
        entry = first[batch] + np.arange(len(batch)) - (np.cumsum(size) - size)[batch]
        return cls(
            row=row,
            phase=phase,
            prefill=prefill,
            decode=decode,
            batch=batch,
            request=names.codes[entry],
            tokens=tokens[entry],
            requests=names.texts,
        )

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def scheduled(self) -> Ints:
        """The tokens of each batch, 0 where neither phase says them."""
        by_request = np.zeros(len(self), np.int64)
        np.add.at(by_request, self.batch, self.tokens)
        said = np.maximum(self.prefill, 0) + np.maximum(self.decode, 0)
        return np.where(by_request > 0, by_request, said)

    def of_nodes(self, nesting: Nesting, ranges: int) -> Ints:
        """Return which batch each node of the nesting is, a place in ``row``, or NONE."""
        of_range = np.full(ranges, NONE)
        of_range[self.row] = np.arange(len(self))
        return of_range[nesting.range]

    def around(self, nesting: Nesting, own: Ints) -> Ints:
        """Return the batch around each node, given which batch nodes are.

        That is the innermost one; a batch that names no requests within one that names some is a part of that.
        """
        names = np.append(np.bincount(self.batch, minlength=len(self)) > 0, False)[own]
        named, any_batch = (
            lookup(own, nearest(nesting.parent, wanted)) for wanted in (names, own != NONE)
        )
        return np.where(named != NONE, named, any_batch)

    def parts(self, own: Ints, around: Ints) -> Flags:
        """Tell which batches are parts of another."""
        result = np.zeros(len(self), bool)
        is_batch = own != NONE
        result[own[is_batch]] = (around != own)[is_batch]
        return result


@record
class _Said:
    """What a text says of a batch: its phase, numbers of tokens and requests, and tokens by request."""

    phase: str
    counts: Mapping[str, int]
    requests: Mapping[str, int]

    @classmethod
    def of(cls, text: str) -> _Said | None:
        """Return what a text says, None for the text of another range."""
        label = parse(text)
        if label.kind != KIND:
            return None
        said = dict(label.arguments)
        counts = {
            key: int(str(value)) for key, value in said.items() if COUNT.fullmatch(str(value))
        }
        return cls(str(said.get("phase", "")), counts, _by_request(str(said.get("requests", ""))))

    def phase_code(self) -> int:
        """Return the place of the phase in `PHASES`: as said, else by what is scheduled."""
        if self.phase in PHASES[:-1]:
            return PHASES.index(self.phase)
        prefills, decodes = (self.counts.get(f"{one}_requests") for one in (PREFILL, DECODE))
        if prefills is None or decodes is None:
            return PHASES.index(UNSAID)
        return PHASES.index(PREFILL if not decodes else MIXED if prefills else DECODE)

    def prefill_tokens(self) -> int:
        return self._tokens(PREFILL)

    def decode_tokens(self) -> int:
        """Return the tokens of requests that decode: as many as these, where the text does not say.

        Beside a prefill whose tokens are not known they are not either: the batch cannot be divided.
        """
        said = self._tokens(DECODE)
        if said != NONE or (self.counts.get("prefill_requests") and self._tokens(PREFILL) == NONE):
            return said
        return self.counts.get("decode_requests", NONE)

    def _tokens(self, phase: str) -> int:
        if self.requests:
            return sum(self.requests.values()) if self.phase == phase else NONE
        return self.counts.get(f"{phase}_tokens", NONE)


def _by_request(text: str) -> dict[str, int]:
    """Return the tokens of each request, of ``a:1 b:7``, as `bridge.batch` writes it."""
    result: dict[str, int] = {}
    for name, _, tokens in (pair.rpartition(":") for pair in text.split()):
        if COUNT.fullmatch(tokens):
            request = _unquoted(name)
            result[request] = result.get(request, 0) + int(tokens)
    return result


def _unquoted(name: str) -> str:
    """Return the id of a request whose odd characters are written as ``%20``."""
    plain = QUOTED.sub(lambda match: bytes.fromhex(match[1].decode()), name.encode())
    return plain.decode(errors="replace")

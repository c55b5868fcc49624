"""Batches of a server: ranges whose texts say which requests they run, or how many, and with how many tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property

import numpy as np

from bridge.importers.arrays import lookup
from bridge.importers.capture import Capture
from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, order_by
from bridge.join.forest import nearest
from bridge.join.grammar import parse
from bridge.join.nesting import Nesting

PHASES = PREFILL, DECODE, MIXED, UNSAID = ("prefill", "decode", "mixed", "")
KIND = "batch"
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
        row = np.flatnonzero(is_batch[ranges.name.codes])
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
        by_request = np.bincount(self.batch, self.tokens, len(self)).astype(np.int64)
        said = np.maximum(self.prefill, 0) + np.maximum(self.decode, 0)
        return np.where(by_request > 0, by_request, said)

    def around(self, nesting: Nesting, ranges: int) -> Ints:
        """Return the innermost batch around each node of the nesting, a place in ``row``, or NONE."""
        of_range = np.full(ranges, NONE)
        of_range[self.row] = np.arange(len(self))
        own = of_range[nesting.range]
        is_batch: Flags = own != NONE
        return lookup(own, nearest(nesting.parent, is_batch))


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
        counts = {key: int(str(value)) for key, value in said.items() if str(value).isdecimal()}
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
        """Return the tokens of requests that decode: as many as these, where the text does not say."""
        said = self._tokens(DECODE)
        return self.counts.get("decode_requests", NONE) if said == NONE else said

    def _tokens(self, phase: str) -> int:
        if self.requests:
            return sum(self.requests.values()) if self.phase == phase else NONE
        return self.counts.get(f"{phase}_tokens", NONE)


def _by_request(text: str) -> dict[str, int]:
    """Return the tokens of each request, of ``a:1 b:7``, as `bridge.batch` writes it."""
    pairs = [pair.rpartition(":") for pair in text.split()]
    return {_unquoted(name): int(tokens) for name, _, tokens in pairs if tokens.isdecimal()}


def _unquoted(name: str) -> str:
    """Return the id of a request whose odd characters are written as ``%20``."""
    plain = QUOTED.sub(lambda match: bytes.fromhex(match[1].decode()), name.encode())
    return plain.decode(errors="replace")

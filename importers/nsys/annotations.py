"""NVTX events of an export as the frames `ranges` and `marks`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from importers import frames
from importers.columns import Columns, ints_of, texts_of
from importers.frames import shared
from importers.nsys import schema
from importers.percall import name_lengths
from importers.texts import Ints, Texts, unique_names

# -- Names behind the ids of an export: registered strings, domains, categories


UNNAMED = "<unnamed>"
API_VERSION = re.compile(r"_v\d+$")  # cudaLaunchKernel_v7000: the version of the entry point


class Strings:
    """The export's table of strings, decoded only where used."""

    def __init__(self, ids: Ints, values: Texts) -> None:
        self.order = np.argsort(ids, kind="stable")
        self.ids = ids[self.order]
        self.values = values

    def rows(self, ids: Ints) -> Ints:
        """Return the row of each id in ``values``, -1 where there is no such string."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        place = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[place] == ids, self.order[place], -1)

    def column(self, ids: Ints, clean: Callable[[str], str] = str) -> pd.Categorical:
        """Return the names of a column of ids; ids that name nothing become `UNNAMED`."""
        codes, distinct = pd.factorize(ids)
        rows = self.rows(distinct)
        known = self.values.decode(np.maximum(rows, 0)) if len(self.values) else []
        texts = [clean(t) for t in known] or [UNNAMED] * len(rows)
        found = [t if row >= 0 else UNNAMED for t, row in zip(texts, rows.tolist(), strict=True)]
        return frames.names(*unique_names(codes.astype(np.int64), found))


def api_name(name: str) -> str:
    """Return the name of an API call as programmers write it."""
    return API_VERSION.sub("", name)


def declared(keys: tuple[Ints, ...], texts: list[str]) -> dict[tuple[int, ...], str]:
    """Map declared keys to their names; the first declaration counts."""
    found: dict[tuple[int, ...], str] = {}
    for *key, name in zip(*(k.tolist() for k in keys), texts, strict=True):
        found.setdefault(tuple(key), name)
    return found


def lookup(
    names: dict[tuple[int, ...], str],
    keys: tuple[Ints, ...],
    otherwise: Callable[[tuple[int, ...]], str],
) -> pd.Categorical:
    """Return each row's declared name, or what ``otherwise`` makes of its key."""
    codes, firsts = distinct(keys)
    found = [tuple(int(k[row]) for k in keys) for row in firsts.tolist()]
    return frames.names(*unique_names(codes, [names.get(k, otherwise(k)) for k in found]))


def distinct(keys: tuple[Ints, ...]) -> tuple[Ints, Ints]:
    """Number the distinct combinations of several columns; also returns the first row of each."""
    (codes,) = shared(keys)
    firsts = np.full(int(codes.max(initial=-1)) + 1, len(codes), np.int64)
    np.minimum.at(firsts, codes, np.arange(len(codes)))
    return codes, firsts


# -- NVTX events of an export as the frames `ranges` and `marks`


@dataclass(frozen=True)
class Annotations:
    """The NVTX rows of one export, names resolved."""

    ints: dict[str, Ints]
    texts: Texts  # distinct registered strings, then every inline text
    text: Ints  # each row's place in texts
    name: pd.Categorical
    json: pd.Categorical

    @classmethod
    def of(cls, columns: Columns, strings: Strings) -> Annotations:
        """Resolve names; an inline text wins over a registered one."""
        ints = {name: c for name, c in columns.items() if isinstance(c, np.ndarray)}
        pool, text = pooled(texts_of(columns, "text"), ints["text_id"], strings)
        name = frames.names(*_named(pool, text, name_lengths(pool)))
        ints |= {"process": ints["thread"] & ~schema.THREAD_BITS}
        return cls(ints, pool, text, name, _json(columns, strings))

    def ranges(self, last: int, session: int) -> pd.DataFrame:
        """Return push/pop and start/end ranges.

        A range that never ended comes with the end of the session from nsys (``session``, -1 if
        unknown) and with NULL from other writers: both are open. The latter end when the capture
        does: at ``last`` or with the last event of NVTX.
        """
        types = self.ints["type"]
        rows = np.flatnonzero(np.isin(types, schema.PUSH_POP + schema.START_END))
        phase = np.isin(types[rows], schema.START_END)
        start, end = (frames.pick(self.ints[c], rows) for c in ("start", "end"))
        endless = end == schema.NO_END
        last = max([last, session, *(int(t.max()) for t in (start, end) if len(t))])
        columns = self._common(rows) | {
            "start": start,
            "end": np.where(endless, last, end) if endless.any() else end,
            "kind": frames.names(phase.astype(np.int64), frames.RANGE_KINDS),
            "color": frames.pick(self.ints["color"], rows),
            "open": endless | ((end >= session) & (session > frames.MISSING)),
            "text": frames.pick(self.text, rows),
        }
        return frames.frame("ranges", columns)

    def marks(self) -> pd.DataFrame:
        """Return the instants."""
        rows = np.flatnonzero(np.isin(self.ints["type"], schema.MARK))
        return frames.frame("marks", self._common(rows) | {"time": self.ints["start"][rows]})

    def _common(self, rows: Ints) -> dict[str, Ints | pd.Categorical]:
        picked = {
            c: frames.pick(self.ints[c], rows) for c in ("thread", "process", "domain", "payload")
        }
        return picked | {
            "domain_name": self._domains(rows),
            "category": self._categories(rows),
            "name": _pick(self.name, rows),
            "json": _pick(self.json, rows),
        }

    def _domains(self, rows: Ints) -> pd.Categorical:
        """The name of each row's domain; '' for the default one and for one never declared."""
        names = self._declared(schema.DOMAIN_NAME, ("process", "domain"))
        keys = tuple(frames.pick(self.ints[c], rows) for c in ("process", "domain"))
        return lookup(names, keys, lambda _: "")

    def _categories(self, rows: Ints) -> pd.Categorical:
        """The name of each row's category; '' for none, the number for one without a name."""
        names = self._declared(schema.CATEGORY_NAME, ("process", "domain", "category"))
        keys = tuple(frames.pick(self.ints[c], rows) for c in ("process", "domain", "category"))
        return lookup(names, keys, lambda key: str(key[2]) if key[2] else "")

    def _declared(self, event: int, keys: tuple[str, ...]) -> dict[tuple[int, ...], str]:
        rows = np.flatnonzero(self.ints["type"] == event)
        rows = rows[np.argsort(self.ints["start"][rows], kind="stable")]
        return declared(
            tuple(self.ints[key][rows] for key in keys), [str(n) for n in self.name[rows]]
        )


def pooled(
    inline: Texts, ids: Ints, strings: Strings, nothing: str = UNNAMED
) -> tuple[Texts, Ints]:
    """Return the distinct registered strings and all inline texts, and each row's place there.

    A row that has neither is at ``nothing``, the first of them.
    """
    registered = np.flatnonzero((inline.sizes == 0) & (ids != frames.MISSING))
    codes, distinct = pd.factorize(strings.rows(ids[registered]))
    known = strings.values.take(distinct[distinct >= 0])  # noqa: PD011 - a field of ours
    written = np.flatnonzero(inline.sizes > 0)
    # Texts of no bytes can be left out without moving any byte.
    pool = Texts.concat(
        [Texts.of([nothing]), known, Texts(inline.data, inline.offsets[np.append(written, -1)])]
    )
    place = np.zeros(len(inline), np.int64)
    # -1 (no such string) may stand anywhere among the distinct rows: it takes no place of its own.
    place[registered] = np.where(distinct >= 0, np.cumsum(distinct >= 0), 0)[codes]
    place[written] = np.arange(1 + len(known), len(pool))
    return pool, place


def _json(columns: Columns, strings: Strings) -> pd.Categorical:
    """What is attached to each row as JSON: its text, a registered one, else a number; '' for nothing."""
    written, numbers = texts_of(columns, "json"), texts_of(columns, "number")
    ids = ints_of(columns, "json_id")
    if not (len(written.data) or len(numbers.data) or (ids != frames.MISSING).any()):
        return frames.names(np.zeros(len(written), np.int8), [""])
    row = np.arange(len(written))
    text = (written.sizes > 0) | (ids != frames.MISSING)
    own = Texts.concat([written, numbers]).take(np.where(text, row, row + len(row)))
    pool, place = pooled(own, ids, strings, nothing="")
    return frames.names(*_named(pool, place, pool.sizes))


def _pick(column: pd.Categorical, rows: Ints) -> pd.Categorical:
    return column[rows] if len(rows) < len(column) else column


def _named(pool: Texts, text: Ints, lengths: Ints) -> tuple[Ints, list[str]]:
    codes, names = pool.factorize(lengths)
    used, distinct = pd.factorize(codes[text])
    return unique_names(used.astype(np.int64), [names[c] for c in distinct.tolist()])

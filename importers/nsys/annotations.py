"""NVTX events of an export as the frames `ranges` and `marks`."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints, factorize
from bridge.importers.nsys import schema
from bridge.importers.range_texts import name_lengths
from bridge.importers.records import record
from bridge.importers.sqlite_columns import Columns, ints_of, texts_of
from bridge.importers.texts import Texts, unique_names

# -- Names of the ids of an export: registered strings, domains, categories


UNNAMED = "<unnamed>"
API_VERSION = re.compile(r"_v\d+$")  # cudaLaunchKernel_v7000: the version of the entry point


class Strings:
    """The table of strings of an export; a string is decoded only where it is used."""

    def __init__(self, ids: Ints, values: Texts) -> None:
        self.order = np.argsort(ids, kind="stable")
        self.ids = ids[self.order]
        self.values = values

    def rows(self, ids: Ints) -> Ints:
        """Return the row of each id in ``values``, -1 for unknown ids."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        place = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where(self.ids[place] == ids, self.order[place], -1)

    def column(self, ids: Ints, clean: Callable[[str], str] = str) -> frames.Names:
        """Return the strings of a column of ids; unknown ids become `UNNAMED`."""
        codes, distinct = factorize(ids)
        rows = self.rows(distinct)
        decoded = self.values.decode(np.maximum(rows, 0)) if len(self.values) else []
        texts = [clean(t) for t in decoded] or [UNNAMED] * len(rows)
        names = [t if row >= 0 else UNNAMED for t, row in zip(texts, rows.tolist(), strict=True)]
        return frames.Names(*unique_names(codes, names))

    def texts(self, ids: Ints) -> list[str]:
        """Return the string of each id, "" for unknown ids."""
        rows = self.rows(ids)
        known = iter(self.values.decode(rows[rows >= 0].tolist()))
        return [next(known) if row >= 0 else "" for row in rows.tolist()]


def api_name(name: str) -> str:
    """Return the name of an API call without the version of its entry point."""
    return API_VERSION.sub("", name)


def declared(keys: tuple[Ints, ...], texts: list[str]) -> dict[tuple[int, ...], str]:
    """Map keys to their names; the first declaration of a key counts."""
    result: dict[tuple[int, ...], str] = {}
    for *key, name in zip(*(k.tolist() for k in keys), texts, strict=True):
        result.setdefault(tuple(key), name)
    return result


def names_by_key(
    names: dict[tuple[int, ...], str],
    keys: tuple[Ints, ...],
    otherwise: Callable[[tuple[int, ...]], str],
) -> frames.Names:
    """Return the name of each row's key, ``otherwise(key)`` where it has none."""
    codes, firsts = frames.distinct_keys(*keys)
    distinct_keys = [tuple(int(key[row]) for key in keys) for row in firsts.tolist()]
    return frames.Names(
        *unique_names(codes, [names.get(key, otherwise(key)) for key in distinct_keys])
    )


# -- Ranges and marks


@record
class Annotations:
    """The NVTX rows of an export with their names."""

    ints: dict[str, Ints]
    texts: Texts  # distinct registered strings, then every inline text
    text: Ints  # index into `texts` per row
    name: frames.Names
    json: frames.Names

    @classmethod
    def of(cls, columns: Columns, strings: Strings) -> Annotations:
        """Resolve the names of NVTX rows; inline texts precede registered strings."""
        ints = {name: c for name, c in columns.items() if isinstance(c, np.ndarray)}
        pool, text = pool_texts(texts_of(columns, "text"), ints["text_id"], strings)
        name = frames.Names(*_names(pool, text, name_lengths(pool)))
        ints |= {"process": frames.process_of(ints["thread"])}
        return cls(ints=ints, texts=pool, text=text, name=name, json=_json_column(columns, strings))

    def ranges(self, last: int, session: int) -> frames.Ranges:
        """Return the frame `ranges`: push/pop and start/end ranges.

        Ranges without an end are open. nsys gives them the end of the session (``session`` in ns,
        -1 if unknown), other writers NULL; the latter end at ``last`` or with the last NVTX event.
        Where the clock does not begin with the session, its length tells nothing of an end.
        """
        types = self.ints["type"]
        rows = np.flatnonzero(np.isin(types, schema.PUSH_POP + schema.START_END))
        is_phase = np.isin(types[rows], schema.START_END)
        start, end = (frames.pick(self.ints[c], rows) for c in ("start", "end"))
        is_endless = end == schema.NO_TIME
        last = max([last, session, *(int(t.max()) for t in (start, end) if len(t))])
        columns = self._common_columns(rows) | {
            "start": start,
            "end": np.where(is_endless, last, end) if is_endless.any() else end,
            "kind": frames.Names(is_phase.astype(np.int64), frames.RANGE_KINDS),
            "color": frames.pick(self.ints["color"], rows),
            "open": is_endless | ((session > MISSING) & (start < session) & (session <= end)),
            "text": frames.pick(self.text, rows),
        }
        return frames.Ranges(columns)

    def marks(self) -> frames.Marks:
        rows = np.flatnonzero(np.isin(self.ints["type"], schema.MARK))
        return frames.Marks(self._common_columns(rows) | {"time": self.ints["start"][rows]})

    def _common_columns(self, rows: Ints) -> dict[str, Ints | frames.Names]:
        columns = {
            c: frames.pick(self.ints[c], rows) for c in ("thread", "process", "domain", "payload")
        }
        return columns | {
            "domain_name": self._domain_names(rows),
            "category": self._category_names(rows),
            "name": _pick_names(self.name, rows),
            "json": _pick_names(self.json, rows),
        }

    def _domain_names(self, rows: Ints) -> frames.Names:
        """Return the domain's name per row; '' for the default or an undeclared domain."""
        names = self._declared_names(schema.DOMAIN_NAME, ("process", "domain"))
        keys = tuple(frames.pick(self.ints[c], rows) for c in ("process", "domain"))
        return names_by_key(names, keys, lambda _: "")

    def domain_name(self, name: str) -> int:
        """Return the number of the domain of this name, -1 for none."""
        declared_domains = self._declared_names(schema.DOMAIN_NAME, ("process", "domain"))
        return next((number for (_, number), n in declared_domains.items() if n == name), MISSING)

    def category_declarations(self) -> list[tuple[int, int, str]]:
        """Return process, domain and name of each declaration of a category."""
        rows = np.flatnonzero(self.ints["type"] == schema.CATEGORY_NAME)
        columns = (self.ints[c][rows].tolist() for c in ("process", "domain"))
        return list(zip(*columns, self.name[rows], strict=True))

    def _category_names(self, rows: Ints) -> frames.Names:
        """Return the category's name per row: '' for none, the number if it is undeclared."""
        names = self._declared_names(schema.CATEGORY_NAME, ("process", "domain", "category"))
        names = {key: name for key, name in names.items() if key[2]}  # 0 stands for none
        keys = tuple(frames.pick(self.ints[c], rows) for c in ("process", "domain", "category"))
        return names_by_key(names, keys, lambda key: str(key[2]) if key[2] else "")

    def _declared_names(self, event: int, keys: tuple[str, ...]) -> dict[tuple[int, ...], str]:
        rows = np.flatnonzero(self.ints["type"] == event)
        rows = rows[np.argsort(self.ints["start"][rows], kind="stable")]
        return declared(tuple(self.ints[key][rows] for key in keys), self.name[rows].tolist())


def pool_texts(
    inline: Texts, ids: Ints, strings: Strings, nothing: str = UNNAMED
) -> tuple[Texts, Ints]:
    """Return the distinct registered strings and all inline texts, and each row's index in them.

    A row without a text has index 0, which holds ``nothing``.
    """
    registered = np.flatnonzero((inline.sizes == 0) & (ids != MISSING))
    codes, distinct = factorize(strings.rows(ids[registered]))
    texts = strings.values.take(distinct[distinct >= 0])
    inline_rows = np.flatnonzero(inline.sizes > 0)
    # Empty texts take no bytes: without them the block stays as it is.
    pool = Texts.concat(
        [Texts.of([nothing]), texts, Texts(inline.data, inline.offsets[np.append(inline_rows, -1)])]
    )
    place = np.zeros(len(inline), np.int64)
    # -1 (an unknown string) may be anywhere among the distinct rows; it takes no place in the pool.
    place[registered] = np.where(distinct >= 0, np.cumsum(distinct >= 0), 0)[codes]
    place[inline_rows] = np.arange(1 + len(texts), len(pool))
    return pool, place


def _json_column(columns: Columns, strings: Strings) -> frames.Names:
    """Return the attached JSON per row: inline or registered text, or a number; '' for none."""
    inline, numbers = texts_of(columns, "json"), texts_of(columns, "number")
    ids = ints_of(columns, "json_id")
    if not (len(inline.data) or len(numbers.data) or (ids != MISSING).any()):
        return frames.Names(np.zeros(len(inline), np.int8), [""])
    row = np.arange(len(inline))
    has_text = (inline.sizes > 0) | (ids != MISSING)
    texts = Texts.concat([inline, numbers]).take(np.where(has_text, row, row + len(row)))
    pool, place = pool_texts(texts, ids, strings, nothing="")
    return frames.Names(*_names(pool, place, pool.sizes))


def _pick_names(column: frames.Names, rows: Ints) -> frames.Names:
    return column[rows] if len(rows) < len(column) else column


def _names(pool: Texts, text: Ints, lengths: Ints) -> tuple[Ints, list[str]]:
    codes, names = pool.factorize(lengths)
    row_codes, distinct = factorize(codes[text])
    return unique_names(row_codes, [names[c] for c in distinct.tolist()])

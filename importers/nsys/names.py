"""Names behind the ids of an export: registered strings, domains, categories."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd

from importers import frames
from importers.keys import shared
from importers.texts import Ints, Texts, unique_names

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

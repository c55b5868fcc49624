"""What ran on the host: ops, annotations and Python functions as ranges, CUDA API calls as launches.

An op's text is the one that PyTorch's own NVTX ranges have, so that whatever reads those reads these.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from importers import frames
from importers.kineto.clean import clean, named
from importers.kineto.events import ANNOTATION, OP, PYTHON, Events
from importers.kineto.places import Places
from importers.percall import name_lengths
from importers.texts import Ints, Texts

MODULE = "nn.Module: "  # a Python function that stands for a module: an op, as wherever else it comes from
DEFAULT, OF_PYTHON = 0, 1  # domains
CATEGORIES = (OP, ANNOTATION, PYTHON)
TYPES = "Input type"
DIMS = ("Input Dims", "Input dims")  # since 2021, before
# What is said of collectives and kept as details of the call, by PyTorch's own names.
KEPT = (
    "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Name",
    "Process Group Ranks", "Src Rank", "Dst Rank",
)  # fmt: skip


def ranges(events: Events, places: Places) -> tuple[pd.DataFrame, Texts]:
    """Return the ranges of a trace in its order, which is outer before inner, and their texts."""
    category = np.array([_category(one) for one in events.category], np.int64)
    written = map(_text, events.name, category.tolist(), events.said)
    own, distinct = pd.factorize(np.array([*written, ""], object))
    texts = Texts.of(clean(text) for text in distinct)
    code, names = texts.factorize(name_lengths(texts))
    text = own[:-1].astype(np.int64)
    columns = _where(events, places) | {
        "name": frames.names(code[text], names),
        "kind": frames.names(np.zeros(len(events), np.int64), frames.RANGE_KINDS),
        "category": frames.names(category, CATEGORIES),
        "json": named([_details(said) for said in events.said]),
        "text": text,
    }
    return frames.frame("ranges", columns | _domains(events.name, category)), texts


def launches(events: Events, places: Places) -> pd.DataFrame:
    """Return the calls of the CUDA runtime and driver."""
    columns = _where(events, places) | {
        "correlation": events.ints("correlation"),
        "name": named(events.name),
    }
    return frames.frame("launches", columns)


def _where(events: Events, places: Places) -> dict[str, Any]:
    return {
        "start": events.start,
        "end": events.end,
        "thread": places.thread(events),
        "process": places.process(events),
    }


def _category(name: str) -> int:
    return CATEGORIES.index(name) if name in CATEGORIES else CATEGORIES.index(OP)


def _domains(names: Sequence[str], category: Ints) -> dict[str, Any]:
    """Return each range's domain: Python's functions have one of their own, for they are no ops."""
    is_module = np.array([name.startswith(MODULE) for name in names], bool)
    domain = np.where((category == CATEGORIES.index(PYTHON)) & ~is_module, OF_PYTHON, DEFAULT)
    return {"domain": domain, "domain_name": frames.names(domain, ("", PYTHON))}


def _text(name: str, category: int, said: dict[str, Any]) -> str:
    """Return ``aten::mm, seq = 7, op_id = 40, sizes = [[2, 3], [3, 4]]``; what is no op says its name alone."""
    if CATEGORIES[category] != OP:
        return name
    seq, number = said.get("Sequence number"), said.get("External id")
    sizes = said.get(DIMS[0]) or said.get(DIMS[1])
    parts = (
        f", seq = {seq}" if type(seq) is int and seq >= 0 else "",
        f", op_id = {number}" if type(number) is int and number > 0 else "",
        f", sizes = {sizes}" if type(sizes) is list and sizes else "",
    )
    return name + "".join(parts)


def _details(said: dict[str, Any]) -> str:
    """Return the types of inputs, and what is said of a collective, as JSON; '' for nothing."""
    types = said.get(TYPES)
    found = {"dtypes": types} if type(types) is list and any(types) else {}
    found |= {key: said[key] for key in KEPT if key in said}
    return json.dumps(found) if found else ""

"""Short forms of the long names that frameworks write: abbreviations.toml lists their beginnings."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

from bridge.knowledge.package import data_file


@cache
def beginnings() -> dict[str, str]:
    """Return the long beginnings of names, and what is shown in place of each."""
    text = data_file("bridge.knowledge", "abbreviations.toml")
    result: dict[str, str] = tomllib.loads(text)["beginnings"]
    return result


@cache
def _any_beginning() -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, beginnings())))


def abbreviations(names: Iterable[str]) -> dict[str, str]:
    """Return the short form of each name that has one and that no other name looks like."""
    distinct = dict.fromkeys(names)  # in order: a page is the same in every process
    short = {name: abbreviation(name) for name in distinct}
    count = Counter(short.values())
    return {
        name: text
        for name, text in short.items()
        if text != name and count[text] == 1 and text not in distinct
    }


def abbreviation(name: str) -> str:
    """Return the short form of a name, or the name."""
    if not _any_beginning().search(name):  # as most names
        return name
    for _ in range(2):  # autograd::engine::evaluate_function: torch::autograd::AccumulateGrad
        for long, text in beginnings().items():
            head, _, rest = name.partition(long)
            if rest and head in {"", "autograd: "}:
                name = f"{head}{text}{rest}"
    return name


def abbreviated(names: Sequence[str]) -> list[str]:
    """Return the names with long forms shortened."""
    short = abbreviations(names)
    return [short.get(name, name) for name in names]

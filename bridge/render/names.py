"""Cut names that do not fit where they differ: no two look the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rich.cells import cell_len

GAP = "…"
Cut = Callable[[str, int], str]


def fitted(names: Sequence[str], room: int, *, keep_end: bool = False) -> list[str]:
    """Return names of at most ``room`` cells; different names remain different.

    A name is cut at its end (with ``keep_end`` at its beginning) unless another name is the same up
    to there; then it is cut in the middle, at the other end, or numbered.
    """
    pending = {name for name in names if cell_len(name) > room}
    if not pending:
        return list(names)
    result = {name: name for name in names if name not in pending}
    first, second = (_tail, _head) if keep_end else (_head, _tail)
    kept = Counter(first(name, room) for name in {*names})
    alike = {name for name in pending if kept[first(name, room)] > 1}
    result |= {name: first(name, room) for name in pending - alike}
    pending = alike
    cuts: list[Cut] = [partial(_middle, part=2 / 3), partial(_middle, part=1 / 3), second]
    for cut in cuts:
        texts = {name: cut(name, room) for name in pending}
        count = Counter([*texts.values(), *result.values()])
        unique = {name: text for name, text in texts.items() if count[text] == 1}
        result |= unique
        pending -= unique.keys()
    result |= _with_numbers(pending, room, taken={*result.values()})
    return [result[name] for name in names]


def _with_numbers(names: Iterable[str], room: int, taken: set[str]) -> dict[str, str]:
    """Return names with a number at their end, in the order of the names."""
    result = {}
    for number, name in enumerate(sorted(names), 1):
        text = _numbered(name, number, room)
        while text in taken:
            number += 1  # noqa: PLW2901 - the next number that is free
            text = _numbered(name, number, room)
        taken.add(text)
        result[name] = text
    return result


def _numbered(name: str, number: int, room: int) -> str:
    mark = f"{GAP}{number}"
    return f"{_first_cells(name, max(0, room - len(mark)))}{mark}"


def _head(name: str, room: int) -> str:
    return f"{_first_cells(name, room - 1)}{GAP}"


def _tail(name: str, room: int) -> str:
    return f"{GAP}{_last_cells(name, room - 1)}"


def _middle(name: str, room: int, part: float) -> str:
    """Return the beginning and the end of a name; the beginning gets ``part`` of the room."""
    head = round((room - 1) * part)
    return f"{_first_cells(name, head)}{GAP}{_last_cells(name, room - 1 - head)}"


def _first_cells(name: str, room: int) -> str:
    kept = name[: max(0, room)]
    while cell_len(kept) > room:  # some characters are two cells wide
        kept = kept[:-1]
    return kept


def _last_cells(name: str, room: int) -> str:
    kept = name[-room:] if room > 0 else ""
    while cell_len(kept) > room:
        kept = kept[1:]
    return kept

"""Which columns of a table someone asks for: by name, by set, or as it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

DEFAULT, ALL = "default", "all"


def chosen(
    asked: Sequence[str],
    default: Sequence[str],
    every: Sequence[str],
    sets: Mapping[str, Sequence[str]],
) -> list[str]:
    """Return the columns that are asked for, each once, in the order asked.

    A word is a column, a set, "default", "all", or a column without its ``_ns``. Raises ValueError, in
    words for the user, for any other.
    """
    known = {DEFAULT: default, ALL: [*default, *(c for c in every if c not in default)], **sets}
    found: list[str] = []
    for word in asked or (DEFAULT,):
        if word in known and word not in every:
            found += known[word]
            continue
        column = next((c for c in (word, f"{word}_ns") if c in every or c in default), None)
        if column is None:
            raise ValueError(
                f"no column {word!r}: one of {', '.join(every)}; or {', '.join(known)}"
            )
        found.append(column)
    return list(dict.fromkeys(found))

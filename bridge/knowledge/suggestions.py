"""Messages for names that are not known: what was meant, and how to see all names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

MOST_LISTED = 72  # characters of a list of names in a message
MOST_SUGGESTED = 3
LIKENESS = 0.6  # as difflib measures it; 1 is the same
MARGIN = 0.1  # names less like the given one than the nearest by this are not suggested
IGNORED = str.maketrans("", "", " ,-_")
LONGEST = 40  # characters of a name in a message


def unknown_name(
    what: str,
    name: object,
    known: Iterable[str],
    listed_by: str = "",
    synonyms: Mapping[str, str] | None = None,
) -> str:
    """Return the message for a name that is not known: ``no column 'gpuself'; did you mean gpu_self?``.

    ``what`` is the kind of names, ``listed_by`` what shows all of them. They are listed here only if
    they are few. ``synonyms`` are names elsewhere, with the name that is meant.
    """
    names = list(dict.fromkeys(known))
    text = str(name)
    shown = repr(text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…")
    return f"no {what} {shown}{remedy(text, names, listed_by, synonyms)}"


def remedy(
    name: str,
    known: Sequence[str],
    listed_by: str = "",
    synonyms: Mapping[str, str] | None = None,
) -> str:
    """Return the end of a message on an unknown name: the names that are like it, or all of them."""
    listed = ", ".join(known)
    near = near_names(name, known, synonyms)
    suggestion = f"; did you mean {' or '.join(near)}?" if near else ""
    if known and len(listed) <= MOST_LISTED:
        return f": one of {listed}{suggestion}"
    hint = f"{listed_by} shows all" if listed_by else f"there are {len(known)} others"
    return f"{suggestion} {hint}" if near else f"; {hint}"


def near_names(
    name: str, known: Sequence[str], synonyms: Mapping[str, str] | None = None
) -> list[str]:
    """Return the known names that are like a name, the nearest first.

    What `plain` takes away does not count.
    """
    from difflib import get_close_matches

    meant = (synonyms or {}).get(name)
    if meant in known:
        return [str(meant)]
    by_plain: dict[str, str] = {}
    for other in known:
        by_plain.setdefault(plain(other), other.removesuffix("_ns"))
    if plain(name) in by_plain:
        return [by_plain[plain(name)]]
    near = get_close_matches(plain(name), by_plain, MOST_SUGGESTED, LIKENESS)
    likeness = {other: _likeness(name, other) for other in near}
    least = max(likeness.values(), default=0.0) - MARGIN
    nearest_first = sorted(near, key=likeness.__getitem__, reverse=True)
    return [by_plain[other] for other in nearest_first if likeness[other] >= least]


def _likeness(name: str, other: str) -> float:
    from difflib import SequenceMatcher

    if _swapped(plain(name), other):
        return 1.0
    return SequenceMatcher(a=plain(name), b=other).ratio()


def _swapped(name: str, other: str) -> bool:
    """Return whether two neighbouring letters changed places."""
    differ = [n for n, (a, b) in enumerate(zip(name, other, strict=False)) if a != b]
    first = differ[0] if differ else 0
    return (
        len(name) == len(other)
        and differ == [first, first + 1]
        and name[first : first + 2] == other[first : first + 2][::-1]
    )


def plain(name: str) -> str:
    """Return what counts of a name: not its case, blanks, commas, hyphens and underscores, nor ``_ns``."""
    return name.lower().removesuffix("_ns").translate(IGNORED)

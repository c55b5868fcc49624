"""The table of what differs, as text and as a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from wild.harness import Compared, Difference
from wild.ways import Way

INTRODUCTION = """# Programs that bridge does not change

**Does a program do the same when bridge watches it?** Programs of common libraries are run plain and in each of these ways.
What they compute is compared bit for bit, and so are exit status, stdout, stderr (warnings, tracebacks), and the ops that PyTorch's profiler
counts. `counted` is the run under that profiler.

`python -m tests.wild --write FILE` makes such a table; with `--costs` a cost is the median time of a step as a multiple of the plain one.
Eight of the programs run on each change of bridge, all of them each night."""


def row(compared: Compared, ways: list[Way]) -> str:
    """Return the row of a program."""
    costs = "; ".join(f"{name} {ratio:.2f}" for name, ratio in compared.costs.items())
    cells = (compared.program.name, compared.program.library, _verdict(compared, ways), costs)
    return f"| {' | '.join(cells)} |"


def _verdict(compared: Compared, ways: list[Way]) -> str:
    parts = [f"{way.name}: {_names(found)}" for way in ways if (found := compared.found[way.name])]
    if compared.unsteady:
        parts.insert(0, f"plain runs differ: {_names(compared.unsteady)}")
    return "; ".join(parts) or "none"


def _names(found: Iterable[Difference]) -> str:
    return ", ".join(dict.fromkeys(one.what for one in found))


def details(compared: Compared, ways: list[Way]) -> str:
    """Return every difference of a program in full, each text once."""
    of_text: dict[tuple[str, str], list[str]] = {}
    for one in compared.unsteady:
        of_text.setdefault((one.what, one.text), []).append("plain, twice")
    for way in ways:
        for one in compared.found[way.name]:
            of_text.setdefault((one.what, one.text), []).append(way.name)
    return "\n\n".join(
        f"{compared.program.name}, {', '.join(names)}: {what}\n\n```\n{_short(text)}\n```"
        for (what, text), names in of_text.items()
    )


def _short(text: str) -> str:
    """Return a text with paths as everybody knows them, without where this environment and this checkout lie."""
    text = text.replace(f"{Path(__file__).parents[2]}/", "")
    return re.sub(r"/[^\s'\":]*?/(site-packages|bridge)/", r"\1/", text)


def page(done: list[Compared], skipped: dict[str, str], ways: list[Way], libraries: str) -> str:
    """Return a page of all programs."""
    about = "\n".join(f"| {way.name} | {way.means} |" for way in ways)
    rows = "\n".join(row(one, ways) for one in done)
    parts = [
        INTRODUCTION,
        f"| way | what |\n|---|---|\n{about}",
        f"With {libraries}.",
        f"| program | library | what differs | cost |\n|---|---|---|---|\n{rows}",
    ]
    if skipped:
        parts.append("Not run: " + "; ".join(f"{name} ({why})" for name, why in skipped.items()))
    texts = [text for one in done if (text := details(one, ways))]
    if texts:
        parts += ["## What differs", *texts]
    return "\n\n".join(parts) + "\n"

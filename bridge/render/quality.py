"""What a capture is worth, for people and as JSON in the format bridge.quality/1."""

from __future__ import annotations

import json

import pandas as pd

from bridge.analyze.quality import BEST, Found, Quality
from bridge.render import advice, headings
from bridge.render import table as tables
from bridge.render.table import Look

FORMAT = "bridge.quality/1"
INDENT = "   "
OWN = "The profiler's own work, all of it and what counts:"


def sentence(one: Found) -> str:
    """Return what was measured, its figures written by their names."""
    figures = one.measured.figures
    return one.measured.said.format_map({n: _written(n, v) for n, v in figures.items()})


def _written(name: str, value: object) -> str:
    if isinstance(value, str):
        return tables.clean(value)
    return headings.text(name, pd.Series([value]))(value)


def line(quality: Quality) -> str:
    """Return the score and the reason that costs most, '' where there is none."""
    if not quality.reasons:
        return ""
    more = len(quality.reasons) - 1
    rest = f", and {more} more" if more else ""
    return f"{_head(quality)}: {sentence(quality.reasons[0])}{rest}"


def _head(quality: Quality) -> str:
    return f"capture quality {quality.score} of {BEST}"


def for_terminal(quality: Quality, look: Look) -> str:
    """Return the score, reason by reason what it costs, and the profiler's own work."""
    parts = [f"{_head(quality)}{_judged(quality)}\n"]
    for one in quality.reasons:
        lines = (
            f"−{one.cost} {one.reason.name}",
            f"{INDENT}{sentence(one)}",
            f"{INDENT}→ {one.reason.remedy}",
        )
        parts.append("".join(f"{text}\n" for text in lines))
    if len(quality.overhead):
        parts.append(f"{OWN}\n{tables.for_terminal('', quality.overhead, look)}")
    return "\n".join(parts)


def _judged(quality: Quality) -> str:
    return f", by {len(quality.judged)} reasons that apply"


def as_markdown(quality: Quality) -> str:
    """Return the same as Markdown."""
    parts = [f"{tables.escaped(', '.join(quality.source))}: {_head(quality)}{_judged(quality)}\n"]
    if quality.reasons:
        rows = "".join(
            f"| {one.cost} | `{one.reason.name}` | {tables.escaped(sentence(one))} | {tables.escaped(one.reason.remedy)} |\n"
            for one in quality.reasons
        )
        parts.append(f"| points | reason | what | what to do |\n| ---: | --- | --- | --- |\n{rows}")
    if len(quality.overhead):
        parts.append(f"{OWN}\n\n{tables.as_markdown('', quality.overhead)}")
    return "\n".join(parts)


def as_json(quality: Quality) -> str:
    """Return everything as one JSON object; times in ns."""
    document = {
        "format": FORMAT,
        "source": list(quality.source),
        "score": quality.score,
        "reasons": [
            {
                "reason": one.reason.name,
                "cost": one.cost,
                "value": one.measured.value,
                "unit": one.reason.unit,
                "said": sentence(one),
                "figures": dict(one.measured.figures),
                "remedy": one.reason.remedy,
            }
            for one in quality.reasons
        ],
        "judged": list(quality.judged),
        "overhead": advice.records(quality.overhead),
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def for_page(quality: Quality) -> dict[str, object]:
    """Return what the page shows at its head: the score, and the reason that costs most in words."""
    first = sentence(quality.reasons[0]) if quality.reasons else "nothing stands against it"
    return {"score": quality.score, "first": first}

"""Advice for people, and as JSON in the format bridge.advice/1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from bridge.analyze.advice import Advice, Advised, NotJudged, Rule
from bridge.render import headings, units
from bridge.render import table as tables
from bridge.render.table import Look

FORMAT = "bridge.advice/1"
INDENT = "   "


def sentence(one: Advice) -> str:
    """Return what was found, its figures written by their names."""
    figures = one.finding.figures
    return one.rule.said.format_map({name: _written(name, figures[name]) for name in figures})


def _written(name: str, value: object) -> str:
    if isinstance(value, str):
        return tables.clean(value)
    return headings.text(name, pd.Series([value]))(value)


def worth(one: Advice) -> str:
    """Return what it would save, '' where that is not known."""
    finding = one.finding
    if finding.ceiling_ns < 0:
        return ""
    most = f"at most {units.time(finding.ceiling_ns)}, {units.percent(one.share)} of {one.of}"
    return most if finding.saving_ns < 0 else f"saves about {units.time(finding.saving_ns)}, {most}"


def for_terminal(advised: Advised, look: Look, rows: int) -> str:
    """Return advice by advice with the first rows of its evidence, then what was not judged and why."""
    parts = [f"{_head(advised)}\n"]
    for number, one in enumerate(advised.advice, start=1):
        table = one.finding.evidence.head(rows)
        lines = [f"{number}. {one.rule.title} ({one.rule.name})", f"{INDENT}{sentence(one)}"]
        lines += [f"{INDENT}{said}" for said in (worth(one), f"→ {one.rule.remedy}") if said]
        shown = tables.for_terminal("", table, look, told=False) if rows else ""
        more = _more(len(one.finding.evidence) - len(table)) if rows else ""
        parts.append("".join(f"{line}\n" for line in lines) + shown + more)
    parts += ["".join(f"{line}\n" for line in _rest(advised))]
    return "\n".join(part for part in parts if part)


def as_markdown(advised: Advised, rows: int) -> str:
    """Return the same as Markdown."""
    parts = [f"{_head(advised)}\n"]
    for one in advised.advice:
        said = tables.escaped("; ".join(filter(None, (sentence(one), worth(one)))))
        text = (
            f"### {one.rule.title}\n\n{said}.\n\n**Do:** {one.rule.remedy}. (`{one.rule.name}`)\n"
        )
        table = tables.as_markdown("", one.finding.evidence.head(rows)) if rows else ""
        parts.append(f"{text}\n{table}" if table else text)
    parts += ["".join(f"- {line.strip()}\n" for line in _rest(advised))]
    return "\n".join(part for part in parts if part)


def for_page(advised: Advised) -> dict[str, list[Any]]:
    """Return what the page shows: each piece in words, and what could not be judged."""
    pieces = [
        {
            "title": one.rule.title,
            "said": sentence(one),
            "worth": worth(one),
            "remedy": one.rule.remedy,
            "share": one.share,
            "place": _place(one.finding.evidence),
        }
        for one in advised.advice
    ]
    left = [
        f"for want of {missing}: {', '.join(rules)}; to have it: {record}"
        for (missing, record), rules in _by_need(advised.not_judged).items()
    ]
    return {"pieces": pieces, "left": left}


def _place(evidence: pd.DataFrame) -> str:
    """Return the call site that shows most of it, '' where there is none."""
    return str(evidence["path"].iloc[0]) if "path" in evidence and len(evidence) else ""


def as_json(advised: Advised, rows: int) -> str:
    """Return everything as one JSON object; times in ns, -1 where nothing is known; ``rows`` of evidence each."""
    document = {
        "format": FORMAT,
        "source": list(advised.source),
        "wall_ns": advised.wall_ns,
        "advice": [_told(one, rows) for one in advised.advice],
        "small": [_told(one, 0) for one in advised.small],
        "passed": [rule.name for rule in advised.passed],
        "not_judged": [
            {"rule": one.rule.name, "missing": one.missing, "record": one.record}
            for one in advised.not_judged
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _told(one: Advice, rows: int) -> dict[str, Any]:
    finding = one.finding
    return {
        "rule": one.rule.name,
        "title": one.rule.title,
        "said": sentence(one),
        "figures": dict(finding.figures),
        "remedy": one.rule.remedy,
        "estimate": one.rule.estimate,
        "saving_ns": finding.saving_ns,
        "ceiling_ns": finding.ceiling_ns,
        "share": one.share,
        "evidence_rows": len(finding.evidence),
        "evidence": records(finding.evidence.head(rows)),
    }


def records(table: pd.DataFrame) -> list[Mapping[str, Any]]:
    """Return the rows of a table as objects, integers as integers."""
    columns = [table[c].tolist() for c in table.columns]
    return [dict(zip(table.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def as_list(rules: tuple[Rule, ...]) -> str:
    """Return every rule with when it fires, a line each."""
    width = max(len(rule.name) for rule in rules)
    return "".join(f"{rule.name:<{width}}  {rule.when}\n" for rule in rules)


def _head(advised: Advised) -> str:
    found = {one.rule.name for one in advised.advice}
    judged = found | {one.rule.name for one in advised.small} | {r.name for r in advised.passed}
    of = "a run" if advised.timeline else "kernels"
    return f"{len(found)} of the {len(judged)} rules that could be judged have something to say on {of} of {units.time(advised.wall_ns)}"


def _rest(advised: Advised) -> Iterator[str]:
    listed = {one.rule.name for one in advised.advice}
    small = dict.fromkeys(one.rule.name for one in advised.small if one.rule.name not in listed)
    if small:
        yield f"too small to list: {', '.join(small)}"
    for (missing, record), rules in _by_need(advised.not_judged).items():
        yield f"not judged for want of {missing}: {', '.join(rules)}"
        yield f"{INDENT}to have it: {record}"


def _by_need(left: tuple[NotJudged, ...]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for one in left:
        found.setdefault((one.missing, one.record), []).append(one.rule.name)
    return found


def _more(left: int) -> str:
    return f"{INDENT}… and {left} more rows\n" if left > 0 else ""

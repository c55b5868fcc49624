"""Advice for people, and as JSON in the format bridge.advice/1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bridge.analyze.core.catalog.lookup import host_tables
from bridge.analyze.core.table import Table
from bridge.render import failures, table_columns, units
from bridge.render import table as tables
from bridge.render.table import Look

if TYPE_CHECKING:
    from bridge.analyze.checks.advice import Advice, AdviceReport, NotJudged, RuleCheck

FORMAT = "bridge.advice/1"
INDENT = "   "


def sentence(advice: Advice) -> str:
    """Return what was found, with its figures."""
    return with_figures(advice.rule.text, advice.finding.figures)


def remedy(advice: Advice) -> str:
    """Return what to do."""
    return with_figures(advice.remedy, advice.finding.figures)


def with_figures(text: str, figures: Mapping[str, object]) -> str:
    """Return a text with its figures filled in, each written by its name."""
    return text.format_map({name: _figure(name, figures[name]) for name in figures})


def _figure(name: str, value: object) -> str:
    if isinstance(value, str):
        return tables.clean(value)
    return table_columns.figure(name, value)


def worth(advice: Advice) -> str:
    """Return what the advice would save, '' if unknown."""
    finding = advice.finding
    if finding.ceiling_ns < 0:
        return ""
    share = f"{units.percent(advice.share)} of {advice.whole}"
    limit = f"at most {units.time(finding.ceiling_ns)} ({share})"
    if finding.saving_ns < 0:
        return f"could save {limit}"
    return f"could save about {units.time(finding.saving_ns)}, {limit}"


def same_time(advice: Advice) -> str:
    """Return which other rules tell of the same time, '' if none does."""
    return f"the same time: {', '.join(advice.same_time)}" if advice.same_time else ""


def place_text(advice: Advice) -> str:
    """Return the line of the program that the largest row is called from, '' if it is not known."""
    place = advice.place
    if place is None:
        return ""
    return f"called from {place.function} at {place.file}:{place.line}".replace("from  at", "at")


def for_terminal(advised: AdviceReport, look: Look, rows: int) -> str:
    """Return each advice with the first rows of its evidence, then the rules not judged."""
    parts = [f"{head(advised)}\n"]
    for number, advice in enumerate(advised.advice, start=1):
        table = advice.finding.evidence.head(rows)
        lines = [
            f"{number}. {advice.rule.title} ({advice.rule.name})",
            f"{INDENT}{sentence(advice)}",
        ]
        texts = (worth(advice), f"→ {remedy(advice)}", place_text(advice), same_time(advice))
        lines += [f"{INDENT}{text}" for text in texts if text]
        evidence = tables.for_terminal("", table, look) if rows else ""
        more = _more(len(advice.finding.evidence) - len(table)) if rows else ""
        parts.append("".join(f"{line}\n" for line in lines) + evidence + more)
    parts += ["".join(f"{line}\n" for line in rest(advised))]
    return "\n".join(part for part in parts if part)


def as_markdown(advised: AdviceReport, rows: int) -> str:
    """Return what `for_terminal` shows as Markdown."""
    parts = [f"{head(advised)}\n"]
    for advice in advised.advice:
        told = (sentence(advice), worth(advice), place_text(advice), same_time(advice))
        message = tables.escaped("; ".join(filter(None, told)))
        text = f"### {advice.rule.title}\n\n{message}.\n\n**Do:** {remedy(advice)}. (`{advice.rule.name}`)\n"
        table = tables.as_markdown("", advice.finding.evidence.head(rows)) if rows else ""
        parts.append(f"{text}\n{table}" if table else text)
    parts += ["".join(f"- {line.strip()}\n" for line in rest(advised))]
    return "\n".join(part for part in parts if part)


def for_page(advised: AdviceReport) -> dict[str, list[Any]]:
    """Return the entries of the page: the texts of each advice, and the rules not judged."""
    pieces = [
        {
            "title": advice.rule.title,
            "text": sentence(advice),
            "worth": worth(advice),
            "remedy": remedy(advice),
            "same_time": same_time(advice),
            "share": advice.share,
            "place": _place(advice.finding.evidence),
            "source": place_text(advice),
        }
        for advice in advised.advice
    ]
    left = [
        f"not checked (needs {missing}): {', '.join(rules)}; to record this: {record}"
        for (missing, record), rules in _by_need(advised.not_judged).items()
    ]
    return {"pieces": pieces, "left": left}


def _place(evidence: Table) -> str:
    """Return the path of the op with most of it, '' if there is none."""
    return str(evidence["path"][0]) if "path" in evidence and len(evidence) else ""


def as_json(advised: AdviceReport, rows: int) -> str:
    """Return all as one JSON object; times in ns, -1 if unknown; ``rows`` rows of evidence each."""
    document = {
        "format": FORMAT,
        "source": list(advised.source),
        "wall_ns": advised.wall_ns,
        "failures": failures.as_objects(advised.failures),
        "advice": [_as_object(advice, rows) for advice in advised.advice],
        "small": [_as_object(advice, 0) for advice in advised.small],
        "passed": [rule.name for rule in advised.passed],
        "not_judged": [
            {
                "rule": not_judged.rule.name,
                "missing": not_judged.missing,
                "record": not_judged.record,
            }
            for not_judged in advised.not_judged
        ],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _as_object(advice: Advice, rows: int) -> dict[str, Any]:
    finding = advice.finding
    return {
        "rule": advice.rule.name,
        "title": advice.rule.title,
        "text": sentence(advice),
        "figures": dict(finding.figures),
        "remedy": remedy(advice),
        "same_time": list(advice.same_time),
        "estimate": advice.rule.estimate,
        "saving_ns": finding.saving_ns,
        "ceiling_ns": finding.ceiling_ns,
        "share": advice.share,
        "place": advice.place and asdict(advice.place),
        "evidence_rows": len(finding.evidence),
        "evidence": records(finding.evidence.head(rows)),
    }


def records(table: Table) -> list[Mapping[str, Any]]:
    """Return the rows of a table as objects; integers stay integers."""
    columns = [table[c].tolist() for c in table.columns]
    return [dict(zip(table.columns, row, strict=True)) for row in zip(*columns, strict=True)]


def as_list(rules: tuple[RuleCheck, ...]) -> str:
    """Return a line per rule: its name, and when it applies."""
    width = max(len(rule.name) for rule in rules)
    return "".join(f"{rule.name:<{width}}  {rule.when}\n" for rule in rules)


def head(advised: AdviceReport) -> str:
    """Return the line above all advice."""
    advised_rules = {advice.rule.name for advice in advised.advice}
    judged = (
        advised_rules
        | {name for advice in advised.advice for name in advice.same_time}
        | {advice.rule.name for advice in advised.small}
        | {rule.name for rule in advised.passed}
    )
    findings = "1 finding" if len(advised_rules) == 1 else f"{len(advised_rules)} findings"
    rules = "1 rule" if len(judged) == 1 else f"{len(judged)} rules"
    if not advised.has_work:
        nothing = "no work on a GPU to judge"
        if advised.is_part:
            nothing = "nothing ran on a GPU in the selected time"
        return f"{nothing}: {findings} ({rules} checked)"
    subject = "a run" if advised.timeline else "kernels"
    length = f" of {units.time(advised.wall_ns)}" if advised.wall_ns else ""
    line = f"{findings} in {subject}{length} ({rules} checked)"
    if advised.gpus == 1:
        return line
    return (
        f"{line}. Sentences are about the GPU with most of it, tables about all {advised.gpus} GPUs"
    )


def rest(advised: AdviceReport) -> Iterator[str]:
    """Yield the lines on rules without listed advice; without work on a GPU, what shows the host."""
    if not advised.has_work:
        yield f"advice judges work on a GPU; {host_tables(advised.ranges)}"
    listed = {advice.rule.name for advice in advised.advice}
    small = dict.fromkeys(
        advice.rule.name for advice in advised.small if advice.rule.name not in listed
    )
    if small:
        yield f"found, but below the threshold of --over: {', '.join(small)}"
    for (missing, record), rules in (
        _by_need(advised.not_judged).items() if advised.has_work else ()
    ):
        yield f"not checked (needs {missing}): {', '.join(rules)}"
        yield f"{INDENT}to record this: {record}"


def _by_need(not_judged_rules: tuple[NotJudged, ...]) -> dict[tuple[str, str], list[str]]:
    result: dict[tuple[str, str], list[str]] = {}
    for not_judged in not_judged_rules:
        result.setdefault((not_judged.missing, not_judged.record), []).append(not_judged.rule.name)
    return result


def _more(count: int) -> str:
    return f"{INDENT}… and {count} more row{'s' if count > 1 else ''}\n" if count > 0 else ""

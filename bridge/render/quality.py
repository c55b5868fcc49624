"""The quality of a capture, for people and as JSON in the format bridge.quality/1."""

from __future__ import annotations

import json

from bridge.analyze.checks.quality import BEST, Deduction, Quality
from bridge.render import advice, device_work, failures
from bridge.render import table as tables
from bridge.render.table import Look

FORMAT = "bridge.quality/1"
INDENT = "   "
NOT_RECORDED = "not-recorded"  # the kind of a failure
MOST_MESSAGES = 5  # of the profiler, and lines of the program
NO_SCORE = "capture quality not rated: {}"
# Words for scores, by the least that they stand for; docs/doctor.md says what each means.
VERDICTS = ((90, "good"), (60, "usable"), (0, "poor"))
OVERHEAD = "Overhead of the profiler; only what falls into the work of the program (inside) lowers the score:"


def sentence(deduction: Deduction) -> str:
    """Return what was measured, with its figures."""
    measured = deduction.measured
    return advice.with_figures(measured.text or deduction.reason.text, measured.figures)


def remedy(deduction: Deduction) -> str:
    """Return what to do."""
    return advice.with_figures(deduction.remedy, deduction.measured.figures)


def line(quality: Quality) -> str:
    """Return the score and the reason that costs most, '' if there is none."""
    if quality.score is None:
        return _score(quality)
    if not quality.reasons:
        return ""
    more = len(quality.reasons) - 1
    rest = f"; {more} more reason{'s' if more > 1 else ''}" if more else ""
    return f"{_score(quality)}: {sentence(quality.reasons[0])}{rest}"


def head(quality: Quality) -> str:
    """Return the score, and how many checks apply to the capture."""
    return f"{_score(quality)} ({len(quality.judged)} checks apply)"


def _score(quality: Quality) -> str:
    if quality.nothing:
        return NO_SCORE.format(device_work.in_short(quality.nothing))
    return score_text(quality.score or 0)


def score_text(score: int) -> str:
    """Return the score with a word for it."""
    word = next(word for least, word in VERDICTS if score >= least)
    return f"capture quality {score} of {BEST}, {word}"


def words(quality: Quality) -> list[str]:
    """Return the sentences on what failed, on what ran if next to nothing did, and what program and profiler say."""
    told = [one for one in quality.failures if not (quality.nothing and one.kind == NOT_RECORDED)]
    ran = [device_work.what_ran(quality.nothing)] if quality.nothing else []
    said = failures.quoted(quality.failures)
    printed = [text for text in quality.printed if text not in said]
    messages = [*(quality.nothing.messages if quality.nothing else ()), *quality.messages]
    others = dict.fromkeys(text for text in messages if not text.startswith(tuple(said)))
    return [
        *failures.lines(told),
        *ran,
        *device_work.quoted(device_work.PROGRAM, printed[:MOST_MESSAGES]),
        *device_work.quoted(device_work.PROFILER, [*others][:MOST_MESSAGES]),
    ]


def for_terminal(quality: Quality, look: Look) -> str:
    """Return the score, the cost of each reason, and the profiler's overhead."""
    parts = [f"{head(quality)}\n"]
    if said := words(quality):
        parts.append("".join(f"{line}\n" for line in said))
    for deduction in quality.reasons:
        points = "" if quality.score is None else f"−{deduction.cost} "
        lines = (
            f"{points}{deduction.reason.name}",
            f"{INDENT}{sentence(deduction)}",
            f"{INDENT}→ {remedy(deduction)}",
        )
        parts.append("".join(f"{text}\n" for text in lines))
    if len(quality.overhead):
        parts.append(f"{OVERHEAD}\n{tables.for_terminal('', quality.overhead, look)}")
    return "\n".join(parts)


def as_markdown(quality: Quality) -> str:
    """Return what `for_terminal` shows as Markdown."""
    parts = [f"{tables.escaped(', '.join(quality.source))}: {head(quality)}\n"]
    if said := words(quality):
        parts.append("".join(f"- {tables.escaped(line)}\n" for line in said))
    if quality.reasons:
        is_rated = quality.score is not None
        rows = "".join(
            f"| {f'{deduction.cost} | ' if is_rated else ''}`{deduction.reason.name}` "
            f"| {tables.escaped(sentence(deduction))} | {tables.escaped(remedy(deduction))} |\n"
            for deduction in quality.reasons
        )
        points, line = ("points | ", "---: | ") if is_rated else ("", "")
        head_rows = f"| {points}reason | what | what to do |\n| {line}--- | --- | --- |\n"
        parts.append(f"{head_rows}{rows}")
    if len(quality.overhead):
        parts.append(f"{OVERHEAD}\n\n{tables.as_markdown('', quality.overhead)}")
    return "\n".join(parts)


def as_json(quality: Quality) -> str:
    """Return all as one JSON object; times in ns."""
    document = {
        "format": FORMAT,
        "source": list(quality.source),
        "score": quality.score,
        "covers": ["host", "gpu"] if quality.on_gpu else ["host"],
        "reasons": [
            {
                "reason": deduction.reason.name,
                "cost": None if quality.score is None else deduction.cost,
                "value": deduction.measured.value,
                "unit": deduction.unit,
                "text": sentence(deduction),
                "figures": dict(deduction.measured.figures),
                "remedy": remedy(deduction),
            }
            for deduction in quality.reasons
        ],
        "judged": list(quality.judged),
        "messages": list(quality.messages),
        "printed": list(quality.printed),
        "overhead": advice.records(quality.overhead),
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def for_page(quality: Quality) -> dict[str, object]:
    """Return the entries of the page's head: the score, and the reason that costs most."""
    if quality.score is None:
        return {"score": None, "first": _score(quality)}
    best = "nothing stands against it"
    first = sentence(quality.reasons[0]) if quality.reasons else best
    return {"score": quality.score, "first": first}

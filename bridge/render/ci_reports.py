"""What gates found as JUnit's XML, which most CI servers show."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from bridge.analyze.advice import RULES, Advice, Advised, NotJudged
from bridge.analyze.compare.gates import Verdict
from bridge.package import VERSION
from bridge.render.advice import records, sentence, worth

SUITE = "bridge diff"
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


def as_junit(verdicts: Sequence[Verdict]) -> str:
    """Return a test suite with a case for each thing judged."""
    failed = sum(not verdict.passed for verdict in verdicts)
    counted = f'tests="{len(verdicts)}" failures="{failed}" errors="0" skipped="0" time="0"'
    cases = "".join(_case(verdict) for verdict in verdicts)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="{SUITE}" {counted}>\n'
        f' <testsuite name="{SUITE}" {counted}>\n{cases} </testsuite>\n</testsuites>\n'
    )


def _case(verdict: Verdict) -> str:
    head = f"  <testcase classname={_quoted(verdict.gate)} name={_quoted(verdict.subject)}"
    line = _writable(verdict.line)
    if verdict.passed:
        return f'{head} time="0">\n   <system-out>{escape(line)}</system-out>\n  </testcase>\n'
    failure = f'<failure type="regression" message={_quoted(line)}>{escape(line)}</failure>'
    return f'{head} time="0">\n   {failure}\n  </testcase>\n'


def _quoted(text: str) -> str:
    return quoteattr(_writable(text))


def _writable(text: str) -> str:
    return UNWRITABLE.sub("\ufffd", text)


# -- Advice as SARIF 2.1.0 (OASIS), which code-scanning tools show


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LARGE = 0.05  # of the run: from here on a warning


def as_sarif(advised: Advised, rows: int) -> str:
    """Return one run of the tool: a result for each advice, at its op, a notification for each rule not judged.

    A result's place is the report; the op with most of it stands as the logical location.
    """
    run = {
        "tool": {"driver": _driver()},
        "artifacts": [{"location": {"uri": _uri(name)}} for name in advised.source],
        "results": [_result(one, advised.source, rows) for one in advised.advice],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [_notification(one) for one in advised.not_judged],
            }
        ],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _driver() -> dict[str, Any]:
    return {
        "name": "nsight-bridge",
        "version": VERSION,
        "rules": [
            {
                "id": rule.name,
                "shortDescription": {"text": rule.title},
                "fullDescription": {"text": rule.when},
                "help": {"text": rule.remedy},
                "properties": {"source": rule.source, "estimate": rule.estimate},
            }
            for rule in RULES
        ],
    }


def _result(one: Advice, source: tuple[str, ...], rows: int) -> dict[str, Any]:
    finding = one.finding
    text = ". ".join(filter(None, (sentence(one), worth(one), one.rule.remedy)))
    return {
        "ruleId": one.rule.name,
        "ruleIndex": [rule.name for rule in RULES].index(one.rule.name),
        "level": "warning" if one.share >= LARGE else "note",
        "message": {"text": f"{one.rule.title}: {text}"},
        "locations": [_location(one, source)],
        "properties": {
            "saving_ns": finding.saving_ns,
            "ceiling_ns": finding.ceiling_ns,
            "share": one.share,
            "evidence": records(finding.evidence.head(rows)),
        },
    }


def _location(one: Advice, source: tuple[str, ...]) -> dict[str, Any]:
    place: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(source[0]), "index": 0},
            "region": {"startLine": 1},
        }
    }
    evidence = one.finding.evidence
    if len(evidence) and "op" in evidence:
        op = str(evidence["op"].iloc[0])
        path = str(evidence["path"].iloc[0]) if "path" in evidence else op
        place["logicalLocations"] = [{"name": op, "fullyQualifiedName": path, "kind": "function"}]
    return place


def _notification(one: NotJudged) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {"text": f"not judged for want of {one.missing}; to have it: {one.record}"},
        "associatedRule": {"id": one.rule.name},
    }


def _uri(name: str) -> str:
    """Return a file's name as a relative reference: RFC 3986 keeps blanks and more out of it."""
    from urllib.parse import quote  # only this output needs it

    return quote(name)

"""Reports for CI servers: verdicts of gates as JUnit XML, and advice as SARIF."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from bridge.analyze.checks.advice import RULES, Advice, AdviceReport, NotJudged, RuleCheck
from bridge.analyze.checks.advice.places import Place
from bridge.analyze.compare.gates import Verdict
from bridge.knowledge.package import VERSION
from bridge.render.advice import records, remedy, sentence, worth

SUITE = "bridge diff"
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML 1.0


def as_junit(verdicts: Sequence[Verdict]) -> str:
    """Return a test suite with a case per verdict."""
    failed = sum(not verdict.passed for verdict in verdicts)
    counters = f'tests="{len(verdicts)}" failures="{failed}" errors="0" skipped="0" time="0"'
    cases = "".join(_case(verdict) for verdict in verdicts)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="{SUITE}" {counters}>\n'
        f' <testsuite name="{SUITE}" {counters}>\n{cases} </testsuite>\n</testsuites>\n'
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


# -- Advice as SARIF 2.1.0 (OASIS), the format of code-scanning tools


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
ROOT = "%SRCROOT%"  # the name of the folder with the sources, as code-scanning tools know it
LARGE = 0.05  # share of the run from which on an advice is a warning


def as_sarif(advised: AdviceReport, rows: int, root: str = "") -> str:
    """Return one run of the tool, with a result per advice and a notification per rule not judged.

    The physical location of a result is the line of the program, where it is known, and else the report;
    its logical location is the op with most of it. Files below the folder ``root`` are relative to it.
    """
    run: dict[str, Any] = {
        "tool": {"driver": _driver(_rules(advised))},
        "artifacts": [{"location": {"uri": _uri(name)}} for name in advised.source],
        "results": [_result(advice, advised, rows, root) for advice in advised.advice],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    _notification(not_judged) for not_judged in advised.not_judged
                ],
            }
        ],
    }
    if root:
        run["originalUriBaseIds"] = {ROOT: {"uri": _file_uri(f"{root.rstrip('/')}/")}}
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _rules(advised: AdviceReport) -> list[RuleCheck]:
    """Return the built-in rules, and others that the report names."""
    found = [advice.rule for advice in advised.advice]
    rules = (*RULES, *found, *(one.rule for one in advised.not_judged))
    return list({rule.name: rule for rule in rules}.values())


def _driver(rules: Sequence[RuleCheck]) -> dict[str, Any]:
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
            for rule in rules
        ],
    }


def _result(advice: Advice, advised: AdviceReport, rows: int, root: str) -> dict[str, Any]:
    finding = advice.finding
    text = ". ".join(filter(None, (sentence(advice), worth(advice), remedy(advice))))
    report = _location(advice, advised.source)
    of_code = {} if advice.place is None else {"relatedLocations": [{"id": 0, **report}]}
    return {
        "ruleId": advice.rule.name,
        "ruleIndex": [rule.name for rule in _rules(advised)].index(advice.rule.name),
        "level": "warning" if advice.share >= LARGE else "note",
        "message": {"text": f"{advice.rule.title}: {text}"},
        "locations": [_location_in_code(advice.place, report, root)] if advice.place else [report],
        **of_code,
        "properties": {
            "saving_ns": finding.saving_ns,
            "ceiling_ns": finding.ceiling_ns,
            "share": advice.share,
            "evidence": records(finding.evidence.head(rows)),
        },
    }


def _location(advice: Advice, source: tuple[str, ...]) -> dict[str, Any]:
    place: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(source[0]), "index": 0},
            "region": {"startLine": 1},
        }
    }
    evidence = advice.finding.evidence
    if len(evidence) and "op" in evidence:
        op = str(evidence["op"][0])
        path = str(evidence["path"][0]) if "path" in evidence else op
        place["logicalLocations"] = [{"name": op, "fullyQualifiedName": path, "kind": "function"}]
    return place


def _location_in_code(place: Place, report: dict[str, Any], root: str) -> dict[str, Any]:
    """Return the location of a line of the program, with the logical location of the report's."""
    folder = f"{root.rstrip('/')}/"
    if place.file.startswith(folder):
        artifact = {"uri": _uri(place.file.removeprefix(folder)), "uriBaseId": ROOT}
    elif place.file.startswith("/"):
        artifact = {"uri": _file_uri(place.file)}
    else:
        artifact = {"uri": _uri(place.file), "uriBaseId": ROOT}
    physical = {"artifactLocation": artifact, "region": {"startLine": place.line}}
    return {**report, "physicalLocation": physical}


def _file_uri(path: str) -> str:
    return f"file://{_uri(path)}"


def _notification(not_judged: NotJudged) -> dict[str, Any]:
    return {
        "level": "note",
        "message": {
            "text": f"not checked (needs {not_judged.missing}); to record this: {not_judged.record}"
        },
        "associatedRule": {"id": not_judged.rule.name},
    }


def _uri(name: str) -> str:
    """Return a file's name as a relative reference (RFC 3986), with special characters escaped."""
    from urllib.parse import quote  # only SARIF needs it

    return quote(name)

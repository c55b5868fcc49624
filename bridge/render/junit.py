"""What gates found as JUnit's XML, which most CI servers show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from bridge.analyze.compare.gates import Verdict

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

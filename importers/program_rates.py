"""Find how much a program says that it did per second, such as samples or tokens."""

from __future__ import annotations

import re

TAIL = 65_536  # characters of an output, in which a rate is looked for
UNITS = (
    "samples? tokens? images? imgs? sequences? seqs? examples? frames? sentences? words? requests? queries items?"
    " records? tasks? rows? tok"
).replace(" ", "|")
NUMBER = r"(?P<number{0}>\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?[kKM]?)"
UNIT = rf"(?P<unit{{0}}>{UNITS})"
SECOND = r"(?:s|secs?|seconds?)\b"
RATE = re.compile(
    # 59.19 samples/second, 1.2k tokens per sec, 12.9 task/s
    rf"(?<![\w.]){NUMBER.format(1)} ?{UNIT.format(1)} ?(?:/|per) ?{SECOND}"
    # throughput_samples_per_sec': 152.32, tokens/s: 1,234
    rf"|\b(?:[a-z]+_)*{UNIT.format(2)}(?:_per_|/| per ){SECOND}['\"]?\s*[:=]\s*{NUMBER.format(2)}",
    re.IGNORECASE,
)
ANY_DIGIT = re.compile("[1-9]")  # a rate of 0 tells nothing
LARGE = 1_000  # a number that has no digits behind its point
DIGITS = 6  # of a number that is kept as it is printed


def rate_text(output: str) -> str:
    """Return the last rate that an output states, such as ``59.19 samples/s``; "" for none."""
    last = None
    for match in RATE.finditer(output[-TAIL:]):
        last = match if ANY_DIGIT.search(match["number1"] or match["number2"]) else last
    if last is None:
        return ""
    form = "1" if last["number1"] else "2"
    return f"{_shortened(last[f'number{form}'])} {last[f'unit{form}'].lower()}/s"


def _shortened(number: str) -> str:
    """Return a long number with all of its digits before the point, or four digits in all."""
    if len(number) <= DIGITS or not number.replace(".", "", 1).isdigit():
        return number
    return f"{float(number):.4g}" if float(number) < LARGE else f"{float(number):.0f}"

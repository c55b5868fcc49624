"""What Nsight Compute advises of kernels: its own rules, with its own estimates, in the time that the kernels took."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from bridge.analyze.advice.rule import NSIGHT_COMPUTE, Finding, Rule, of_activities
from bridge.analyze.advice.seen import Seen
from bridge.analyze.metrics.columns import WHOLE, is_named, largest
from bridge.analyze.metrics.measured import SURE
from bridge.join.order import Ints
from importers import frames

ESTIMATE = "none; at most what Nsight Compute estimates"
KIND = "OPT"  # of what a rule says: something may be gained
SAME_LAUNCH = SURE.index("geometry")  # how sure a match must be: another grid has other trouble
PER_CENT = 100.0
SENTENCE = re.compile(r"(?<=[.!?])\s+")
LONGEST = 240  # characters of what is quoted


def of_kernels(seen: Seen) -> Iterator[Finding]:
    """Each rule of Nsight Compute that estimates what kernels would gain as a whole, with the kernels that it is about."""
    rules, sure = seen.report.metrics.rules, seen.report.metrics.sure
    activity, place = largest(seen.joined)
    estimate = np.where(is_named(rules["scope"], WHOLE), rules["speedup"].to_numpy(), 0.0)[place]
    wanted = seen.of_kind(frames.KERNEL, frames.GRAPH)[activity] & (estimate > 0)
    wanted &= is_named(rules["kind"], KIND)[place]
    if len(sure):
        wanted &= sure[activity] <= SAME_LAUNCH
    activity, place = activity[wanted], place[wanted]
    share = np.minimum(estimate[wanted] / PER_CENT, 1.0)
    saved = np.rint(seen.time[activity] * share).astype(np.int64)
    rule, names = frames.codes(rules["rule"])[place], rules["rule"].cat.categories
    for code in np.unique(rule).tolist():  # a turn per rule
        own = np.flatnonzero(rule == code)
        said = str(rules["text"].iloc[place[own[np.argmax(saved[own])]]])
        yield _finding(seen, str(names[code]), said, activity[own], saved[own])


def _finding(seen: Seen, name: str, said: str, activity: Ints, saved: Ints) -> Finding:
    """Return what a rule says of kernels, with what it estimates that each would save."""
    shown = of_activities(seen, activity, saved).rename(columns={"total_ns": "saves_ns"})
    figures = {"rule": name, "kernels": len(activity), "says": shortened(said)}
    return Finding(figures, shown, seen.most_work(activity, saved))


def shortened(text: str) -> str:
    """Return the first sentences of a text, as many as are read on."""
    first, *others = SENTENCE.split(" ".join(text.split()))
    for sentence in others:
        if len(first) + 1 + len(sentence) > LONGEST:
            return first
        first = f"{first} {sentence}"
    return first


RULES = (
    Rule(
        "nsight-compute",
        "Nsight Compute advises on kernels",
        "a rule of Nsight Compute estimates how much of its time a measured kernel would save; each such rule is a piece of advice",
        "{rule} of Nsight Compute, on kernels: {kernels}; of the one that would gain most: {says}",
        "bridge report --by rule has all that it says; Nsight Compute itself shows where in the kernel",
        ESTIMATE,
        NSIGHT_COMPUTE,
        ("kernels", "counters"),
        of_kernels,
    ),
)

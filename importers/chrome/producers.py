"""What the traces of each profiler mean: the mappings of ``producers.toml`` as objects."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.importers.chrome.events import ASYNCHRONOUS, TraceEvents
from bridge.importers.frames import Names
from bridge.importers.records import record

Mask = NDArray[np.bool_]
Expression = re.Pattern[str]

OP, CALL, DEVICE, SKIP = RESULTS = ("op", "call", "device", "skip")
TEXTS = ("process", "thread", "category", "name")  # what the expressions of a rule are searched in


@record
class Signs:
    """By what a trace is known to be of a producer: all that are given must be there."""

    metadata: str = ""
    process: Expression | None = None
    argument: str = ""
    keys: tuple[str, ...] = ()

    def fit(self, head: Mapping[str, Any], events: TraceEvents) -> bool:
        """Return whether a trace shows all signs."""
        metadata = head.get("metadata")
        processes = events.process_names.values()
        checks = (
            not self.metadata or (type(metadata) is dict and self.metadata in metadata),
            self.process is None or any(map(self.process.search, processes)),
            not self.argument or events.slices.has_argument(self.argument).any(),
            not self.keys or events.keys == frozenset(self.keys),
        )
        return all(checks)


@record
class Rule:
    """Which slices a rule fits, and what they become."""

    becomes: str
    expressions: Mapping[str, Expression]
    argument: str = ""
    arrows: tuple[str, ...] = ()
    asynchronous: bool = False
    fallback: bool = False

    def fits(self, trace: TraceEvents, labels: Mapping[str, Sequence[str]]) -> Mask:
        """Return the slices that the rule fits; ``labels`` has their `TEXTS`."""
        slices = trace.slices
        mask = trace.begin_arrows(self.arrows) if self.arrows else np.ones(len(slices), bool)
        for text, expression in self.expressions.items():
            mask &= _matches(labels[text], expression)
        if self.argument:
            mask &= slices.has_argument(self.argument)
        if self.asynchronous:
            mask &= slices.kind == ASYNCHRONOUS
        return mask


@record
class Producer:
    """A profiler that writes traces; `producers.toml` describes the fields."""

    name: str
    sign: Signs = field(default_factory=Signs)
    rules: tuple[Rule, ...] = ()
    one_process: bool = False
    device: Expression | None = None
    stream: Expression | None = None
    correlation: str = ""
    flows: tuple[str, ...] = ()
    link: str = ""
    per_call: Expression | None = None
    numbers: Mapping[str, tuple[str, Expression]] = field(default_factory=dict)
    epoch: str = ""
    times: str = ""

    def results(
        self, trace: TraceEvents, labels: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Mask]:
        """Return the slices of each of `RESULTS`."""
        slices = trace.slices
        code = np.full(len(slices), RESULTS.index(OP))
        free, is_fallback = np.ones(len(slices), bool), np.zeros(len(slices), bool)
        for rule in self.rules:
            mask = free & rule.fits(trace, labels)
            code[mask], is_fallback[mask] = RESULTS.index(rule.becomes), rule.fallback
            free &= ~mask
        device = code == RESULTS.index(DEVICE)
        if (device & ~is_fallback).any():
            code[device & is_fallback] = RESULTS.index(SKIP)
        return {result: code == place for place, result in enumerate(RESULTS)}


GENERATOR = "nsight-bridge"  # as `bridge trace` names itself in its traces
UNKNOWN = Producer("a program that bridge does not know")
OWN = Producer("bridge itself")
NAMELESS = UNKNOWN, OWN  # whose slices nothing is known of


def producer_of(head: Mapping[str, Any], events: TraceEvents) -> Producer:
    """Return the producer of a trace, `UNKNOWN` if it shows the signs of none."""
    other = head.get("otherData")
    if type(other) is dict and other.get("generator") == GENERATOR:
        return OWN
    return next((p for p in producers() if p.sign.fit(head, events)), UNKNOWN)


@cache
def producers() -> tuple[Producer, ...]:
    """Return all known producers, in the order in which they are tried."""
    text = files("bridge.importers.chrome").joinpath("producers.toml").read_text(encoding="utf-8")
    return tuple(map(_producer, tomllib.loads(text)["producer"]))


def _producer(data: dict[str, Any]) -> Producer:
    sign = {key: _checked(key, value) for key, value in data.pop("sign").items()}
    rules = tuple(map(_rule, data.pop("rule", [])))
    numbers = {
        column: (argument, re.compile(expression))
        for column, (argument, expression) in data.pop("numbers", {}).items()
    }
    fields = {key: _checked(key, value) for key, value in data.items()}
    return Producer(sign=Signs(**sign), rules=rules, numbers=numbers, **fields)


def _rule(data: dict[str, Any]) -> Rule:
    return Rule(
        becomes=data["becomes"],
        expressions={text: re.compile(data[text]) for text in TEXTS if text in data},
        argument=data.get("argument", ""),
        arrows=tuple(data.get("arrows", ())),
        asynchronous=data.get("phase") == "asynchronous",
        fallback=data.get("fallback", False),
    )


def _checked(key: str, value: Any) -> Any:
    """Return an expression compiled, a list as a tuple, and anything else unchanged."""
    if key in {"process", "device", "stream", "per_call"}:
        return re.compile(value)
    return tuple(value) if type(value) is list else value


def _matches(texts: Sequence[str], expression: Expression) -> Mask:
    """Return where an expression matches; each distinct text is searched once."""
    return Names.of(texts).matching(expression.search)

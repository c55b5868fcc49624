"""A back end that keeps NVTX's own stacks, one per thread and domain, and refuses unlawful pops."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from threading import get_ident
from typing import NamedTuple

from bridge.annotate import stack
from bridge.annotate.label import Label


class Slice(NamedTuple):
    label: Label
    payload: float
    thread: int
    parents: tuple[str, ...]  # names, outermost first, in the same domain
    number: int


class Recorder:
    name = "recorder"
    version = "1"

    def __init__(self) -> None:
        self.stacks: defaultdict[tuple[int, str | None], list[tuple[Label, float]]] = defaultdict(
            list
        )
        self.slices: list[Slice] = []
        self.popped: list[str] = []
        self.interrupts: list[Callable[[], None]] = []  # each runs in the midst of a push
        self.marks: list[tuple[Label, float, tuple[str, ...]]] = []
        self.phases: dict[int, tuple[Label, float]] = {}  # those that are open
        self.phases_ended: list[str] = []

    def push(self, label: Label, payload: float) -> None:
        held = self._held(label.domain)
        parents = tuple(parent.name for parent, _ in held)
        self.slices.append(Slice(label, payload, get_ident(), parents, len(self.slices)))
        held.append((label, payload))
        while self.interrupts:
            self.interrupts.pop()()

    def pop(self, domain: str | None) -> None:
        assert self._held(domain), "nothing to pop on this thread in this domain"
        self.popped.append(self._held(domain).pop()[0].name)

    def mark(self, label: Label, payload: float) -> None:
        self.marks.append((label, payload, self.open(label.domain)))

    def start(self, label: Label, payload: float) -> int:
        number = len(self.phases) + len(self.phases_ended)
        self.phases[number] = (label, payload)
        return number

    def end(self, label: Label, handle: int) -> None:
        assert self.phases.pop(handle)[0] == label
        self.phases_ended.append(label.name)

    def _held(self, domain: str | None) -> list[tuple[Label, float]]:
        return self.stacks[get_ident(), domain]

    def open(self, domain: str | None = None) -> tuple[str, ...]:
        """Names of what is open on this thread, outermost first; what `Stack.live` says must agree."""
        live = [
            one if isinstance(one, tuple) else (one.label, one.payload)
            for one in stack.current().live
        ]
        live = [(label, payload) for label, payload in live if label.domain == domain]
        assert live == self._held(domain)
        return tuple(label.name for label, _ in live)

    def all_closed(self) -> bool:
        return not any(self.stacks.values()) and not self.phases

    def names(self) -> list[str]:
        return [piece.label.name for piece in self.slices]

    def calls(self) -> Counter[str]:
        """Count distinct call ids by name."""
        ids = {(piece.label.name, piece.payload) for piece in self.slices}
        return Counter(
            name for name, payload in ids if int(payload) >> 48 == stack.CALL_ID_BASE >> 48
        )

    def parents(self, name: str) -> set[tuple[str, ...]]:
        return {piece.parents for piece in self.slices if piece.label.name == name}

"""What kernels are, told by their names: kind, library, Tensor Cores.

The invariant: every name has an answer, `other` of no library if no rule knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

from bridge.knowledge.kernels.rules import NO, OPEN, PRODUCTS, UNKNOWN, Rule, Rules, rules

LONGEST = 16_384  # what follows in a longer name is not looked at


class Kernel(NamedTuple):
    """What a kernel is; ``library`` is '' where it is not known, ``tensor_cores`` YES, NO or UNKNOWN."""

    kind: str
    library: str
    tensor_cores: int


UNTOLD = Kernel("other", "", UNKNOWN)


def kinds_of(names: Iterable[str], own: Rules | None = None) -> list[Kernel]:
    """Return what each of some kernels is by its name, demangled if possible; ``own`` rules come first."""
    known = _known(own)
    return [_kernel(name[:LONGEST], known) for name in names]


@cache
def built_in() -> Rules:
    """Return the rules that come with this package."""
    return rules(
        files("bridge.knowledge.kernels").joinpath("rules.toml").read_text(encoding="utf-8")
    )


@lru_cache(maxsize=8)
def _known(own: Rules | None) -> Rules:
    return built_in() if own is None else own + built_in()


def matching(name: str, known: Rules) -> Iterator[tuple[str, Rule]]:
    """Give the rules that match a name, with their library; the first one decides."""
    for library in known.libraries:
        if library.known(name):
            for rule in library.rules:
                if rule.found(name):
                    yield library.name, rule


@lru_cache(maxsize=1 << 16)
def _kernel(name: str, known: Rules) -> Kernel:
    library, rule = next(matching(name, known), ("", None))
    if rule is None:
        return UNTOLD
    if rule.tensor_cores != UNKNOWN:
        return Kernel(rule.kind, library, rule.tensor_cores)
    return Kernel(rule.kind, library, _used(name, rule.kind, known))


def _used(name: str, kind: str, known: Rules) -> int:
    if kind not in PRODUCTS:
        return UNKNOWN if kind in OPEN else NO
    return next((used for pattern, used in known.uses if pattern.found(name)), UNKNOWN)

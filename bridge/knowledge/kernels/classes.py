"""What kernels are, told by their names: kind, library, Tensor Cores.

The invariant: every name has an answer, `other` of no library if no rule knows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

from bridge.knowledge.formulas.call import keys
from bridge.knowledge.formulas.registry import formula
from bridge.knowledge.kernels.rules import NO, OPEN, PRODUCTS, UNKNOWN, Rule, Rules, rules

# -- The ops that a compiler fused into a kernel, read from the name that it gave it


FUSED = re.compile(
    r"(?:\A|_)(?:triton_[a-z]{3}|cpp|pallas)_fused_(\w*?)_?\d+(?:_\d[\dcde]*)?\Z", re.ASCII
)
MOST_WORDS = 400
Ways = dict[
    int, tuple[tuple[int, int, int], int]
]  # start of the last op: cost, start of the one before


def source_ops(name: str) -> tuple[str, ...]:
    """Return the ops that the name of a kernel says it is made of; () for names that say nothing of it.

    Names of ops may hold ``_``: taken are the fewest that PyTorch knows, in the order that they are sorted in.
    What is no op of PyTorch stays in one piece.
    """
    found = FUSED.search(name[-8_192:])
    words = found[1].split("_") if found and found[1] else []
    return tuple(_ops(words)) if len(words) <= MOST_WORDS else ()


@cache
def known_ops() -> frozenset[str]:
    """Return the names of PyTorch's ops."""
    text = files("bridge.knowledge.kernels").joinpath("ops.txt").read_text(encoding="utf-8")
    return frozenset(name for line in text.splitlines() if line[:1] != "#" for name in line.split())


@cache
def _longest() -> int:
    return max(name.count("_") for name in known_ops()) + 1


def _ops(words: Sequence[str]) -> Iterator[str]:
    """Split words into the fewest ops, those that stand in order before others, unknown words only where needed."""
    ways: list[Ways] = [{0: ((0, 0, 0), 0)}]
    for end in range(1, len(words) + 1):
        ways.append({})
        for start in range(max(0, end - _longest()), end):
            known = "_".join(words[start:end]) in known_ops()
            if known or start == end - 1:
                ways[end][start] = _best(words, ways[start], start, end, unknown=not known)
    yield from _together(_walked(words, ways))


def _best(
    words: Sequence[str], before: Ways, start: int, end: int, *, unknown: bool
) -> tuple[tuple[int, int, int], int]:
    """Return the least cost of ending with these words, and where the op before them begins."""
    last = "_".join(words[start:end])
    return min(
        (
            (
                cost[0] + unknown,
                cost[1] + (start > 0 and _op(words, at, start) >= last),
                cost[2] + 1,
            ),
            at,
        )
        for at, (cost, _) in before.items()
    )


def _op(words: Sequence[str], start: int, end: int) -> str:
    return "_".join(words[start:end])


def _walked(words: Sequence[str], ways: Sequence[Ways]) -> list[str]:
    """Return the ops on the cheapest way, in order."""
    found: list[str] = []
    end = len(words)
    start = min(ways[end], key=lambda at: ways[end][at][0]) if end else 0
    while end:
        found.append(_op(words, start, end))
        start, end = ways[end][start][1], start
    return found[::-1]


def _together(ops: Sequence[str]) -> Iterator[str]:
    """Give the ops, unknown words that stand side by side as one."""
    unknown: list[str] = []
    for op in ops:
        if op in known_ops():
            yield from ["_".join(unknown)] if unknown else []
            unknown = []
            yield op
        else:
            unknown.append(op)
    yield from ["_".join(unknown)] if unknown else []


# -- Which ops could use Tensor Cores: products of matrices, convolutions, attention, recurrent layers


KINDS = frozenset(["matmul", "convolution", "attention", "recurrent"])  # of formulas
ALSO = frozenset(  # products that have no formula
    "chain_matmul linalg_multi_dot linalg_matmul bilinear _trilinear multi_head_attention_forward"
    " _native_multi_head_attention _transformer_encoder_layer_fwd conv_tbc"
    " _cudnn_rnn_backward _thnn_fused_lstm_cell _thnn_fused_gru_cell".split()
)
NOT = frozenset("mv addmv dot inner vdot outer ger addr".split())  # of vectors


NODE = re.compile(r"\b([A-Z][A-Za-z0-9]*?)Backward\d*\Z")  # of PyTorch's autograd
CAPITAL = re.compile(r"(?<!\A)(?=[A-Z])")


def eligible(op: str) -> bool:
    """Tell whether the op of this name could use Tensor Cores, given the right types and shapes.

    A node of PyTorch's autograd is taken for the op that it is the backward of: ``AddmmBackward0`` for ``addmm``.
    """
    node = NODE.search(op)
    return any(map(_eligible, _forward(node[1]) if node else (op,)))


def _forward(node: str) -> tuple[str, str]:
    name = CAPITAL.sub("_", node).lower()
    return name, f"_{name}"


def _eligible(op: str) -> bool:
    names = set(keys(op))
    if names & NOT:
        return False
    found = formula(op)
    return bool(names & ALSO) or (found is not None and found.kind in KINDS)


# -- What kernels are, told by their names: kind, library, Tensor Cores


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

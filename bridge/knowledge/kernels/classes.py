"""Classify kernels by their names: kind, library, Tensor Cores, and the ops of fused kernels.

Every name has a class: `other` without a library if no rule matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from bridge.knowledge.formulas.call import keys
from bridge.knowledge.formulas.table import formula
from bridge.knowledge.kernels.rules import NO, PRODUCTS, UNDECIDED, UNKNOWN, Rule, Rules, rules
from bridge.knowledge.package import data_file

# -- Ops of fused kernels


FUSED = re.compile(
    r"(?:\A|_)(?:triton_[a-z]{3}|cpp|pallas)_fused_(\w*?)_?\d+(?:_\d[\dcde]*)?\Z", re.ASCII
)
MAX_WORDS = 400
Splits = dict[
    int, tuple[tuple[int, int, int], int]
]  # by start of the last op: cost, start of the op before


def source_ops(name: str) -> tuple[str, ...]:
    """Return the ops that a compiler fused into a kernel, by its name; () if it has none.

    Names of ops may contain ``_``. The split has the fewest ops that PyTorch knows, in sorted
    order. Words that are no op of PyTorch stay in one piece.
    """
    match = FUSED.search(name[-8_192:])
    words = match[1].split("_") if match and match[1] else []
    return tuple(_ops(words)) if len(words) <= MAX_WORDS else ()


@cache
def known_ops() -> frozenset[str]:
    """Return the names of PyTorch's ops."""
    text = data_file("bridge.knowledge.kernels", "ops.txt")
    return frozenset(name for line in text.splitlines() if line[:1] != "#" for name in line.split())


@cache
def _max_words_of_op() -> int:
    return max(name.count("_") for name in known_ops()) + 1


def _ops(words: Sequence[str]) -> Iterator[str]:
    """Split words into the fewest ops: sorted if possible, unknown words only where needed."""
    splits: list[Splits] = [{0: ((0, 0, 0), 0)}]
    for end in range(1, len(words) + 1):
        splits.append({})
        for start in range(max(0, end - _max_words_of_op()), end):
            is_known = "_".join(words[start:end]) in known_ops()
            if is_known or start == end - 1:
                splits[end][start] = _best_split(
                    words, splits[start], start, end, unknown=not is_known
                )
    yield from _merge_unknown(_ops_of_best(words, splits))


def _best_split(
    words: Sequence[str], before: Splits, start: int, end: int, *, unknown: bool
) -> tuple[tuple[int, int, int], int]:
    """Return the minimal cost of a split ending with these words, and the op before them."""
    last = "_".join(words[start:end])
    return min(
        (
            (
                cost[0] + unknown,
                cost[1] + (start > 0 and _join(words, previous, start) >= last),
                cost[2] + 1,
            ),
            previous,
        )
        for previous, (cost, _) in before.items()
    )


def _join(words: Sequence[str], start: int, end: int) -> str:
    return "_".join(words[start:end])


def _ops_of_best(words: Sequence[str], splits: Sequence[Splits]) -> list[str]:
    """Return the ops of the best split, in order."""
    result: list[str] = []
    end = len(words)
    start = min(splits[end], key=lambda place: splits[end][place][0]) if end else 0
    while end:
        result.append(_join(words, start, end))
        start, end = splits[end][start][1], start
    return result[::-1]


def _merge_unknown(ops: Sequence[str]) -> Iterator[str]:
    """Yield the ops; adjacent unknown words become one."""
    unknown: list[str] = []
    for op in ops:
        if op in known_ops():
            yield from ["_".join(unknown)] if unknown else []
            unknown = []
            yield op
        else:
            unknown.append(op)
    yield from ["_".join(unknown)] if unknown else []


# -- Ops that could use Tensor Cores


KINDS = frozenset(["matmul", "convolution", "attention", "recurrent"])  # of formulas
OTHER_PRODUCTS = frozenset(  # products without a formula
    "chain_matmul linalg_multi_dot linalg_matmul bilinear _trilinear multi_head_attention_forward"
    " _native_multi_head_attention _transformer_encoder_layer_fwd conv_tbc"
    " _cudnn_rnn_backward _thnn_fused_lstm_cell _thnn_fused_gru_cell".split()
)
VECTOR_PRODUCTS = frozenset("mv addmv dot inner vdot outer ger addr".split())  # products of vectors


NODE = re.compile(r"\b([A-Z][A-Za-z0-9]*?)Backward\d*\Z")  # of PyTorch's autograd
CAPITAL = re.compile(r"(?<!\A)(?=[A-Z])")


def eligible(op: str) -> bool:
    """Return whether an op could use Tensor Cores, given suitable types and shapes.

    A node of PyTorch's autograd counts as its forward op: ``AddmmBackward0`` as ``addmm``.
    """
    node = NODE.search(op)
    return any(map(_is_eligible, _forward_names(node[1]) if node else (op,)))


def _forward_names(node: str) -> tuple[str, str]:
    name = CAPITAL.sub("_", node).lower()
    return name, f"_{name}"


def _is_eligible(op: str) -> bool:
    names = set(keys(op))
    if names & VECTOR_PRODUCTS:
        return False
    match = formula(op)
    return bool(names & OTHER_PRODUCTS) or (match is not None and match.kind in KINDS)


# -- Kernels


MAX_NAME_LENGTH = 16_384  # the rest of longer names is ignored


class Kernel(NamedTuple):
    """The class of a kernel; ``library`` may be '', ``tensor_cores`` is YES, NO or UNKNOWN."""

    kind: str
    library: str
    tensor_cores: int


OTHER_KERNEL = Kernel("other", "", UNKNOWN)


def kinds_of(names: Iterable[str], user_rules: Rules | None = None) -> list[Kernel]:
    """Return the class of each kernel by its name, if possible demangled; user rules first."""
    rules = _with_built_in(user_rules)
    return [_kernel(name[:MAX_NAME_LENGTH], rules) for name in names]


@cache
def built_in_rules() -> Rules:
    """Return the rules of this package."""
    return rules(
        data_file("bridge.knowledge.kernels", "rules.toml"),
        limited=False,
    )


@lru_cache(maxsize=8)
def _with_built_in(user_rules: Rules | None) -> Rules:
    return built_in_rules() if user_rules is None else user_rules + built_in_rules()


def matching_rules(name: str, rules: Rules) -> Iterator[tuple[str, Rule]]:
    """Yield the rules that match a name, with their library; the first one decides."""
    for library in rules.libraries:
        if library.applies_to(name):
            for rule in library.rules:
                if rule.matches(name):
                    yield library.name, rule


@lru_cache(maxsize=1 << 16)
def _kernel(name: str, rules: Rules) -> Kernel:
    library, rule = next(matching_rules(name, rules), ("", None))
    if rule is None:
        return OTHER_KERNEL
    if rule.tensor_cores != UNKNOWN:
        return Kernel(rule.kind, library, rule.tensor_cores)
    return Kernel(rule.kind, library, _tensor_cores(name, rule.kind, rules))


def _tensor_cores(name: str, kind: str, rules: Rules) -> int:
    if kind not in PRODUCTS:
        return UNKNOWN if kind in UNDECIDED else NO
    return next((value for pattern, value in rules.uses if pattern.matches(name)), UNKNOWN)

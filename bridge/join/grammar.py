"""The texts of ranges, read: an op, its kind, and what is said of the single call.

PyTorch writes what changes from call to call after the name, whoever wrote that name; the name itself
is read by one of the dialects. No text is ever evaluated, and none is lost: ``written(parse(text)) == text``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bridge.join import dialects
from bridge.join.dialects import PER_CALL, Arguments, Reading

KINDS = (
    *("range", "operator", "module", "step"),
    *("optimizer", "dataloader", "communication", "source"),
)

# The per-call part starts at the first key that a value follows, and ends with a value; as in
# importers.percall, which cuts whole columns of texts.
KEY = re.compile(rf", ({'|'.join(PER_CALL)}) = (?=[0-9\-\[])")
ENDS_A_VALUE = tuple("0123456789]")
BRACKET_OR_INTEGER = re.compile(r"[][()]|-?[0-9]{1,20}")
DEEPEST = 16  # brackets in brackets: PyTorch writes two
IN_CALLS = ("seq", "op_id")  # only calls that PyTorch itself observes have these

# A word is bounded by what is no letter: ``_softmax_backward_data`` has it, ``backwards-compatible`` and
# ``RegisterPostBackwardFunction``, which runs in the forward pass, have not. What is called
# ``forward_backward`` is around both.
WORD = re.compile(r"(?<![a-z])backward(?![a-z])", re.IGNORECASE | re.ASCII)
BOTH = re.compile(r"(?<![a-z])(?:forward|fwd)(?![a-z])", re.IGNORECASE | re.ASCII)
NODES = re.compile(  # of the graph that autograd runs backward
    r"autograd::engine::evaluate_function: .+"
    r"|torch::autograd::(?:AccumulateGrad|CopyBackwards|CopySlices)"
    r"|\w+Backward\d*",
    re.DOTALL,
)
NAMES_OF_CODE = ("module", "source")  # a module may be called backward_lstm


@dataclass(frozen=True)
class Label:
    """A range's text, read: the op without what is of the single call, and that as ``arguments``, in order.

    ``backward`` says that by its name it runs in the backward pass; ``dialect`` which dialect read it.
    """

    op: str
    kind: str
    backward: bool
    arguments: Arguments
    dialect: str


def parse(text: str) -> Label:
    """Read the text of a range; any text can be read."""
    name, call = _cut(text)
    dialect, found = dialects.read(name)
    observed = dialect.name == "plain" and any(key in IN_CALLS for key, _ in call)
    kind = "operator" if observed else found.kind
    backward = dialect.name == "backward" or (
        kind not in NAMES_OF_CODE and _runs_backward(found.op)
    )
    return Label(found.op, kind, backward, found.arguments + call, dialect.name)


def written(label: Label) -> str:
    """Return the text that a label was read from; raise KeyError if no dialect has its dialect's name."""
    own = tuple(pair for pair in label.arguments if pair[0] not in PER_CALL)
    call = (pair for pair in label.arguments if pair[0] in PER_CALL)
    name = dialects.write(label.dialect, Reading(label.op, label.kind, own))
    return name + "".join(f", {key} = {_nested(value, key)}" for key, value in call)


def _cut(text: str) -> tuple[str, Arguments]:
    """Return a text's name, and PyTorch's per-call part as arguments."""
    keys = list(KEY.finditer(text)) if text.endswith(ENDS_A_VALUE) else []
    if not keys:
        return text, ()
    ends = [key.start() for key in keys[1:]] + [len(text)]
    values = (text[key.end() : end] for key, end in zip(keys, ends, strict=True))
    call = tuple((key[1], _value(value, key[1])) for key, value in zip(keys, values, strict=True))
    return text[: keys[0].start()], call


def _value(text: str, key: str) -> object:
    """Return the integer or the nested tuples that a value is, or its text if that is written otherwise."""
    found = _structure(text)
    return text if found is None or _nested(found, key) != text else found


def _structure(text: str) -> object:
    """Return the integer or the nested tuples in a text, None for unbalanced brackets; skip all else."""
    stack: list[list[object]] = [[]]
    for part in BRACKET_OR_INTEGER.findall(text):
        if part in "[(":
            stack.append([])
        elif part not in "])":
            stack[-1].append(int(part))
        elif len(stack) > 1:
            done = tuple(stack.pop())
            stack[-1].append(done)
        if len(stack) > DEEPEST:
            return None
    return stack[0][0] if len(stack) == 1 and stack[0] else None


def _nested(value: object, key: str, *, depth: int = 0) -> str:
    """Write a value as PyTorch does: ``[[2, 3], []]``, but ``[(38,0), (0,-1)]`` for the ids of inputs."""
    if not isinstance(value, tuple):
        return str(value)
    pair = depth > 0 and key == "input_op_ids"
    opening, between, closing = ("(", ",", ")") if pair else ("[", ", ", "]")
    return opening + between.join(_nested(v, key, depth=depth + 1) for v in value) + closing


def _runs_backward(op: str) -> bool:
    return bool(NODES.fullmatch(op) or (WORD.search(op) and not BOTH.search(op)))

"""Lists the mutants of a source text: each changes one expression or drops one statement of a function.

A mutant is known by its function and its text, not by its line or its module, so that a note about it
stays with it while code moves.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha1

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
NAMES = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
}
TEXTS = {"left": "right", "right": "left", "first": "last", "last": "first"}
# Arguments whose value is a matter of speed, of safety against our own mistakes, or of wording.
NOT_BEHAVIOUR = {
    "strict",
    "frozen",
    "slots",
    "copy",
    "kw_only",
    "stacklevel",
    "maxsize",
    "help",
    "observed",
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Mutant:
    """One change of one file; ``lines`` are those of the statement it stands in, counted from 1."""

    path: str
    function: str
    before: str
    after: str
    number: int
    span: tuple[int, int, int, int]
    lines: tuple[int, int]

    @property
    def name(self) -> str:
        """What it is known by, wherever its function stands."""
        again = f" ({self.number})" if self.number > 1 else ""
        return f"{self.function}: {self.before} → {self.after}{again}"

    @property
    def lot(self) -> str:
        """What decides whether a sample holds it: the same for the same text on every machine."""
        return sha1(self.name.encode()).hexdigest()

    def applied(self, text: str) -> str:
        """Return the source with the change."""
        lines = text.encode().splitlines(keepends=True)
        first, start, last, end = self.span
        head, tail = b"".join(lines[: first - 1]), b"".join(lines[last:])
        inside = lines[first - 1][:start] + self.after.encode() + lines[last - 1][end:]
        return (head + inside + tail).decode()


def mutants(path: str, text: str) -> Iterator[Mutant]:
    """List every mutant of a module, in the order of the text."""
    seen: Counter[str] = Counter()
    for function, node, statement, condition in _expressions(ast.parse(text)):
        for changed in _changes(node, condition):
            mutant = _mutant(path, function, node, changed, statement)
            seen[mutant.name] += 1
            fields = {**mutant.__dict__, "number": seen[mutant.name]}
            yield Mutant(**fields)


def _mutant(path: str, function: str, node: ast.AST, changed: str, statement: ast.stmt) -> Mutant:
    span = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
    nested = getattr(statement, "body", None)
    last = node.end_lineno if nested else statement.end_lineno  # a header, not the block below it
    return Mutant(path, function, ast.unparse(node), changed, 1, span, (statement.lineno, last))


# The function's name, a node, the statement that the node is in, and whether the node decides a branch.
Place = tuple[str, ast.AST, ast.stmt, bool]


def _expressions(tree: ast.Module) -> Iterator[Place]:
    """Walk the bodies of all functions, and the constants of modules and classes."""
    for name, body in _functions(tree, ""):
        for statement in body:
            if not _is_text(statement):
                yield from _nodes(name, statement, statement, condition=False)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, list[ast.stmt]]]:
    """List the name and the body of each function, and each constant by itself."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FUNCTIONS):
            yield f"{prefix}{child.name}", child.body
        elif isinstance(child, ast.Assign) and isinstance(child.targets[0], ast.Name):
            yield f"{prefix}{child.targets[0].id}", [child]
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, (ast.If, ast.Try, ast.With)):
            yield from _functions(child, prefix)


def _nodes(name: str, node: ast.AST, statement: ast.stmt, *, condition: bool) -> Iterator[Place]:
    if isinstance(node, (ast.JoinedStr, ast.Import, ast.ImportFrom, ast.Raise, ast.Global)):
        return  # words of messages; places in f-strings are not told before Python 3.12
    if isinstance(node, ast.keyword) and node.arg in NOT_BEHAVIOUR:
        return
    if not isinstance(node, (ast.arguments, ast.AnnAssign)) and hasattr(node, "lineno"):
        yield name, node, statement, condition
    for field, value in ast.iter_fields(node):
        if field in {
            "annotation",
            "returns",
            "decorator_list",
            "args" if isinstance(node, FUNCTIONS) else "",
        }:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child):
                inner = child if isinstance(child, ast.stmt) else statement
                yield from _nodes(name, child, inner, condition=field in {"test", "ifs"})


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _changes(node: ast.AST, condition: bool) -> Iterator[str]:
    """List what may stand in a node's place."""
    if condition and not isinstance(
        node, (ast.Compare, ast.UnaryOp)
    ):  # those are turned round below
        yield f"(not ({ast.unparse(node)}))"
    if type(node) in _CHANGES:
        yield from _CHANGES[type(node)](node)


def _compare(node: ast.Compare) -> Iterator[str]:
    for place, operator in enumerate(node.ops):
        yield _with(
            node,
            lambda new, at=place, op=operator: new.ops.__setitem__(at, COMPARISONS[type(op)]()),
        )


def _boolean(node: ast.BoolOp) -> Iterator[str]:
    other = ast.Or if isinstance(node.op, ast.And) else ast.And
    yield _with(node, lambda new: setattr(new, "op", other()))


def _binary(node: ast.BinOp) -> Iterator[str]:
    if type(node.op) in ARITHMETIC and not isinstance(node.left, ast.JoinedStr):
        yield _with(node, lambda new: setattr(new, "op", ARITHMETIC[type(node.op)]()))


def _unary(node: ast.UnaryOp) -> Iterator[str]:
    if isinstance(node.op, (ast.Not, ast.USub, ast.Invert)):
        yield f"({ast.unparse(node.operand)})"


def _constant(node: ast.Constant) -> Iterator[str]:
    if isinstance(node.value, bool):
        yield repr(not node.value)
    elif isinstance(node.value, int):
        yield repr(node.value + 1)
    elif isinstance(node.value, str) and node.value in TEXTS:
        yield repr(TEXTS[node.value])


def _call(node: ast.Call) -> Iterator[str]:
    def rename(new: ast.Call) -> None:
        field = "id" if isinstance(new.func, ast.Name) else "attr"
        setattr(new.func, field, NAMES[getattr(new.func, field)])

    if getattr(node.func, "id", getattr(node.func, "attr", None)) in NAMES:
        yield _with(node, rename)


def _dropped(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.AugAssign) or isinstance(node.value, ast.Call):
        yield "pass"


def _with(node: ast.AST, change: object) -> str:
    new = copy.deepcopy(node)
    change(new)
    text = ast.unparse(new)
    return text if isinstance(new, ast.stmt) else f"({text})"


_CHANGES = {
    ast.Compare: _compare,
    ast.BoolOp: _boolean,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.Expr: _dropped,
    ast.AugAssign: _dropped,
}

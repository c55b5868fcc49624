"""Hooks at the begin and the end of a library's functions, which the program cannot notice.

A function stays the same object with the same name, signature, file and lines. Only its code is
compiled again, with a call before its first line and one at its end. So tracebacks, warnings with
a ``stacklevel`` and the text of the function are what they are without hooks. `torch.compile` traces
the original lines.
"""

from __future__ import annotations
import __future__

import ast
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from textwrap import dedent
from threading import Lock
from types import CodeType, FunctionType
from typing import Any

from bridge.annotate.emitter import warn

Begin = Callable[..., Any]  # gets the arguments of the function, in the order of its parameters
End = Callable[[Any, Any], Any]  # gets what `begin` returned and the result, and returns the result

FAILED = object()  # is given to `end` in place of a result where the function raised

# These texts stand for the two hooks and for `FAILED` until the code is compiled.
BEGIN, END, FAILED_TEXT = "bridge: begin", "bridge: end", "bridge: failed"
VARIABLE = ".bridge"  # a local variable for what `begin` returned; no name of Python
FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
LOCALS = "<locals>"  # in the qualified name of a function in a function
COMPILING = "torch.compiler.is_dynamo_compiling()"  # true where `torch.compile` traces


class FunctionHook:
    """Calls ``begin`` and ``end`` around each call of a Python function while it is enabled.

    A function has at most one. Neither of the two may raise. Raises OSError where the text of the
    function is not installed, TypeError for another kind of function, ValueError if the text is not that
    of its code.
    """

    def __init__(self, function: FunctionType, begin: Begin, end: End) -> None:
        self.function = function
        self._original = function.__code__
        self._hooked = _hooked_code(function, {BEGIN: begin, END: end, FAILED_TEXT: FAILED})

    def enable(self) -> None:
        """Call the hooks from the next call on."""
        self.function.__code__ = self._hooked

    def disable(self) -> None:
        """Restore the original code, unless other code has replaced it since."""
        if self.function.__code__ is self._hooked:
            self.function.__code__ = self._original


class Hooks:
    """Hooks that are enabled together, as long as anyone requests them; ``make`` returns them at first use."""

    def __init__(self, kind: str, make: Callable[[], Iterable[FunctionHook]]) -> None:
        self._kind, self._make = kind, make
        self._hooks: list[FunctionHook] | None = None
        self._requests = 0
        self._changing = Lock()

    def request(self, by: int) -> None:
        """Count one more (+1) or one less (-1) who wants them; warns if they cannot be made."""
        with self._changing:
            if self._hooks is None:
                self._hooks = self._made()
            before, self._requests = self._requests, self._requests + by
            if self._requests and not before:
                for hook in self._hooks:
                    hook.enable()
            elif before and not self._requests:
                for hook in self._hooks:
                    hook.disable()

    def _made(self) -> list[FunctionHook]:
        try:
            return list(self._make())
        except Exception as error:  # noqa: BLE001 (the program runs without them)
            warn(f"{self._kind} are not recorded: {type(error).__name__}: {error}", 4)
            return []


def _hooked_code(function: FunctionType, hooks: dict[str, Any]) -> CodeType:
    from inspect import getsourcelines, isgeneratorfunction  # slow to import

    original = function.__code__
    lines, first = getsourcelines(original)  # of the function, not of one that it wraps
    tree = ast.parse(dedent("".join(lines)))
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or isgeneratorfunction(function):
        raise TypeError(f"{function.__qualname__} is not a plain function")
    _move(tree, first - 1, len(lines[0]) - len(lines[0].lstrip()))
    _surround(definition, is_torch="torch" in function.__globals__)
    owner = function.__qualname__.rpartition(".")[0].rpartition(".")[2]
    if owner == LOCALS:
        names = [ast.Name(name, ast.Store()) for name in original.co_freevars]
        given: list[ast.stmt] = [ast.Assign([name], ast.Constant(None)) for name in names]
        no_parameters = ast.arguments([], [], None, [], [], None, [])
        tree.body = [ast.FunctionDef("outer", no_parameters, [*given, definition], [])]
    elif owner:  # names with two underscores and `super()` depend on the class
        tree.body = [ast.ClassDef(owner, [], [], [definition], [])]
    tree = ast.fix_missing_locations(tree)
    futures = original.co_flags & FUTURES
    compiled = compile(tree, original.co_filename, "exec", flags=futures, dont_inherit=True)
    result = next((c for c in _codes(compiled) if c.co_name == original.co_name), compiled)
    parameters = slice(original.co_argcount + original.co_kwonlyargcount)
    if (result.co_freevars, result.co_varnames[parameters]) != (
        original.co_freevars,
        original.co_varnames[parameters],
    ):
        raise ValueError(f"{function.__qualname__} is not compiled from its text")
    constants = (hooks.get(c, c) if isinstance(c, str) else c for c in result.co_consts)
    return result.replace(
        co_consts=tuple(constants),
        co_qualname=original.co_qualname,
        co_firstlineno=original.co_firstlineno,
    )


def _move(tree: ast.AST, lines: int, columns: int) -> None:
    """Give the nodes of a text their places in its file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt | ast.expr | ast.excepthandler | ast.arg | ast.keyword):
            node.lineno += lines
            node.end_lineno = (node.end_lineno or 0) + lines
            node.col_offset += columns
            node.end_col_offset = (node.end_col_offset or 0) + columns


def _surround(definition: ast.FunctionDef, *, is_torch: bool) -> None:
    """Put the hooks around the body of a function."""
    parameters, body = definition.args, definition.body
    listed = [*parameters.posonlyargs, *parameters.args, parameters.vararg, *parameters.kwonlyargs]
    names = [parameter.arg for parameter in (*listed, parameters.kwarg) if parameter]
    begin = ast.Assign([ast.Name(VARIABLE, ast.Store())], _call(BEGIN, *map(_name, names)))
    ended = [*map(_Returns().visit, deepcopy(body)), ast.Return(_end(ast.Constant(None)))]
    failed = [ast.Expr(_end(ast.Constant(FAILED_TEXT))), ast.Raise()]
    hooked = [
        begin,
        ast.Try(ended, [ast.ExceptHandler(_name("BaseException"), None, failed)], [], []),
    ]
    if is_torch:
        is_compiling = ast.parse(COMPILING, mode="eval").body
        for node in ast.walk(is_compiling):
            ast.copy_location(node, definition)
        hooked = [ast.If(is_compiling, [*body, ast.Return()], []), *hooked]
    definition.body, definition.decorator_list = hooked, []


class _Returns(ast.NodeTransformer):
    """Passes what a function returns through `end`."""

    def visit_Return(self, node: ast.Return) -> ast.Return:
        value = node.value or ast.Constant(None)
        return ast.copy_location(ast.Return(_end(value)), node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node  # an inner function returns to this one


def _end(value: ast.expr) -> ast.Call:
    return _call(END, _name(VARIABLE), value)


def _call(hook: str, *arguments: ast.expr) -> ast.Call:
    # Python warns of a text that is called, unless it is the result of an expression. To ignore that warning
    # would have all warnings of the program printed once more.
    text = ast.IfExp(ast.Constant(True), ast.Constant(hook), ast.Constant(None))
    return ast.Call(text, list(arguments), [])


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)

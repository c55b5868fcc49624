"""Read the plain data of a pickle or of JSON, as PyTorch dumps snapshots of memory, annotations and flight records.

Loading a pickle can run any code. Here only dicts, lists, tuples, texts, numbers, booleans and
None are created; any other instruction raises an error.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
from typing import Any

from bridge.importers.errors import NotAReport

PICKLE = re.compile(rb"\x80[\x02-\x05]")
KEY_TYPES = frozenset(
    [str, int]
)  # of dicts; hashing deeply nested tuples would overflow the C stack
KEY_PLACES = {"SETITEM": slice(-2, -1), "SETITEMS": slice(0, None, 2), "DICT": slice(0, None, 2)}
PLAIN_INSTRUCTIONS = (
    "PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT"
    " BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_LIST LIST APPEND"
    " APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS GET BINGET LONG_BINGET PUT BINPUT"
    " LONG_BINPUT MEMOIZE"
).split()
# What pickle and json raise for damaged files.
DAMAGE = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError, OverflowError,
    AssertionError, RecursionError, struct.error,
)  # fmt: skip


def parse(name: str, data: bytes, what: str) -> Any:
    """Return what a file holds; raises NotAReport for damage, and for a pickle of more than plain data.

    ``what`` is what the user calls such a file, as ``snapshot``.
    """
    return (_unpickle if PICKLE.match(data) else _parse_json)(name, data, what)


def _instruction(name: str) -> Any:
    run = pickle._Unpickler.dispatch[getattr(pickle, name)[0]]  # noqa: SLF001 - not public
    return _with_checked_keys(run, KEY_PLACES[name]) if name in KEY_PLACES else run


def _with_checked_keys(run: Any, place: slice) -> Any:
    """Return an instruction that raises an error for keys of other types on the stack."""

    def checked(reader: Any) -> None:
        if not KEY_TYPES.issuperset(map(type, reader.stack[place])):
            raise pickle.UnpicklingError("a key that is not a text")
        run(reader)

    return checked


class _PlainUnpickler(pickle._Unpickler):  # noqa: SLF001 - the one in C creates objects
    """Unpickle plain data; the table has no instruction that can do more."""

    dispatch = {  # noqa: RUF012 - as in the base class
        getattr(pickle, name)[0]: _instruction(name) for name in PLAIN_INSTRUCTIONS
    }

    def find_class(self, module: str, name: str) -> Any:
        """Raise UnpicklingError: no class may be loaded."""
        raise pickle.UnpicklingError(f"refers to {module}.{name}")

    def persistent_load(self, pid: object) -> Any:
        """Raise UnpicklingError: no object outside the pickle may be loaded."""
        raise pickle.UnpicklingError(f"refers to an object outside: {pid!r}")


def _unpickle(name: str, data: bytes, what: str) -> Any:
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except KeyError as error:
        if isinstance(error.args[0], int):
            raise NotAReport(
                f"{name}: a pickle with more than plain data, so no {what};"
                " none of its code was run"
            ) from error
        raise NotAReport(_damaged_message(name, error, what)) from error
    except DAMAGE as error:
        raise NotAReport(_damaged_message(name, error, what)) from error


def _parse_json(name: str, data: bytes, what: str) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig", errors="replace"), strict=False)
    except DAMAGE as error:
        raise NotAReport(_damaged_message(name, error, what)) from error


def _damaged_message(name: str, error: Exception, what: str) -> str:
    text = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
    return f"{name}: cut off or damaged ({text}); copy or dump the {what} again"

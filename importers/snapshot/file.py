"""The file of a snapshot: whether it is one, and the plain data in it.

A pickle can run whatever it likes when it is loaded as pickles are. Here nothing but dicts, lists, tuples,
texts, numbers, booleans and None is made of one: any other instruction ends the reading.
"""

from __future__ import annotations

import io
import json
import pickle
import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from importers.errors import NotAReport
from importers.kineto.file import GZIP, unpacked

PICKLE = re.compile(rb"\x80[\x02-\x05]")
OPENING = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*(?:\{\s*"(segments|device_traces|allocator_settings|external_annotations)"'
    rb'|\[\s*\{\s*"(device|address|total_size)")\s*:'
)
HEAD = 4096
KEYS = frozenset([str, int])  # of dicts: tuples would be hashed in C, however deep they are
KEYED = {"SETITEM": slice(-2, -1), "SETITEMS": slice(0, None, 2), "DICT": slice(0, None, 2)}
LARGEST = 2 << 30  # bytes: what is made of them takes some ten times as much memory
PLAIN = (
    "PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT"
    " BINFLOAT STRING BINSTRING SHORT_BINSTRING UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_LIST LIST APPEND"
    " APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS GET BINGET LONG_BINGET PUT BINPUT"
    " LONG_BINPUT MEMOIZE"
).split()
# What damage brings about: numbers that are cut, stacks that are empty, memo entries that are none, keys that cannot be hashed,
# texts that are no UTF-8, integers of 5000 digits, brackets a thousand deep.
DAMAGE = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, LookupError, AttributeError, OverflowError,
    AssertionError, RecursionError, struct.error,
)  # fmt: skip


def is_snapshot(path: Path) -> bool:
    """Tell whether a file begins as a pickle does, or as JSON of a snapshot; packed or not."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head.startswith(GZIP):
        with suppress(zlib.error):
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, HEAD)
    return bool(PICKLE.match(head) or OPENING.match(head))


def read(path: Path) -> dict[str, Any]:
    """Return the snapshot in a file; raises NotAReport for anything else."""
    data = unpacked(path, LARGEST)
    try:
        found = _unpickled(path.name, data) if PICKLE.match(data) else _parsed(path.name, data)
    except MemoryError as error:
        raise NotAReport(
            f"{path.name}: what its {len(data)} bytes make does not fit into memory; record fewer entries (max_entries)"
        ) from error
    if isinstance(found, list):  # torch.cuda.memory_snapshot(): segments alone
        found = {"segments": found}
    traces, segments = (_lists(found, key) for key in ("device_traces", "segments"))
    if traces is None or segments is None or not isinstance(found, dict):
        raise NotAReport(
            f"{path.name}: a pickle or JSON, but no snapshot of torch.cuda.memory (segments and device_traces)"
        )
    if _entries(traces, segments) > len(data):
        raise NotAReport(f"{path.name}: damaged: more entries than bytes; dump the snapshot again")
    return {"device_traces": traces, "segments": segments}


def _entries(traces: list[Any], segments: list[Any]) -> int:
    """Count what will be read: a list that a pickle names again and again counts each time."""
    blocks = [segment.get("blocks") for segment in segments if type(segment) is dict]
    return sum(len(one) for one in (segments, *traces, *blocks) if isinstance(one, list))


def _lists(found: object, key: str) -> list[Any] | None:
    """Return a list of the snapshot, empty where it has none; None where it is no list."""
    if not isinstance(found, dict) or not found.keys() & {"device_traces", "segments"}:
        return None
    held = found.get(key, [])
    return held if isinstance(held, list) else None


def _instruction(name: str) -> Any:
    run = pickle._Unpickler.dispatch[getattr(pickle, name)[0]]  # noqa: SLF001 (pickle has no public table of its instructions)
    return _keyed(run, KEYED[name]) if name in KEYED else run


def _keyed(run: Any, place: slice) -> Any:
    """Return an instruction that takes only some keys, which lie at a place of the stack."""

    def checked(reader: Any) -> None:
        if not KEYS.issuperset(map(type, reader.stack[place])):
            raise pickle.UnpicklingError("a key that is no text")
        run(reader)

    return checked


class _Plain(pickle._Unpickler):  # noqa: SLF001 - the one in C makes objects, and lists of whatever length a file says
    """Makes plain data of a pickle; its table has no instruction that could do more."""

    dispatch = {  # noqa: RUF012 - as the class above has it
        getattr(pickle, name)[0]: _instruction(name) for name in PLAIN
    }

    def find_class(self, module: str, name: str) -> Any:
        """Refuse: nothing asks for a class, and nothing shall."""
        raise pickle.UnpicklingError(f"asks for {module}.{name}")

    def persistent_load(self, pid: object) -> Any:
        """Refuse likewise."""
        raise pickle.UnpicklingError(f"asks for what is not in it: {pid!r}")


def _unpickled(name: str, data: bytes) -> Any:
    try:
        return _Plain(io.BytesIO(data)).load()
    except KeyError as error:
        if isinstance(error.args[0], int):
            raise NotAReport(
                f"{name}: a pickle that is more than plain data; no snapshot is, and nothing of it was run"
            ) from error
        raise NotAReport(_damaged(name, error)) from error
    except DAMAGE as error:
        raise NotAReport(_damaged(name, error)) from error


def _parsed(name: str, data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig", errors="replace"), strict=False)
    except DAMAGE as error:
        raise NotAReport(_damaged(name, error)) from error


def _damaged(name: str, error: Exception) -> str:
    said = str(error).splitlines()[0][:100] if str(error) else type(error).__name__
    return f"{name}: cut off or damaged ({said}); copy or dump the snapshot again"

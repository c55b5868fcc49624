"""Where ops are in the program: the file and line of a decorated function, or of a block.

A place is written once per op, as the name of an NVTX category, at the first range of the op. nsys records the
names of categories also before the captured part of a program begins.
"""

from __future__ import annotations

import os
from functools import partial
from types import CodeType, FrameType
from typing import Any

from bridge.annotate.emit import FOLDER_AT_START
from bridge.annotate.label import Label, text

OP_SOURCE = "source:"  # also in bridge.importers.nsys.stacks; then line:file, a tab and the op, a tab and the function
MAX_PLACES = 4096  # ops, as names of categories are kept forever

places: dict[Label, list[str]] = {}  # of each op the names of its categories
_declared: set[tuple[int, str | None, str]] = set()  # by emitter, domain and name


def note_function(label: Label, function: Any) -> None:
    """Note where a function is defined; nothing for one without code of Python."""
    while isinstance(function, partial) or hasattr(function, "__wrapped__"):
        function = getattr(function, "__wrapped__", None) or function.func
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        _note(label, code, code.co_firstlineno)


def note_block(label: Label, frame: FrameType | None) -> None:
    """Note the line of a block, given its frame."""
    if label not in places and frame is not None:
        _note(label, frame.f_code, frame.f_lineno)


def _note(label: Label, code: CodeType, line: int) -> None:
    file = code.co_filename
    if not file.startswith("<"):
        file = os.path.join(FOLDER_AT_START, file)  # noqa: PTH118 (no pathlib)
    op = text(label.name).decode()
    function = code.co_qualname.replace("<locals>.", "")
    name = f"{OP_SOURCE}{line}:{file}\t{op}\t{function}"
    known = places.setdefault(label, []) if len(places) < MAX_PLACES else []
    if name not in known:
        known.append(name)


def declare(emitter: Any, label: Label) -> None:
    """Write the places of an op, if its tool can record them and has not yet."""
    tool = getattr(emitter, "tool", emitter)  # a recorder passes everything to an attached tool
    name_category = getattr(tool, "name_category", None)
    if name_category is None:
        return
    for name in places.get(label, ()):
        key = (id(tool), label.domain, name)
        if key not in _declared:
            _declared.add(key)
            name_category(label.domain, name)

"""What part work, API calls and ops play in a training step, told by their names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

import numpy as np

from bridge.analyze.kinds import is_kind
from bridge.join.arrays import Flags
from bridge.join.attributed import Attributed
from bridge.join.grammar import parse
from importers import frames

LAUNCHING = re.compile(r"cu(?:da)?(?:Graph)?Launch\w*")  # issues kernels, graphs or host functions
WAITING = re.compile(r"cu\w*Synchronize")
COPYING = re.compile(r"cu(?:da)?(?:Memcpy|Memset)\w*")
BLOCKING = re.compile(r"cu(?:da)?Memcpy(?!\w*Async|\w*Batch)\w*")  # returns when the copy is done
COMPILING = re.compile(
    r"cu(?:da)?(?:Module|Library)(?:Load|GetKernel)\w*|cu(?:da)?Link\w+|cu(?:da)?GraphInstantiate\w*|nvrtc\w+"
)
COMPILATION = re.compile(
    r".*(?:nvrtc|dynamo|inductor|\bcompile(?:d_?f|r)?(?:$|[\W_])|compile(?:Fusion|Kernel)|triton.*compil|\bjit_?compil)",
    re.IGNORECASE,
)
DATA_LOADING = re.compile(r"enumerate\((?:DataLoader|DataPipe)\)#.*|.*\bdata[ _-]?load(?:er|ing)\b.*", re.IGNORECASE)  # fmt: skip


def is_communication(joined: Attributed) -> Flags:
    """Tell which activities are kernels of a communication library."""
    return is_kind(joined, "communication")


def calls_matching(joined: Attributed, pattern: re.Pattern[str]) -> Flags:
    """Tell which API calls have a name that matches, such as `WAITING`, `COPYING` or `BLOCKING`."""
    named = joined.report.launches["name"]
    return _matching(named.cat.categories, pattern)[frames.codes(named)]


def loads_data(joined: Attributed) -> Flags:
    """Tell which ops (a code into ``joined.ops``; the last entry is for none) wait for data."""
    return _told(joined.ops, _says_loading)


@lru_cache(maxsize=1 << 14)  # several tables ask of the same ops
def _says_loading(op: str) -> bool:
    return bool(DATA_LOADING.fullmatch(op)) or parse(op).kind == "dataloader"


def compiles(joined: Attributed) -> Flags:
    """Tell which ops (a code into ``joined.ops``; the last entry is for none) compile something."""
    return _told(joined.ops, lambda op: bool(COMPILATION.match(op)))


def _matching(names: Iterable[str], pattern: re.Pattern[str]) -> Flags:
    return _told(names, lambda name: pattern.match(name) is not None)


def _told(names: Iterable[str], of: Callable[[str], bool]) -> Flags:
    return np.array([*(of(name) for name in names), False], bool)

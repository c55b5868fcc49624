"""The call stacks of an export: of CUDA calls, of calls of the OS runtime, and of samples of the CPU."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints, lookup
from bridge.importers.call_chains import (
    CallChains,
    Frame,
    Nodes,
    Samples,
    Sources,
    Tree,
    nodes_of,
    recorded_frame,
    sources_of,
    tree,
)
from bridge.importers.frames import key_codes
from bridge.importers.nsys import schema
from bridge.importers.nsys.annotations import Annotations, Strings
from bridge.importers.sqlite_columns import Columns, ints_of, texts_of

TABLES = ("call_chains", "system_call_chains", "sample_chains")


def call_chains(
    read: Mapping[str, Columns],
    strings: Strings,
    annotations: Annotations,
    launches: frames.Launches,
) -> CallChains:
    """Return the call stacks that were read, and the places of ops in the program."""
    sources = op_sources(annotations)
    stacks = python_stacks(read.get("python_stacks", {}), annotations, launches, strings)
    if not stacks and not any(len(ints_of(read[name], "chain")) for name in TABLES):
        return CallChains(sources=sources)
    own = [_Chains.of(read[name], strings) for name in TABLES]
    made, leaf = _merged([*own, stacks] if stacks else own)
    launch = leaf[0](ints_of(read["launches"], "chain"))
    if stacks:
        python = leaf[3](stacks.of_launch)
        launch = np.where(python == MISSING, launch, python)
    samples = read["samples"]
    return CallChains(
        made,
        launch if (launch != MISSING).any() else np.empty(0, np.int64),
        leaf[1](ints_of(read["system_calls"], "chain")),
        samples=_samples(samples, leaf[2](ints_of(samples, "chain"))),
        sources=sources,
    )


class _Chains:
    """The frames of one table of call stacks: sorted ids, and for each row chain, depth and frame."""

    def __init__(self, ids: Ints, rows: tuple[Ints, Ints, Ints], known: Sequence[Frame]) -> None:
        self.ids, self.known = ids, known
        self.chain, self.depth, self.frame = rows
        self.of_launch = np.empty(0, np.int64)

    @classmethod
    def of(cls, columns: Columns, strings: Strings) -> _Chains:
        """Number the chains of a table, and its distinct frames."""
        ids, chain = np.unique(ints_of(columns, "chain"), return_inverse=True)
        symbol, module = (ints_of(columns, name) for name in ("symbol", "module"))
        is_resolved = ints_of(columns, "unresolved") != 1
        # The addresses of unresolved frames differ from frame to frame and say nothing.
        symbol = np.where(is_resolved, symbol, MISSING)
        (code,) = key_codes((symbol, module, is_resolved.astype(np.int64)))
        _, first = np.unique(code, return_index=True)
        texts = strings.texts(symbol[first]), strings.texts(module[first])
        known = [
            recorded_frame(name, file, resolved=bool(resolved))
            for name, file, resolved in zip(*texts, is_resolved[first].tolist(), strict=True)
        ]
        depth = ints_of(columns, "depth")
        return cls(ids, (chain.astype(np.int64).reshape(-1), depth, code), known)


def _merged(parts: Sequence[_Chains]) -> tuple[Nodes, list[_Leaves]]:
    """Return one tree of the chains of all tables, and for each table the node of each id."""
    chains = np.cumsum([0, *(len(part.ids) for part in parts)]).tolist()
    known = np.cumsum([0, *(len(part.known) for part in parts)]).tolist()
    made: Tree = tree(
        np.concatenate([part.chain + at for part, at in zip(parts, chains, strict=False)]),
        np.concatenate([part.depth for part in parts]),
        np.concatenate([part.frame + at for part, at in zip(parts, known, strict=False)]),
        chains[-1],
    )
    leaves = [
        _Leaves(part.ids, made.leaf[at : at + len(part.ids)])
        for part, at in zip(parts, chains, strict=False)
    ]
    return nodes_of(
        made.parent, made.frame, [frame for part in parts for frame in part.known]
    ), leaves


class _Leaves:
    """The node of each id of a table of call stacks."""

    def __init__(self, ids: Ints, leaf: Ints) -> None:
        self.ids, self.leaf = ids, leaf

    def __call__(self, chain: Ints) -> Ints:
        """Return the node of each id, -1 for an id that the table does not have."""
        if not len(self.ids):
            return np.full(len(chain), MISSING)
        place = np.minimum(np.searchsorted(self.ids, chain), len(self.ids) - 1)
        return np.where(self.ids[place] == chain, self.leaf[place], MISSING)


def _samples(columns: Columns, leaf: Ints) -> Samples:
    thread = ints_of(columns, "thread")
    return Samples(
        time=ints_of(columns, "time"),
        thread=thread,
        process=np.where(thread == MISSING, MISSING, thread & ~schema.THREAD_BITS),
        chain=leaf,
        report=np.zeros(len(leaf), np.int64),
    )


# -- Python stacks of CUDA calls, in the payloads of marks


def python_stacks(
    columns: Columns, annotations: Annotations, launches: frames.Launches, strings: Strings
) -> _Chains | None:
    """Return the Python stacks of CUDA calls, None if there are none.

    A stack is of the last call that began on its thread before the mark; of several marks of a call the
    first counts.
    """
    if not columns:
        return None
    domain = annotations.domain_name(schema.PYTHON_STACKS)
    code, payloads = texts_of(columns, "payload").factorize()
    time, thread = (ints_of(columns, name) for name in ("time", "thread"))
    is_stack = (ints_of(columns, "domain") == domain) & (np.array([*map(len, payloads)])[code] > 0)
    rows = np.flatnonzero(is_stack)
    if domain == MISSING or not len(rows):
        return None
    decoded = [_payload(text) for text in payloads]
    ids = sorted({id_ for stack in decoded for frame in stack for id_ in frame[:2]})
    named = dict(zip(ids, strings.texts(np.array(ids, np.int64)), strict=True))
    known = {frame: number for number, frame in enumerate({f for s in decoded for f in s})}
    entries = [(c, d, known[f]) for c, stack in enumerate(decoded) for d, f in enumerate(stack)]
    chain, depth, frame = np.array(entries, np.int64).reshape(-1, 3).T
    used = [_python_frame(*frame, named) for frame in known]
    result = _Chains(np.arange(len(decoded)), (chain, depth, frame), used)
    result.of_launch = _of_launches(time[rows], thread[rows], code[rows], launches)
    return result


def _python_frame(function: int, file: int, line: int, named: Mapping[int, str]) -> Frame:
    from html import unescape

    return Frame(unescape(named[function]), unescape(named[file]), line, python=True)


def _payload(text: str) -> list[tuple[int, int, int]]:
    """Return (function, file, line) of each frame of a payload, none for a payload of another form."""
    data = bytes.fromhex(text)[schema.PYTHON_HEAD :]
    if len(data) % schema.PYTHON_FRAME:
        return []
    return list(struct.iter_unpack("<qqq", data))


def _of_launches(time: Ints, thread: Ints, stack: Ints, launches: frames.Launches) -> Ints:
    """Return the stack of each API call, -1 for none."""
    start, result = launches.start, np.full(len(launches), MISSING)
    call_thread, mark_thread = key_codes((launches.thread,), (thread,))
    order = np.lexsort((start, call_thread))
    times = np.unique(np.concatenate((start, time)))
    keys = call_thread[order] * len(times) + np.searchsorted(times, start[order])
    place = np.searchsorted(keys, mark_thread * len(times) + np.searchsorted(times, time), "right")
    call = lookup(order, place - 1)
    is_own = (place > 0) & (call_thread[call] == mark_thread)
    later_first = np.argsort(-time[is_own], kind="stable")
    result[call[is_own][later_first]] = stack[is_own][later_first]
    return result


# -- Places of ops: names of categories that nvtx_op(source=True) declares


OP_SOURCE = "source:"  # also in bridge.annotate.source; then line:file, a tab and the op, a tab and the function
SOURCE = re.compile(
    rf"{OP_SOURCE}(?P<line>\d+):(?P<file>[^\t]*)\t(?P<op>[^\t]*)\t(?P<function>.*)", re.DOTALL
)


def op_sources(annotations: Annotations) -> Sources:
    """Return the places of ops in the program that names of categories hold."""
    rows = [
        (
            process,
            domain,
            match["op"],
            Frame(match["function"], match["file"], int(match["line"]), python=True),
        )
        for process, domain, name in annotations.category_declarations()
        if (match := SOURCE.fullmatch(name))
    ]
    return sources_of(0, rows)

"""What the host's code did: samples of the CPU by function of the program, also those in idle time of a GPU."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import counts, ratio, texts
from bridge.analyze.core.source_lines import NO_CHAIN, distinct_frames, user_frames
from bridge.analyze.core.table import Table
from bridge.analyze.run.causes.operating_system import meetings, stacks_of
from bridge.analyze.run.idle.causes import find_causes
from bridge.importers.arrays import lookup
from bridge.importers.call_chains import Samples
from bridge.join.arrays import NONE, Flags, Ints, number_groups
from bridge.join.attributed import AttributedCapture

WHOLE = (
    "samples of the CPU are counted over the whole report: leave out --from, --to, --step, --range"
)


def by_sample(attributed: AttributedCapture) -> Table:
    """Return one row per function on the sampled stacks, and one for samples without a stack.

    The function is the innermost frame of the program (``of`` is "program"), of a stack without one
    the innermost frame of all ("library"). ``samples`` counts its samples,
    ``threads`` their threads. ``idle_samples`` are those taken in idle time of a GPU on the thread
    that was to launch the next work, ``idle_share`` their part of all such samples. Raises ValueError
    with a message for the user for a part of the time.
    """
    if attributed.selection is not None:
        raise ValueError(WHOLE)
    chains = attributed.capture.chains
    samples, nodes = chains.samples, chains.nodes
    leaf = samples.chain
    owner = lookup(user_frames(nodes), leaf)
    row, known = distinct_frames(nodes)
    is_program = owner != NONE
    code = np.append(row, len(known))[np.where(is_program, owner, leaf)]
    group, first = number_groups(code, is_program.astype(np.int64))
    size = len(first)
    names = {
        name: texts([*known[name], none])[code[first]]
        for name, none in (("function", ""), ("source", NO_CHAIN))
    }
    is_idle = _is_idle(attributed, samples)
    idle = counts(group[is_idle], size)
    thread, _ = number_groups(samples.report, samples.thread)
    _, pairs = number_groups(group, thread)
    return Table(
        {
            **names,
            "of": texts(("library", "program"))[is_program[first].astype(np.int64)],
            "threads": counts(group[pairs], size),
            "samples": counts(group, size),
            "share": ratio(counts(group, size), len(samples)),
            "idle_samples": idle,
            "idle_share": ratio(idle, int(is_idle.sum())),
        }
    )


def _is_idle(attributed: AttributedCapture, samples: Samples) -> Flags:
    """Return whether each sample was taken in idle time of a GPU, on the thread that it waited for."""
    pieces = find_causes(attributed).host_pieces
    time: Ints = samples.time
    found = meetings(
        stacks_of(attributed, samples), time, time + 1, (pieces.stack, pieces.start, pieces.end)
    )
    result = np.zeros(len(samples), bool)
    result[found.interval] = True
    return result

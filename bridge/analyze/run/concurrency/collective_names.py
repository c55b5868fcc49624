"""Read the names of collectives: those of kernels, of functions and of ops."""

from __future__ import annotations

import re

from bridge.importers.records import record

# The first match counts, as some names contain others, such as AllGatherV and ReduceScatter.
COLLECTIVES = {
    "AllReduce": "all_?reduce",
    "ReduceScatter": "reduce_?scatter",
    "AllGatherV": "all_?gather_?v",
    "AllGather": "all_?gather",
    "AllToAll": "all_?to_?all",
    "SendRecv": "send_?recv",
    "Broadcast": "broad_?cast|bcast",
    "Gather": "gather",
    "Scatter": "scatter",
    "Reduce": "reduce",
    "Barrier": "barrier",
    "Send": "send",
    "Recv": "recv",
}
# Texts, which `re` compiles at their first use: that takes 5 ms.
COLLECTIVE = "|".join(f"(?P<{name}>{pattern})" for name, pattern in COLLECTIVES.items())
# NCCL moves bytes in all other collectives, so only the kernels of reductions name the data type.
REDUCTIONS = ("AllReduce", "ReduceScatter", "Reduce")
TYPE = r"_(?:sum|prod|minmax|min|max|premulsum|sumpostdiv|avg)_(\w+?)(?:_(?:ring|tree)_|$)"
ALGORITHM = re.compile(r"(?<=_)(?:RING|TREE)(?=_|$)|(?:Ring|Tree)(?=LL|Simple)")


@record
class Message:
    """A collective as its kernel's name describes it; '' for what the name does not say."""

    collective: str
    dtype: str
    algorithm: str


def parse_kernel(name: str) -> Message:
    """Read the name of a kernel such as ``ncclDevKernel_AllReduce_Sum_f32_RING_LL``.

    Older names are ``ncclKernel_AllReduce_RING_LL_Sum_half``. The part LL is not the protocol:
    NCCL's kernels have it whatever protocol they run.
    """
    head = name.partition("(")[0].partition("<")[0]
    collective = collective_of(head)
    dtype = re.search(TYPE, head, re.IGNORECASE) if collective in REDUCTIONS else None
    algorithm = ALGORITHM.search(head) if collective != "SendRecv" else None
    return Message(
        collective, dtype[1].lower() if dtype else "", algorithm[0].lower() if algorithm else ""
    )


def collective_of(text: str) -> str:
    """Return the collective in a name, in NCCL's spelling, '' if there is none."""
    match = re.search(COLLECTIVE, text, re.IGNORECASE)
    return match.lastgroup or "" if match else ""

"""The table of waits: which op the host, or a stream, waited in."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import texts, times
from bridge.join.attributed import Attributed
from bridge.join.order import NONE
from importers import frames

NO_OP = "(no op)"


def by_wait(joined: Attributed) -> pd.DataFrame:
    """Return one row per op and kind of wait: synchronisation of event, stream or context.

    The op is the innermost one open where the call was made; `NO_OP` if there was none. An event that
    was only recorded waits for nothing and counts its call.
    """
    waits = joined.report.waits
    rows = np.flatnonzero(joined.counted_waits)
    op = np.append(joined.node_op, NONE)[joined.wait_node[rows]]
    kinds = list(waits["kind"].cat.categories)
    pair, distinct = pd.factorize((op + 1) * len(kinds) + frames.codes(waits["kind"])[rows])
    ops, kind = np.divmod(distinct, max(1, len(kinds)))
    length = np.maximum(frames.ints(waits, "end") - frames.ints(waits, "start"), 0)[rows]
    return pd.DataFrame(
        {
            "op": texts([NO_OP, *joined.ops])[ops],
            "wait": texts(kinds)[kind],
            **times(pair, length, len(distinct)),
        }
    )

"""What a page shows of a report: plain columns of bounded size, ready to be written as JSON.

Never rows of the report: sums, bins and the longest slices. Times are integers in ns from the report's
first event, names are places in ``names``, columns are lists; -1 is none.
"""

from __future__ import annotations

from typing import Any

from bridge.analyze import validity
from bridge.analyze.overview.axis import Axis, Names, figures, reasons
from bridge.analyze.overview.icicle import icicle, utilisation
from bridge.analyze.overview.memory import memory
from bridge.analyze.overview.operators import operators
from bridge.analyze.overview.roofline import roofline
from bridge.analyze.overview.timeline import windowed
from bridge.join.attributed import Attributed


def overview(joined: Attributed) -> dict[str, Any]:
    """Return everything that a page says of one report; what the report has no data for is None.

    docs/html.md lists the entries. All sums are exact: what is too small to be listed is summed up.
    """
    names, axis = Names(), Axis.of(joined)
    table = operators(joined, names)
    return {
        "source": list(joined.report.source),
        "figures": figures(joined, axis),
        "reasons": reasons(joined),
        "operators": table,
        "icicle": icicle(joined, names),
        "timeline": windowed(joined, axis, names),
        "utilisation": utilisation(joined, axis),
        "memory": memory(joined, axis),
        "roofline": roofline(joined, names),
        "notes": [*joined.report.warnings, *validity.warnings(joined)],
        "names": names.listed,
    }

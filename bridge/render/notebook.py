"""Tables in a notebook: HTML that brings its own few styles, right in light and dark."""

from __future__ import annotations

from html import escape

import pandas as pd

from bridge.render import columns
from bridge.render.shown import Shown

STYLE = """
.nsight-bridge td, .nsight-bridge th { padding: 1px 8px; text-align: right; white-space: nowrap }
.nsight-bridge .name { text-align: left; max-width: 40em; overflow: hidden; text-overflow: ellipsis }
.nsight-bridge td.bar { background: linear-gradient(#56b4e966, #56b4e966) no-repeat left / var(--share) 100% }
"""


def as_html(by: str, table: pd.DataFrame, account: str, *, left_out: int = 0) -> str:
    """Return a table with bars behind its main times, and the accounting line under it."""
    shown = columns.shown(by, table)
    head = "".join(f"<th{_class(s)}>{escape(s.heading)}</th>" for s in shown)
    cells = [_cells(s, table[s.column].tolist()) for s in shown]
    rows = "".join(f"<tr>{''.join(row)}</tr>" for row in zip(*cells, strict=True))
    more = f"<p>… and {left_out} more rows</p>" if left_out else ""
    return (
        f'<div class="nsight-bridge"><style>{STYLE}</style>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        f"{more}<p>{escape(account)}</p></div>"
    )


def _cells(s: Shown, values: list[float]) -> list[str]:
    most = max((*values, 1)) if s.bar else 1
    return [
        f"<td{_class(s)}{_share(value / most) if s.bar else ''}>{escape(s.text(value))}</td>"
        for value in values
    ]


def _class(s: Shown) -> str:
    return ' class="name"' if s.is_name else ' class="bar"' if s.bar else ""


def _share(share: float) -> str:
    return f' style="--share: {100 * share:.1f}%"'

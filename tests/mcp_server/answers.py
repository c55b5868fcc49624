"""The answers of `bridge mcp` beside those of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli.mcp_reports import KeptReports

if TYPE_CHECKING:
    from bridge.cli.mcp_tools import Tools

LIMIT = 4_000  # bytes of an answer


def asked(folder: Path) -> Tools:
    """Give the tools, with the store of a folder."""
    from bridge.cli.mcp_tools import Tools

    return Tools(KeptReports(folder / "bridge.db"))


def objects(document: dict, name: str = "") -> list[dict]:
    """Give the rows of a table as objects, as the commands' JSON has them."""
    table = document.get(name, {}) if name else document
    return [dict(zip(table["columns"], row, strict=True)) for row in table.get("rows", [])]


def rounded(row: dict) -> dict:
    """Write the figures of a command as an answer does."""
    whole = {
        k: round(v) if k.endswith("_ns") or v == int(v) else float(f"{v:.4g}")
        for k, v in row.items()
        if isinstance(v, float)
    }
    return {**row, **whole}

"""Files of JSON as the older profilers leave them: replaced without a question, whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a file, through gzip if its name ends in .gz; raises `OutputError` if it cannot be written."""
    from bridge.output import compressed, whole  # noqa: PLC0415 (what only annotates writes nothing)

    target = Path(path)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, default=str)
    with (
        whole(target, force=True) as draft,
        compressed(draft, gzip=target.suffix == ".gz") as file,
    ):
        file.write(text.encode())


def finite(value: float | None) -> bool:
    """Tell whether JSON can say a value."""
    return value is not None and math.isfinite(value)

"""The runs of a store by number and name, for completion: read without pandas and sqlite-utils."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

QUERY = "SELECT id, name, source FROM runs ORDER BY id DESC"


def run_names(path: Path) -> dict[str, str]:
    """Return the files of each run by its number, and by its name, the newest first.

    A file that is no store has none.
    """
    result: dict[str, str] = {}
    try:
        uri = f"{path.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.1)) as database:
            for number, name, source in database.execute(QUERY):
                files = ", ".join(json.loads(source))
                result |= {str(number): files, **({name: files} if name else {})}
    except (sqlite3.Error, ValueError):
        return {}
    return result

"""The limit that speeds are measured against: read the 19 columns that the join needs, and nothing else.

    python benchmarks/read_columns.py REPORT.sqlite

One connection of the ADBC driver, one thread, whole process.
"""

import sys
from pathlib import Path

import adbc_driver_sqlite.dbapi as adbc

from bridge.importers.nsys import schema

COLUMNS = {
    "kernels": "start end device stream correlation process full_name name",
    "launches": "start end thread correlation name",
    "annotations": "start end type thread text_id domain",
}


def queries():
    for table, columns in COLUMNS.items():
        known = schema.READ[table]
        yield f"""SELECT {", ".join(f'"{known.columns[c].sources[0]}"' for c in columns.split())} FROM {known.name}"""


def main():
    uri = Path(sys.argv[1]).resolve().as_uri() + "?mode=ro&immutable=1"
    with adbc.connect(uri) as db, db.cursor() as cursor:
        for query in queries():
            cursor.execute(query.replace('"textId"', 'coalesce("textId", -1)'))
            cursor.fetch_arrow_table()


if __name__ == "__main__":
    main()

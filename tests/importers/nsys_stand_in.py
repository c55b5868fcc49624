"""An nsys that is a program of the tests: it exports what a test has put beside it, and notes how it was called."""

import json

import made_reports

from bridge.importers.nsys import schema

HELP = {
    "2022.4": """
\t-t, --type=

           Possible values are: sqlite, hdf, text, arrow, json, info.
           Export format type.
""",
    "2023.4": """
\t-t, --type=

           Possible values are: sqlite, hdf, text, json, info, arrow,
           arrowdir, and parquetdir.

           Export format type.

             arrowdir (_arwdir/*.arrow) -- Apache Arrow IPC/streamiing

\t--tables=<pattern>[,<pattern>...]
""",
    "unknown": "usage: nsys [options]",
}
QUIET = """
\t-q, --quiet=

           Possible values are 'true' or 'false'.
"""
NSYS = """#!{python}
import json, shutil, sys
from pathlib import Path

words = sys.argv[1:]
here = Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
if "--help" in words:
    print((here / "help").read_text())
if "--type" not in words:
    sys.exit()
form, target = (words[words.index(name) + 1] for name in ("--type", "--output"))
made = here / (form + "-one" if "--tables" in words else form)
if not made.exists():
    sys.exit("Exportation error: no")
shutil.copytree(made, target) if made.is_dir() else shutil.copy(made, target)
"""
ENVIRONMENT = {"name": schema.PROGRAM_ENVIRONMENT, "value": 'RANK="3"'}


def with_settings(path):
    made = made_reports.Made()
    made.names_of(100)
    made.step(0, 100)
    made.tables["capture"].append(ENVIRONMENT)
    return made.written(path)


def calls(nsys):
    """List the forms that were exported, with the tables that were selected."""
    lines = [json.loads(line) for line in (nsys / "calls").read_text().splitlines()]
    return [
        " ".join([words[words.index("--type") + 1], *words[words.index("--tables") + 1 :][:1]])
        if "--tables" in words else words[words.index("--type") + 1]
        for words in lines if "--type" in words
    ]  # fmt: skip


def offer(nsys, version):
    (nsys / "help").write_text(QUIET + HELP[version] + QUIET)

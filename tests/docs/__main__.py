"""Writes what the documentation takes from the code: ``python -m tests.docs columns``.

Without a subcommand it lists them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).parents[1])
)  # modules of tests find each other, as under pytest

from real_parts import ROOT

from docs import columns, commands, contracts, images, outputs
from docs.pages import Files

WRITERS = {
    "columns": columns,
    "commands": commands,
    "contracts": contracts,
    "outputs": outputs,
    "images": images,
}
ALL = ("columns", "commands", "contracts", "outputs")  # pictures are of a report that is chosen


def main() -> None:
    """Write what a subcommand names."""
    parser = argparse.ArgumentParser(prog="python -m tests.docs", description=__doc__)
    subcommands = parser.add_subparsers(metavar="SUBCOMMAND")
    for name, module in WRITERS.items():
        said = module.__doc__.splitlines()[0]
        one = subcommands.add_parser(name, help=said, description=said)
        one.set_defaults(files=module.files)
        getattr(module, "add_arguments", lambda _: None)(one)
    every = subcommands.add_parser("all", help=f"All of these: {', '.join(ALL)}.")
    every.set_defaults(files=files_of_all)
    given = vars(parser.parse_args())
    files: Callable[..., Files] | None = given.pop("files", None)
    if files is None:
        parser.print_help()
    else:
        write(files(**given))


def files_of_all() -> Files:
    """Yield the files of all subcommands but the pictures."""
    for name in ALL:
        yield from WRITERS[name].files()


def write(files: Files) -> None:
    """Write the files that are not yet as they should be, and say which."""
    unchanged = 0
    for path, content in files:
        data = content if isinstance(content, bytes) else content.encode()
        if path.exists() and path.read_bytes() == data:
            unchanged += 1
        else:
            path.write_bytes(data)
            print(f"wrote {path.relative_to(ROOT)}")
    print(f"unchanged: {unchanged}")


if __name__ == "__main__":
    main()

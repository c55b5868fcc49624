"""The distribution: its version, its data files, and the error whose message is for the user."""

from __future__ import annotations

from pkgutil import get_data

VERSION = "1.0.0"


class UserError(Exception):
    """An error whose message is for the user: what is wrong, with which file, and what to do.

    The command line prints the message and exits with ``status``. `bridge.importers.errors.ReportError`
    is its twin in the importers, which know no other room.
    """

    status = 1


def data_file(package: str, name: str) -> str:
    """Return the text of a file that lies in a package of the distribution."""
    data = get_data(package, name)  # imports less than importlib.resources does
    return (data or b"").decode()

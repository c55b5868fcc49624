"""The distribution: its version, and the error whose message is for the user."""

VERSION = "1.0.0"


class UserError(Exception):
    """An error whose message is for the user: what is wrong, with which file, and what to do.

    The command line prints the message and exits with ``status``. `bridge.importers.errors.ReportError`
    is its twin in the importers, which know no other room.
    """

    status = 1

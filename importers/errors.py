"""What can go wrong with an input, as one line that a user can act on.

ReportError                 every failure that bad input causes
├── NotAReport              the file is something else, or broken
├── NothingRecorded         a profile that holds no range, launch or activity
└── ExportFailed            nsys is missing, too old, or gave up
"""


class ReportError(Exception):
    """A report cannot be read; the message says what, which file, and what to do next."""


class NotAReport(ReportError):  # noqa: N818 - reads as what it says
    """The file is not an Nsight report, or a damaged one."""


class NothingRecorded(ReportError):  # noqa: N818 (a state, said as the user meets it)
    """The file is a profile without any range, launch or activity."""


class ExportFailed(ReportError):  # noqa: N818 (as above)
    """Turning an .nsys-rep into SQLite did not work."""

"""Names of activities, and of the files of a capture."""

from __future__ import annotations

from bridge.importers.arrays import factorize
from bridge.importers.capture import Capture
from bridge.importers.frames import Names
from bridge.join.arrays import Ints
from bridge.join.attributed import AttributedCapture

READABLE = "readable"
RECORDED = {
    "short": "name",
    "demangled": "full_name",
    "mangled": "mangled",
}  # columns by --kernel-names
KERNEL_NAMES = (READABLE, *RECORDED)


def activity_names(attributed: AttributedCapture, kernel_names: str = READABLE) -> Names:
    """Return the name of each activity, kernels as ``kernel_names`` says, one of `KERNEL_NAMES`."""
    if kernel_names == READABLE:
        return attributed.activity_name
    result: Names = attributed.capture.activities[RECORDED[kernel_names]]
    return result


def name_codes(
    attributed: AttributedCapture, kernel_names: str, rows: Ints
) -> tuple[Ints, list[str]]:
    """Return the name of each of these activities as a code, and the distinct names."""
    names = activity_names(attributed, kernel_names)
    codes, used = factorize(names.compact[rows])
    return codes, [names.texts[code] for code in used.tolist()]


def file_names(capture: Capture) -> list[str]:
    """Return the names of the files of a capture; names that occur twice get their position."""
    duplicates = [name for name in capture.source if capture.source.count(name) > 1]
    return [
        f"{name} ({position})" if name in duplicates else name
        for position, name in enumerate(capture.source, 1)
    ]

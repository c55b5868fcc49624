"""Fail unless every requirement of the installed nsight-bridge is there in the oldest version that it allows.

python tests/release/oldest.py [--floors] [EXTRA ...]

With --floors: print those versions, as constraints of pip.
"""

import sys
from importlib.metadata import requires, version

from packaging.requirements import Requirement
from packaging.version import Version


def floor(requirement: Requirement) -> str:
    """Return the oldest version allowed; every requirement has one."""
    [bound] = [s.version for s in requirement.specifier if s.operator == ">="]
    return bound


def wanted(extras: list[str]) -> list[Requirement]:
    """List what is required here, and what the extras ask for."""
    every = [Requirement(line) for line in requires("nsight-bridge") or []]
    where = [{"extra": extra} for extra in ("", *extras)]
    return [r for r in every if r.marker is None or any(r.marker.evaluate(at) for at in where)]


def floors(extras: list[str]) -> int:
    """Print the oldest version of each requirement."""
    for requirement in wanted(extras):
        sys.stdout.write(f"{requirement.name}=={floor(requirement)}\n")
    return 0


def main(extras: list[str]) -> int:
    """Print each requirement with what is installed."""
    newer = 0
    for requirement in wanted(extras):
        here, bound = version(requirement.name), floor(requirement)
        is_oldest = Version(here) == Version(bound)
        newer += not is_oldest
        said = f"{requirement.name} {here}" + ("" if is_oldest else f", not {bound}")
        sys.stdout.write(f"{said}\n")
    return 1 if newer else 0


if __name__ == "__main__":
    given = [argument for argument in sys.argv[1:] if argument != "--floors"]
    sys.exit(floors(given) if "--floors" in sys.argv else main(given))

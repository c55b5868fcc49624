"""Which domains' ranges may be ops: all but those that libraries annotate themselves in, unless told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.join.arrays import Flags, Ints, number
from importers import frames

# Libraries say in domains of their own what runs inside an op; that is no op unless asked for. An
# undeclared domain has no name: it is known by its texts.
LIBRARIES = frozenset(
    "cccl cub cublas cublaslt cudnn cufft curand cusolver cusparse cusparselt cutensor libcudf mpi"
    " nccl nvshmem nvtx3 openmpi thrust ucx"
    " python_function".split()  # as traces of PyTorch's profiler have them (with_stack)
)
LIBRARY_TEXT = re.compile(r"(nccl|MPI_|nvshmem)\w+")
DEFAULT, ALL = "default", "all"


class UnknownDomainError(ValueError):
    """No range is in a domain of that name."""


@dataclass(frozen=True)
class Domain:
    """A domain of one process: what it is called, whether it is a library's own."""

    name: str
    is_library: bool


def accepted(ranges: pd.DataFrame, only: Collection[str], without: Collection[str]) -> Flags:
    """Tell which ranges are in a domain that is taken.

    ``only`` and ``without`` are names, in any case: a domain's own, ``default``, or ``#3`` for one
    undeclared. ``only`` may hold "all"; empty, it is all but libraries. Raises UnknownDomainError for a name
    that no domain has.
    """
    if not (only or without) and not frames.ints(ranges, "domain").any():
        return np.ones(len(ranges), bool)  # all in the default domain, as is most common
    code, domains = _domains(ranges)
    only, without = [{name.lower() for name in names} for names in (only, without)]
    _check((only - {ALL}) | without, domains)
    taken = [_taken(domain, only) and domain.name.lower() not in without for domain in domains]
    return np.array(taken, bool)[code]


def is_library(name: str, texts: Iterable[str]) -> bool:
    """Whether the ranges of a domain are a library's own; one undeclared has no name."""
    return name.lower() in LIBRARIES if name else all(map(LIBRARY_TEXT.match, texts))


def _domains(ranges: pd.DataFrame) -> tuple[Ints, list[Domain]]:
    """Return each range's domain, as a number, and the domains."""
    code, first = number(*(frames.ints(ranges, c) for c in ("report", "process", "domain")))
    found = []
    for domain, row in enumerate(first.tolist()):
        given, own = int(ranges["domain"].iloc[row]), str(ranges["domain_name"].iloc[row])
        texts = ranges["name"][code == domain].unique() if given and not own else ()
        name = own or (f"#{given}" if given else DEFAULT)
        found.append(Domain(name, bool(given) and is_library(own, texts)))
    return code, found


def _taken(domain: Domain, only: Collection[str]) -> bool:
    if not only:
        return not domain.is_library
    return ALL in only or domain.name.lower() in only


def _check(asked: Collection[str], domains: Collection[Domain]) -> None:
    there = {DEFAULT, *(domain.name for domain in domains)}
    unknown = set(asked) - {name.lower() for name in there}
    if unknown:
        raise UnknownDomainError(
            f"no domain {min(unknown)!r} in the report: there are {', '.join(sorted(there))}"
        )

"""Options of the attribution: rules for op names, domains of ops, ranks from paths."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridge.importers import frames
from bridge.importers.capture import Capture, Facts
from bridge.importers.records import record
from bridge.join.arrays import Flags, Ints, number_groups
from bridge.join.grammar import parse
from bridge.knowledge.expressions import Expression
from bridge.knowledge.kernels import Rules
from bridge.knowledge.suggestions import unknown_name

# -- Domains whose ranges may be ops: by default all but those of libraries


# Libraries annotate their internals in domains of their own. Their ranges are not ops by default. A
# domain without a name is recognized by its texts.
LIBRARIES = frozenset(
    "cccl cub cublas cublaslt cudnn cufft curand cusolver cusparse cusparselt cutensor libcudf mpi"
    " nccl nvshmem nvtx3 openmpi thrust ucx"
    " python_function".split()  # in traces of PyTorch's profiler (with_stack)
) | {frames.GIL_DOMAIN.lower()}
LIBRARY_TEXT = re.compile(r"(nccl|MPI_|nvshmem)\w+")
DEFAULT_DOMAIN, ALL_DOMAINS = "default", "all"


class UnknownDomainError(ValueError):
    """No range is in a domain of the given name."""


@dataclass(frozen=True)
class Domain:
    """A domain of one process: its name, and whether a library owns it."""

    name: str
    is_library: bool


def accepted_ranges(
    ranges: frames.Ranges, only: Collection[str], without: Collection[str]
) -> Flags:
    """Return which ranges are in an accepted domain.

    ``only`` and ``without`` are names of domains, in any case: a declared name, ``default``, or
    ``#3`` for a domain without a name. ``only`` may contain "all"; if empty, all domains but those
    of libraries are accepted. Raises UnknownDomainError for a name that no domain has.
    """
    if not (only or without) and not ranges.domain.any():
        return np.ones(len(ranges), bool)  # the usual case: all ranges are in the default domain
    code, domains = _domains(ranges)
    only, without = [{name.lower() for name in names} for names in (only, without)]
    _check_names((only - {ALL_DOMAINS}) | without, domains)
    is_taken = [
        _is_accepted(domain, only) and domain.name.lower() not in without for domain in domains
    ]
    return np.array(is_taken, bool)[code]


def is_library(name: str, texts: Iterable[str]) -> bool:
    """Return whether a domain is a library's, by its name, or by its texts if ``name`` is empty."""
    return name.lower() in LIBRARIES if name else all(map(LIBRARY_TEXT.match, texts))


def _domains(ranges: frames.Ranges) -> tuple[Ints, list[Domain]]:
    """Return the index of each range's domain, and the domains."""
    code, first = number_groups(ranges.report, ranges.process, ranges.domain)
    result = []
    for domain, row in enumerate(first.tolist()):
        number, declared = int(ranges.domain[row]), ranges.domain_name[row]
        texts = ranges.name[code == domain].used if number and not declared else ()
        name = declared or (f"#{number}" if number else DEFAULT_DOMAIN)
        result.append(Domain(name, bool(number) and is_library(declared, texts)))
    return code, result


def _is_accepted(domain: Domain, only: Collection[str]) -> bool:
    if not only:
        return not domain.is_library
    return ALL_DOMAINS in only or domain.name.lower() in only


def _check_names(requested: Collection[str], domains: Collection[Domain]) -> None:
    known = {DEFAULT_DOMAIN, *(domain.name for domain in domains)}
    unknown = set(requested) - {name.lower() for name in known}
    if unknown:
        raise UnknownDomainError(unknown_name("domain in the report", min(unknown), sorted(known)))


# -- The op of a range: its name without the part that changes per call


MAY_HAVE_OP = re.compile(r"[#{]")  # a name without these characters is its own op


@record
class Rule:
    r"""Names that match ``pattern`` become ``op``, which may refer to groups as ``\1``."""

    pattern: Expression
    op: str

    def __call__(self, name: str) -> str | None:
        """Return the op of a name, or None if the rule does not match."""
        match = self.pattern.search(name)
        return match.expand(self.op) if match else None


def rules(text: str) -> tuple[Rule, ...]:
    """Read rules from TOML: ``[[rule]]`` tables with ``match`` (a regular expression) and ``op``.

    Raises ValueError that names the rule and what is wrong with it.
    """
    try:
        entries = tomllib.loads(text).get("rule")
    except RecursionError as error:
        raise ValueError("nested too deeply for rules") from error
    if not isinstance(entries, list) or not entries:
        raise ValueError("no [[rule]] in it")
    result = []
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or set(entry) != {"match", "op"}:
            raise ValueError(f"rule {number}: needs 'match' and 'op', and nothing else")
        result.append(_rule(entry["match"], entry["op"], f"rule {number}"))
    return tuple(result)


def _rule(match: object, op: object, origin: str) -> Rule:
    expression = Expression(match, origin)  # type: ignore[arg-type] # which refuses what is no text
    try:
        re.sub(expression.text, op, "")  # type: ignore[call-overload]
    except (re.error, TypeError, IndexError) as error:
        raise ValueError(f"{origin}: op {op!r}: {error}") from error
    return Rule(expression, str(op))


def op_of(name: str) -> str:
    """Return the op of a range with this name."""
    return parse(name).op if MAY_HAVE_OP.search(name) else name


def ops_of(names: Sequence[str], rules: Sequence[Rule] = ()) -> list[str]:
    """Return the op of each name: by the first rule that matches, else the built-in op."""
    ops = [op_of(name) for name in names]
    if not rules:
        return ops
    by_rules = {op: _by_rules(rules, op) for op in dict.fromkeys(ops)}
    return [by_rules[op] for op in ops]


def _by_rules(rules: Sequence[Rule], op: str) -> str:
    return next((result for rule in rules if (result := rule(op)) is not None), op)


def with_domain_prefix(domain: str, text: str) -> str:
    """Return the whole text of a range as ``domain:text``, as Nsight's reports write it."""
    return f"{domain}:{text}" if domain else text


# -- The rank of a file, found in its path (``--rank-from``)


RANK, HOST = "rank", "host"
RANK_METADATA_KEY = "rank_from"  # key in the metadata of a report that holds rank and host
MAX_RANK_DIGITS = 9


def compile_rank_pattern(pattern: str) -> Expression:
    """Return the expression.

    Raises ValueError with a message for the user if it is not an expression or has no group.
    """
    result = Expression(pattern, "--rank-from")
    if not result.pattern.groups:
        raise ValueError(f"{pattern!r} has no group: (\\d+) is the rank")
    return result


def rank_and_host(expression: Expression, path: str) -> dict[str, Any]:
    """Return ``rank`` and ``host`` found in a path, each only if present.

    A rank must be a number.
    """
    match, pattern = expression.search(path), expression.pattern
    if match is None:
        return {}
    first = next((n for n in range(1, pattern.groups + 1) if n != pattern.groupindex.get(HOST)), 0)
    rank = match[pattern.groupindex.get(RANK, first)] if first else None
    host = match[HOST] if HOST in pattern.groupindex else None
    is_number = (
        rank is not None and rank.isascii() and rank.isdecimal() and len(rank) <= MAX_RANK_DIGITS
    )
    return ({RANK: int(rank or 0)} if is_number else {}) | ({HOST: host} if host else {})


def any_rank_matches(pattern: str, paths: Iterable[str]) -> bool:
    """Return whether the expression finds a rank or a host in any path."""
    expression = compile_rank_pattern(pattern)
    return any(rank_and_host(expression, path) for path in paths)


def with_ranks(capture: Capture, pattern: str | None) -> Capture:
    """Return the capture with the ranks and hosts that ``pattern`` finds in its paths.

    Raises ValueError if ``pattern`` is not an expression with a group.
    """
    if pattern is None:
        return capture
    expression = compile_rank_pattern(pattern)
    files = zip(capture.facts, capture.source, strict=True)
    facts = tuple(_with_rank(f, rank_and_host(expression, f.path or name)) for f, name in files)
    return replace(capture, facts=facts)


def _with_rank(facts: Facts, values: dict[str, Any]) -> Facts:
    return (
        replace(facts, metadata={**facts.metadata, RANK_METADATA_KEY: values}) if values else facts
    )


# -- All options together


GRAPHS = ("capture", "launch")


@record
class AttributionOptions:
    """Options of the attribution.

    ``op_rules`` regroup ops. ``raw`` uses the whole texts of ranges in all domains instead of ops.

    ``graphs`` selects the op that owns the work of a CUDA graph: "capture", the op in which it was
    captured, where known, or "launch", the op that launched the graph. The default is "capture",
    and "launch" with ``raw``, as in NVIDIA's reports.

    ``domains`` are the domains whose ranges are ops ("all" for every domain; if empty, all but
    those of libraries), but for ``exclude_domains``. ``adopt`` assigns work
    launched outside of ranges to the range in which one other thread waits: by default the work of
    PyTorch's autograd, with True that of all threads, which is a guess by time, with False none.
    ``kernel_rules`` classify kernels before the built-in rules do. ``rank_from`` is a regular
    expression that finds the rank in the path of a file. ``place`` is the index of the first report
    in the whole run, whose other reports may be read elsewhere. ``backward_under`` is the range
    that the backward work of PyTorch's engine is under: "caller", the one open on the thread that
    called the backward pass, or "forward", the one around the forward op. With ``raw`` it is under
    neither. ``raw`` is the strict view: no work is adopted, and start/end ranges are never ops.
    ``is_window`` says that the capture is a part of a report. ``steps`` names the ranges that are
    steps: a name, or a family as ``Batch N``.
    """

    op_rules: Sequence[Rule] = ()
    raw: bool = False
    graphs: str | None = None
    domains: Sequence[str] = ()
    exclude_domains: Sequence[str] = ()
    adopt: bool | None = None
    kernel_rules: Rules | None = None
    rank_from: str | None = None
    place: int = 0
    backward_under: str = "caller"
    is_window: bool = False
    steps: str | None = None

    @property
    def adopts_autograd(self) -> bool:
        """Whether work that autograd launches outside of ranges belongs to the range of its caller."""
        return not self.raw if self.adopt is None else self.adopt

    @property
    def only(self) -> Sequence[str]:
        """The domains whose ranges are ops, as `accepted_ranges` expects them."""
        return self.domains or (("all",) if self.raw else ())

    @property
    def prefer_capture(self) -> bool:
        """Whether the work of a CUDA graph belongs to the op in which the graph was captured."""
        return (self.graphs or GRAPHS[self.raw]) == "capture"

"""Find what identifies users and machines in texts, and secrets: learned, known by its form, or suspicious.

There are three ways, from certain to uncertain:

1. Words that the environment, the command line and the facts of a capture tell: values of variables
   whose names say that they are secret, users, hosts, and the parts of such values.
2. Forms that public services give their tokens; addresses; folders of machines: ``secrets.toml``.
3. Words that look random. These are only reported.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from math import log2
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from bridge.importers.records import record

REMOVED = "(removed)"
MIN_LENGTH = 4  # characters; a host called "vm" would match too many words

# Parts of the names of variables and options.
SECRET_NAMES = frozenset(
    "TOKEN TOKENS KEY KEYS APIKEY SECRET SECRETS PASS PASSWORD PASSWORDS PASSWD PASSPHRASE PWD PW CRED CREDS"
    " CREDENTIAL CREDENTIALS AUTH AUTHORIZATION OAUTH BEARER COOKIE COOKIES PRIVATE PAT SAS JWT DSN CONN CONNECTION"
    " CONNSTR WEBHOOK WEBHOOKS SIGNATURE SALT CERT LICENSE URL URI PROXY ENDPOINT".split()
)
SECRET_ENDS = ("TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "PASS")  # PGPASSWORD, authtoken
USER_NAMES = frozenset(
    "USER USERS USERNAME LOGNAME LOGIN ACTOR EMAIL MAIL AUTHOR COMMITTER OWNER ENTITY ACCOUNT TENANT ORG".split()
)
HOST_NAMES = frozenset(
    "HOST HOSTS HOSTNAME ADDR ADDRESS ADDRESSES IP IPS NODE NODES NODELIST NODENAME NODEFILE SERVER SERVERS DOMAIN"
    " MASTER CLIENT SSH CLUSTER PEERS".split()
)
FOLDER_VARIABLES = frozenset({"PWD", "OLDPWD"})  # working folders, not passwords
HOME_VARIABLES = frozenset({"HOME", "USERPROFILE"})
# Values that identify nothing, and occur in names: a kernel's <float, false>, a function find_root.
COMMON = frozenset(
    "true false none null root user admin default localhost python python3 home local auto enabled disabled"
    " http https file basic bearer token online offline cuda cpu gpu nccl gloo".split()
)
VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
OPTION = re.compile(r"-{0,2}([A-Za-z][\w.-]*)[=:](.+)", re.DOTALL)
NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SEPARATORS = re.compile(r"""[\s,;|&?"'\\{}\[\]()<>]+""")
PAIR = re.compile(r"[\w.-]+=(.+)")
MIN_TOKEN = 8  # characters, of a part of a URL
# One character of the scheme is enough: to look for its begin takes as long as the text before, at each letter.
URL = re.compile(r"(?<=[\w+.-])://(?:([^/\s@]*)@)?([^/\s?#]*)([^\s]*)")
HOME = re.compile(r"(?:/(?:home\d*|homes|Users)/|[A-Za-z]:\\Users\\)([^/\\:\"'\s]+)")
IPV4 = re.compile(r"\d+(?:\.\d+){3}")
NODE_RANGE = re.compile(r"([\w.-]*)\[([\d,-]+)\]([\w.-]*)")
MAX_NODES = 10_000  # of one expression for several hosts

# -- Words that look random

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
HEX = re.compile(r"[0-9a-f]+")
CANDIDATE = re.compile(rf"[A-Za-z0-9+/]{{20,}}={{0,2}}|{UUID.pattern}")
MAY_BE_RANDOM = re.compile(r"[A-Za-z0-9+/]{20}|-[0-9a-f]{4}-")
RUN = re.compile(r"[A-Za-z0-9]+")
ALNUM_END = re.compile(r"[A-Za-z0-9]*")
MANGLED = re.compile(r"_Z\w+|\b\w+_kernel\w*\b")  # C++ names, whose lengths and types look random
# Words and names have less entropy per character, in bits, at these lengths.
MIN_BITS, MIN_HEX_BITS, MIN_HEX = 3.7, 2.8, 24
MIN_OF_EACH = 2  # digits, capitals and small letters
MIN_CHANGES = 0.5  # between these, per pair of neighbours
CHANGE = re.compile(r"(?<=[A-Z])(?![A-Z])|(?<=[a-z])(?![a-z])|(?<=[0-9+/])(?![0-9+/])")


class Span(NamedTuple):
    """A part of a text, from ``start`` up to ``end``, that is removed."""

    start: int
    end: int
    kind: str
    replacement: str = REMOVED


@record
class Rule:
    """A form of secrets."""

    kind: str
    pattern: re.Pattern[str]
    replacement: str
    needs: tuple[str, ...]  # in lower case; () if there is no such text

    def may_occur(self, text: str, lower: str) -> bool:
        """Return whether this form occurs in a text that may consist of many."""
        is_possible = not self.needs or any(needed in lower for needed in self.needs)
        return is_possible and self.pattern.search(text) is not None

    def spans(self, text: str) -> Iterator[Span]:
        """Yield the parts of a text that have this form."""
        for match in self.pattern.finditer(text):
            group = next((name for name, part in match.groupdict().items() if part), 0)
            start, end = match.span(group)
            if self.replacement == REMOVED:  # a token may be longer than its service says
                end = ALNUM_END.match(text, end).end()  # type: ignore[union-attr]  # matches ""
            yield Span(start, end, self.kind, self.replacement)


@cache
def rules() -> tuple[Rule, ...]:
    """Return the forms of ``secrets.toml``."""
    text = resources.files(__package__).joinpath("secrets.toml").read_text(encoding="utf-8")
    return tuple(
        Rule(
            kind=rule["kind"],
            pattern=re.compile(rule["pattern"]),
            replacement=rule.get("replacement", REMOVED),
            needs=tuple(rule.get("needs", ())),
        )
        for rule in tomllib.loads(text)["rule"]
    )


@dataclass
class Secrets:
    """Words that are removed from texts, and counts of what was removed."""

    keep: frozenset[str] = frozenset()  # in lower case: words that stay, and are not suspicious
    kinds: dict[str, str] = field(default_factory=dict)  # of each word
    variables: set[str] = field(default_factory=set)  # names, of environment variables
    removed: Counter[str] = field(default_factory=Counter)  # places by kind

    # -- Learning

    def learn_environment(self, text: str) -> None:
        """Learn from environment variables: NAME=value, separated by NUL or line ends; values may be quoted."""
        name, value = "", ""
        for entry in re.split(r"[\0\n]", text):
            match = VARIABLE.fullmatch(entry.strip("\r"))
            if match:
                self.learn_variable(name, value)
                name, value = match[1], match[2]
                self.variables.add(name)
            else:  # continues the value of the variable before
                value += f"\n{entry}"
        self.learn_variable(name, value)

    def learn_arguments(self, arguments: Sequence[str]) -> None:
        """Learn from the arguments of a command, in their order: ``--name value``, ``name=value``."""
        for argument, following in zip(arguments, [*arguments, ""][1:], strict=True):
            match = OPTION.fullmatch(argument)
            if match:
                self.learn_variable(match[1], match[2])
            elif argument.startswith("-") and not following.startswith("-"):
                self.learn_variable(argument.lstrip("-"), following)
            else:
                self.learn_variable("", argument)

    def learn_variable(self, name: str, value: str) -> None:
        """Learn from a value, by its name and its form."""
        value = value.strip().strip("\"'").strip()
        for key, text in _fields(value):
            self.learn_variable(key, text)
        if name.upper() not in FOLDER_VARIABLES:
            self._learn_by_name(name, value)
            self._learn_by_form(value)
        self.add(HOME.findall(value), "user")

    def _learn_by_name(self, name: str, value: str) -> None:
        parts = {part.upper() for part in NAME_PARTS.findall(name)}
        if name.upper() in HOME_VARIABLES:
            self.add([value.rstrip("/\\").replace("\\", "/").rpartition("/")[2]], "user")
        if parts & HOST_NAMES:
            self.add(_hosts(value), "host")
        if parts & USER_NAMES:
            self.add([value, *SEPARATORS.split(value), value.partition("@")[0]], "user")
        if parts & SECRET_NAMES or any(part.endswith(SECRET_ENDS) for part in parts):
            self.add(_parts(value), "value of a secret variable or argument")

    def _learn_by_form(self, value: str) -> None:
        for rule in rules():
            if rule.replacement == REMOVED:
                for span in rule.spans(value):
                    self.add(_parts(value[span.start : span.end]), rule.kind)
        self.add(filter(is_random, SEPARATORS.split(value)), "random value of the environment")

    def learn_facts(self, users: Iterable[str], hosts: Iterable[str]) -> None:
        """Learn names of users, and of machines, with and without their domains."""
        self.add(users, "user")
        self.add((part for host in hosts for part in _hosts(host)), "host")

    def add(self, words: Iterable[str], kind: str) -> None:
        """Add words that are removed wherever they occur."""
        stripped = [word.strip() for word in words]
        for word in {*stripped, *map(quote, stripped)}:
            if len(word) >= MIN_LENGTH and not self._is_harmless(word):
                self.kinds.setdefault(_lower(word), kind)

    def _is_harmless(self, word: str) -> bool:
        return word.lower() in COMMON or word.lower() in self.keep or _is_number(word)

    # -- Removing

    def clean(self, texts: Sequence[str]) -> list[str]:
        """Return texts without these words and forms; the folders of paths become ``…/``."""
        # Most forms occur in no text of a batch: all texts at once are searched for each.
        joined = "\0".join(texts)
        lower = joined.lower()
        present = [rule for rule in rules() if rule.may_occur(joined, lower)]
        return [self._cleaned(text, present) for text in texts]

    def _cleaned(self, text: str, present: Sequence[Rule]) -> str:
        spans = [*self._words_in(text)]
        for rule in present:
            spans += (s for s in rule.spans(text) if text[s.start : s.end].lower() not in self.keep)
        if not spans:
            return text
        result: list[str] = []
        position = 0
        for start, end, kind, replacement in _merged(spans):
            result += (text[position:start], replacement)
            position = end
            self.removed[kind] += 1
        return "".join([*result, text[position:]])

    def _words_in(self, text: str) -> Iterator[Span]:
        """Yield where the words occur as whole words, in whatever case; they may overlap."""
        if not self.kinds:
            return
        lower = _lower(text)
        for run in RUN.finditer(lower):
            for offset, word in self._by_first_run.get(run[0], ()):
                start = run.start() - offset
                if start >= 0 and _is_whole_word(lower, word, start):
                    yield Span(start, start + len(word), self.kinds[word])
        for word in self._without_runs:
            start = lower.find(word)
            while start >= 0:
                yield Span(start, start + len(word), self.kinds[word])
                start = lower.find(word, start + 1)

    def occurs_in(self, text: str) -> bool:
        """Return whether any of the words occurs in a text."""
        return next(self._words_in(text), None) is not None

    @cached_property
    def _by_first_run(self) -> dict[str, list[tuple[int, str]]]:
        """The words by their first run of letters and digits, and where it begins in the word.

        Where a word occurs, its runs are whole runs of the text. Read it after all words are added.
        """
        result: dict[str, list[tuple[int, str]]] = {}
        for word in self.kinds:
            if run := RUN.search(word):
                result.setdefault(run[0], []).append((run.start(), word))
        return result

    @cached_property
    def _without_runs(self) -> list[str]:
        return [word for word in self.kinds if not RUN.search(word)]

    # -- What is left

    def suspicious(self, text: str) -> list[str]:
        """Return the words of a cleaned text that look random, or are hosts of URLs."""
        if not MAY_BE_RANDOM.search(text) and "://" not in text:
            return []
        text = MANGLED.sub(" ", text)
        found = [word for word in CANDIDATE.findall(text) if is_random(word)]
        found += [host for _, host, _ in URL.findall(text) if host and REMOVED not in host]
        return [word for word in found if word.lower() not in self.keep]


def is_random(word: str) -> bool:
    """Return whether a word looks drawn at random: a key, a hash, an identifier."""
    return any(map(_is_random, CANDIDATE.findall(word)))


def _is_random(candidate: str) -> bool:
    letters = candidate.rstrip("=")
    if UUID.fullmatch(letters):
        return True
    digits = sum(c.isdigit() for c in letters)
    if HEX.fullmatch(letters):
        is_long = len(letters) >= MIN_HEX and 0 < digits < len(letters)
        return is_long and _entropy(letters) > MIN_HEX_BITS
    upper, lower = sum(c.isupper() for c in letters), sum(c.islower() for c in letters)
    if min(digits, upper, lower) < MIN_OF_EACH or _entropy(letters) <= MIN_BITS:
        return False
    changes = len(CHANGE.findall(letters))  # MaxPool2DWithIndicesBackward0 has few
    return changes >= MIN_CHANGES * (len(letters) - 1)


def _entropy(text: str) -> float:
    """Return the entropy of a text's characters, in bits per character."""
    counts = Counter(text).values()
    return -sum(n / len(text) * log2(n / len(text)) for n in counts)


# -- Parts of values


def _parts(value: str) -> Iterator[str]:
    """Yield a secret, and what in it is one by itself: fields, items of lists, lines, logins of URLs."""
    yield from (value, unquote(value))
    yield from (line for line in value.splitlines() if "-----" not in line)
    for login, host, rest in URL.findall(value):
        yield from (login, *login.split(":"), host, host.partition(":")[0])
        # A service's address holds its token; words such as "services" are none.
        yield from (
            part for part in rest.split("/") if re.search(r"\d", part) and len(part) >= MIN_TOKEN
        )
    for part in SEPARATORS.split(value):
        match = PAIR.fullmatch(part)
        for item in (part, match[1] if match else ""):
            yield from (item, unquote(item))
            if "://" not in item:
                before, _, after = item.partition(":")
                yield from (before, after)
    yield from (text for _, text in _fields(value))


def _fields(value: str) -> list[tuple[str, str]]:
    """Return the keys and texts of a JSON value."""
    if not value.startswith(("{", "[")):
        return []
    try:
        return list(_leaves("", json.loads(value)))
    except (ValueError, RecursionError):
        return []


def _leaves(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, held in value.items():
            yield from _leaves(str(name), held)
    elif isinstance(value, list):
        for held in value:
            yield from _leaves(key, held)
    elif isinstance(value, str):
        yield key, value


def _hosts(value: str) -> Iterator[str]:
    """Yield the hosts in a value, with and without domain and port; ``gpu[01-04]`` are four."""
    if value.startswith(("/", "-", "~", ".")):  # a file or an option
        return
    value = value.rpartition("://")[2].rpartition("@")[2]
    for before, numbers, after in NODE_RANGE.findall(value):
        yield from (before, *(f"{before}{n}{after}" for n in _numbers(numbers)))
    for part in re.split(r"[\s,;/|]+", NODE_RANGE.sub(" ", value)):
        host = part.partition(":")[0] if part.count(":") == 1 else part
        yield from (host, host.partition(".")[0])


def _numbers(expression: str) -> Iterator[str]:
    """Yield the numbers of an expression such as ``01-04,07``, with their zeros."""
    left = MAX_NODES
    for part in expression.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            continue
        for number in range(int(first), min(int(last or first), int(first) + left) + 1):
            yield f"{number:0{len(first)}}"


def _lower(text: str) -> str:
    """Return a text in lower case and of the same length."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _is_whole_word(text: str, word: str, start: int) -> bool:
    """Return whether a word occurs at ``start``, where a run of letters and digits may begin, and ends with one."""
    end = start + len(word)
    return text.startswith(word, start) and not (
        RUN.match(word[-1]) and end < len(text) and RUN.match(text[end])
    )


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    """Yield disjoint spans in order that cover the same; a span within another one gives way to it."""
    ordered = sorted(spans, key=lambda span: (span.start, -span.end))
    current = ordered[0]
    for span in ordered[1:]:
        if span.start >= current.end:
            yield current
            current = span
        elif span.end > current.end:
            current = Span(current.start, span.end, current.kind)
    yield current


def _is_number(word: str) -> bool:
    is_address = IPV4.fullmatch(word) is not None
    return word.replace(".", "").replace("-", "").isdigit() and not is_address

"""Reports at URLs: they are fetched into a temporary folder of this machine, read, and deleted.

fsspec, which need not be installed, knows the protocols: object stores, HTTP and others. Messages
name the URL without what may be a credential: the user information and the query.
"""

from __future__ import annotations

import errno
import logging
import re
import shutil
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote

from bridge.importers.column_files import FOLDERS, SUFFIXES
from bridge.importers.errors import ReportError
from bridge.importers.records import record

LOG = logging.getLogger("bridge.importers")

# -- The names of reports at URLs


SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# In a message; a query may have blanks: it ends with a quote or the message.
URL = re.compile(SCHEME.pattern + r"[^\s'\"<>?]+(?:\?[^'\"<>]*)?")
USER = re.compile(r"(?<=://)[^/?#]*@")
# A password with / ? # that should be encoded: what follows the colon is no port, or may be one.
BROKEN_USER = re.compile(r"(?<=://)(?!\[)[^/?#@]*:(?!\d*[/?#])[^@]*[/?#].*@.*")
PERHAPS_USER = re.compile(r"(?<=://)[^/?#@]*:\d+/[^?#]*@")
MASK, USER_MASK = "...", "...@"
HTTP_QUERY, QUERY = re.compile(r"[?#].*"), re.compile(r"\?[^/?=]+=.*")
CHAIN = "::"  # between the URLs of a chain, as zip://report.sqlite::s3://bucket/run.zip
HTTP = ("http", "https")  # where ? begins a query
MARKS, HTTP_MARKS = frozenset("*?["), frozenset("*[")
NAMELESS = "report"


def without_credentials(text: str) -> str:
    """Return a text without the user information and the query of the URLs in it."""
    return URL.sub(lambda match: _public(match[0]), text)


def _public(url: str) -> str:
    """Return a URL without what may be credentials."""
    parts = [_without_user(part) for part in url.split(CHAIN)]
    return CHAIN.join(
        (HTTP_QUERY if part.lower().startswith("http") else QUERY).sub("", part) for part in parts
    )


def _without_user(url: str) -> str:
    """Return a URL without the user information; a mask stands for what may be one."""
    return PERHAPS_USER.sub(USER_MASK, BROKEN_USER.sub(MASK, USER.sub("", url)))


@record
class Url:
    """The URL of a report.

    ``text`` is as the user wrote it and may hold credentials: it opens the file system. ``path`` is
    the file there, "" for that of ``text``. ``called`` names a file that was found in a folder.
    """

    text: str = field(repr=False)
    path: str = field(default="", repr=False)
    called: str = ""

    def __str__(self) -> str:
        """Return the URL without credentials."""
        return _public(self.called or self.text)

    @property
    def protocol(self) -> str:
        """The protocol, as s3."""
        return self.text.partition("://")[0].lower()

    @property
    def name(self) -> str:
        """The base name of the file or folder."""
        text = str(self).partition(CHAIN)[0].partition("://")[2].rstrip("/")
        name = (unquote(text) if self.protocol in HTTP else text).rpartition("/")[2]
        return NAMELESS if name in {"", ".", ".."} else name.replace("\0", "?")

    @property
    def is_pattern(self) -> bool:
        """Whether the URL has marks of a pattern."""
        marks = HTTP_MARKS if self.protocol in HTTP else MARKS
        return not self.path and not marks.isdisjoint(USER.sub("", self.text))

    @property
    def is_columnar(self) -> bool:
        """Whether the URL is called like a folder of tables that nsys exports."""
        return self.name.endswith(FOLDERS)


Location = Path | Url  # of a report


def is_url(text: str) -> bool:
    return SCHEME.match(text) is not None


def location(report: str | Location) -> Location:
    """Return the place of a report: a text with a protocol is a URL."""
    if isinstance(report, str):
        return Url(report) if is_url(report) else Path(report)
    return report


# -- Files at URLs


NEEDED = "reading it needs fsspec: pip install 'nsight-bridge[remote]'"
REFUSED, NOT_FOUND = (401, 403), 404  # states of HTTP
SILENCE_S = 60  # after which a connection counts as lost
MAX_REASON = 200  # characters
PREFIX = "bridge-fetch-"  # of temporary folders


class RemoteError(ReportError):
    """A report cannot be fetched from its URL."""


def listed(url: Url) -> list[Url] | None:
    """Return what is directly in a folder; None for what is no folder.

    HTTP has no folders: a URL that ends with / is taken for the page that lists one.
    """
    with _one_line(url):
        system, path = _opened(url)
        if not url.text.endswith("/") and (url.protocol in HTTP or not system.isdir(path)):
            return None
        return _found(url, system, system.ls(path, detail=False))


def matches(url: Url) -> list[Url]:
    """Return what a pattern stands for, by name."""
    with _one_line(url):
        system, path = _opened(url)
        return _found(url, system, system.glob(path))


def _found(url: Url, system: Any, paths: Sequence[str]) -> list[Url]:
    return [Url(url.text, path, system.unstrip_protocol(path)) for path in sorted(paths)]


def _opened(url: Url) -> tuple[Any, str]:
    """Return the file system of a URL, and the path there."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise RemoteError(f"{url}: {NEEDED}") from error
    system, path = url_to_fs(url.text, **(_http_options() if url.protocol in HTTP else {}))
    system.invalidate_cache()  # a program may ask again after files were added
    return system, url.path or path


def _http_options() -> dict[str, Any]:
    """Return options for HTTP: no limit of the whole time, and proxies and .netrc as other programs use them.

    What the user's configuration of fsspec sets comes before.
    """
    from aiohttp import ClientTimeout
    from fsspec.config import conf

    timeout = ClientTimeout(total=None, sock_connect=SILENCE_S, sock_read=SILENCE_S)
    own = {key: value for p in HTTP for key, value in conf.get(p, {}).items()}
    return {
        "client_kwargs": {"timeout": timeout, "trust_env": True, **own.get("client_kwargs", {})}
    }


def _fetch(url: Url, folder: Path) -> Path:
    """Copy a report into a folder and return its path there; of a folder of tables, its tables."""
    target = folder / url.name
    with _one_line(url):
        system, path = _opened(url)
        if not url.is_columnar:
            _copy(url, system, path, target)
            return target
        tables = [name for name in system.ls(path, detail=False) if name.endswith(SUFFIXES)]
        target.mkdir()
        for table in tables:
            _copy(url, system, table, target / table.rpartition("/")[2])
    return target


def _copy(url: Url, system: Any, path: str, target: Path) -> None:
    """Copy a file; raises RemoteError if it does not fit on the disk, or arrives in part."""
    size = system.info(path).get("size")
    free = shutil.disk_usage(target.parent).free
    if size is not None and size > free:
        raise RemoteError(_no_space(url, target, f"it takes {size} bytes, {free} are free"))
    try:
        system.get_file(path, str(target))
    except Exception as error:  # of any kind: it comes from the package of the protocol
        # No cause below: its text may quote parts of the URL, as a query, by which nobody finds its secret.
        _log_without_texts(url, error)
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise RemoteError(_no_space(url, target, "the disk is full")) from None
        if not target.exists() or not target.stat().st_size:
            raise
        raise RemoteError(_broken_off(url, target, size)) from None
    if size is not None and target.stat().st_size != size:
        raise RemoteError(_broken_off(url, target, size))


def _no_space(url: Url, target: Path, what: str) -> str:
    folder = next(path.parent for path in target.parents if path.name.startswith(PREFIX))
    return f"{url}: no space for it in {folder}: {what}; set TMPDIR to a folder on a larger disk"


def _broken_off(url: Url, target: Path, size: int | None) -> str:
    of = "" if size is None else f" of {size}"
    return f"{url}: the transfer broke off after {target.stat().st_size}{of} bytes; try again"


@contextmanager
def _one_line(url: Url) -> Iterator[None]:
    """Turn what fsspec and the packages of protocols raise into a RemoteError, without credentials."""
    try:
        yield
    except ReportError:
        raise
    except Exception as error:  # noqa: BLE001 - of any kind: each package has its own
        _log_without_texts(url, error)
        # No cause: its text may hold what `_message` leaves out, as a password without the rest of its URL.
        raise RemoteError(f"{url}: {_message(url, error)}") from None


def _log_without_texts(url: Url, error: BaseException) -> None:
    """Log the types of an error and of its causes, and where it was raised, not their texts: secrets stand in these."""
    if not LOG.isEnabledFor(logging.DEBUG):
        return
    kinds: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        kinds.append(type(cause).__qualname__)
        cause = cause.__cause__ or cause.__context__
    frames = "".join(traceback.format_tb(error.__traceback__)).rstrip()
    LOG.debug("%s: %s, raised by\n%s", url, " caused by ".join(kinds), frames)


def _message(url: Url, error: BaseException) -> str:
    if url.protocol in HTTP and isinstance(error, FileNotFoundError) and error.__cause__:
        error = error.__cause__  # fsspec says so of every failure
    state = error.status if hasattr(error, "status") else getattr(error, "code", None)
    if isinstance(error, ImportError):
        package = getattr(error.__cause__ or error, "name", None) or "the package of its protocol"
        return f"reading it needs {package}: pip install {package}"
    if isinstance(error, FileNotFoundError) or state == NOT_FOUND:
        return "no such file; is the name right?"
    if isinstance(error, PermissionError) or state in REFUSED:
        return (
            f"access refused ({_reason(url, error)}); are there credentials for it on this machine?"
        )
    if BROKEN_USER.search(url.text):  # other packages quote parts of it
        return "cannot be fetched; write / ? # @ in a user name or password as %2F %3F %23 %40"
    return f"cannot be fetched: {_reason(url, error)}"


def _reason(url: Url, error: BaseException) -> str:
    """Return why something failed, in one line without credentials."""
    text = str(getattr(error, "message", "") or error).replace(url.text, str(url))
    text = without_credentials(text)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text[:MAX_REASON] or type(error).__name__


# -- Reports on this machine


_origins: dict[Path, Url] = {}  # of the files that are fetched now


class Downloads:
    """A temporary folder for reports at URLs, each of which is fetched once; deleted at the end of a block.

    It is made when the first report is fetched, in ``parent``, by default the folder of temporary files.
    """

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._paths: dict[Url, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the files."""
        for path in self._paths.values():
            _origins.pop(path, None)
        if self._folder is not None:
            self._folder.cleanup()

    def path(self, report: Location) -> Path:
        """Return the path of a report on this machine; fetch it if need be. Raises RemoteError."""
        if isinstance(report, Path):
            return report
        if report not in self._paths:
            place = self._new_place(report)
            LOG.debug("%s: fetching it into %s", report, place)
            path = _fetch(report, place)
            self._paths[report] = path
            _origins[path] = report
        return self._paths[report]

    def _new_place(self, url: Url) -> Path:
        """Return a new folder: several reports may have one name."""
        try:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix=PREFIX, dir=self._parent)
            return Path(tempfile.mkdtemp(dir=self._folder.name))
        except OSError as error:
            folder = self._parent or tempfile.gettempdir()
            raise RemoteError(
                f"{url}: no folder to fetch it into: {folder}: {error.strerror}"
            ) from error


def origin(path: Path) -> str:
    """Return the URL that a file was fetched from, for people; "" for other files."""
    return str(_origins.get(path, ""))


def given(report: Location) -> str:
    """Return a report as the user named it, without credentials: its path, or the URL that it was fetched from."""
    return (origin(report) if isinstance(report, Path) else "") or str(report)


@contextmanager
def errors_name_urls(path: Path) -> Iterator[None]:
    """Make the message of a ReportError in the block name the URL of a fetched file."""
    try:
        yield
    except ReportError as error:
        if url := origin(path):
            text = str(error).replace(str(path), url)
            error.args = (text if url in text else text.replace(path.name, url, 1),)
        raise

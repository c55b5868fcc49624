"""What the site makes of the pages that a repository shows as they are: see .mkdocs.yml.

The changelog joins the pages; a link out of docs/ gets the file that it names; the marks by which tests
find the commands of a page are left out.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
MARK = re.compile(r"^<!-- [\w-]+ -->$\n?", re.MULTILINE)
OUTSIDE = re.compile(r"\]\(((?:\.\./)+)([^)#]+)\)")
CHANGELOG = "changelog.md"
SOURCE = "source"


def on_files(files: Files, config: Any) -> Files:
    """Add the changelog, and what pages link to outside docs/."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    files.append(File.generated(config, CHANGELOG, content=text.replace("](docs/", "](")))
    outside = {name for page in files.documentation_pages() for name in _outside(page)}
    for name in sorted(outside):
        path = str(ROOT / name)
        files.append(File.generated(config, f"{SOURCE}/{name}", abs_src_path=path))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Leave out the marks, and point links out of docs/ to the copies."""
    here = posixpath.dirname(page.file.src_uri)

    def inside(link: re.Match[str]) -> str:
        name = _resolved(here, link)
        return f"]({posixpath.relpath(f'{SOURCE}/{name}', here)})" if name else link[0]

    return OUTSIDE.sub(inside, MARK.sub("\n", markdown))


def _outside(page: File) -> list[str]:
    here = posixpath.dirname(page.src_uri)
    return [
        name for link in OUTSIDE.finditer(page.content_string) if (name := _resolved(here, link))
    ]


def _resolved(here: str, link: re.Match[str]) -> str:
    """Return the file in the repository that a link of a page in docs/`here` names; "" for one in docs/."""
    name = posixpath.normpath(posixpath.join("docs", here, link[1] + link[2]))
    return "" if name.startswith(("docs/", "..")) or not (ROOT / name).is_file() else name

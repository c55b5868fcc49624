"""Steps of a release, which docs/releasing.md and .github/workflows/release.yml use.

python .ci/release.py version 1.2.0   write a version to every file that has it
python .ci/release.py check v1.2.0    fail unless the tag can be released
python .ci/release.py notes           print the changelog's section of this version
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NAME = "nsight-bridge"
PLACEHOLDER = "example.com"
VENDORED = "bridge/render/page/vendored"
SBOM = f"{VENDORED}/{NAME}.cdx.json"
BUNDLED = "tabulator-tables", "echarts", "zrender", "tslib"  # npm's names of the page's libraries
VERSIONED = {  # the files that have the version, beside the SBOM, and where
    "bridge/knowledge/package.py": re.compile(r'^VERSION = "(.+)"$', re.MULTILINE),
    "docker/conda/recipe.yaml": re.compile(r'^  version: "(.+)"$', re.MULTILINE),
}


def read(name: str) -> str:
    """Return the text of a file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def version() -> str:
    """Return the version that `bridge --version` prints."""
    [found] = VERSIONED["bridge/knowledge/package.py"].findall(read("bridge/knowledge/package.py"))
    return str(found)


def set_version(new: str) -> None:
    """Write a version to every file that has one."""
    for name, pattern in VERSIONED.items():
        text = pattern.sub(lambda line: line[0].replace(line[1], new), read(name))
        (ROOT / name).write_text(text, encoding="utf-8")
    (ROOT / SBOM).write_text(sbom(), encoding="utf-8")


def placeholders(text: str) -> list[int]:
    """List the numbers of the lines of pyproject.toml that still hold the placeholder."""
    return [number for number, line in enumerate(text.splitlines(), 1) if PLACEHOLDER in line]


def notes(changelog: str, of: str) -> str:
    """Return the section of a version without its heading; "" where there is none."""
    section = re.compile(
        rf"^## {re.escape(of)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL
    )
    found = section.search(changelog)
    return found[1].strip() if found else ""


def refusals(tag: str) -> list[str]:
    """List the reasons why this tree cannot be released under a tag."""
    reasons = [
        f"pyproject.toml:{number}: the placeholder {PLACEHOLDER} is still there: see docs/releasing.md"
        for number in placeholders(read("pyproject.toml"))
    ]
    if tag != f"v{version()}":
        reasons.append(f"the tag is {tag}, the version {version()}: python .ci/release.py version")
    if not notes(read("CHANGELOG.md"), version()):
        reasons.append(f"CHANGELOG.md: no section ## {version()}")
    if read(SBOM) != sbom():
        reasons.append(f"{SBOM} is out of date: python .ci/release.py version {version()}")
    return reasons


def sbom() -> str:
    """Return the list of what the wheel holds of others, as JSON of CycloneDX; the same input gives the same bytes."""
    packages = json.loads(read(f"{VENDORED}/package-lock.json"))["packages"]
    locked = {name: packages[f"node_modules/{name}"] for name in BUNDLED}
    refs = {name: f"pkg:npm/{name}@{one['version']}" for name, one in locked.items()}
    own = f"pkg:pypi/{NAME}@{version()}"
    edges = {own: [refs[name] for name in packages[""]["dependencies"]]}
    edges |= {refs[n]: [refs[d] for d in one.get("dependencies", ())] for n, one in locked.items()}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own)}",
        "version": 1,
        "metadata": {"component": _component(own, NAME, version(), "Apache-2.0")},
        "components": [
            _component(refs[name], name, one["version"], one["license"])
            | {"hashes": [{"alg": "SHA-512", "content": _hex(one["integrity"])}]}
            for name, one in locked.items()
        ],
        "dependencies": [{"ref": ref, "dependsOn": sorted(to)} for ref, to in edges.items()],
    }
    return json.dumps(document, indent=2) + "\n"


def _component(ref: str, name: str, its_version: str, licence: str) -> dict[str, Any]:
    named = {"type": "library", "bom-ref": ref, "name": name, "version": its_version}
    return named | {"licenses": [{"license": {"id": licence}}], "purl": ref}


def _hex(integrity: str) -> str:
    """Return npm's hash of a package in the digits that CycloneDX wants."""
    algorithm, _, digest = integrity.partition("-")
    if algorithm != "sha512":
        raise ValueError(integrity)
    return base64.b64decode(digest).hex()


def main() -> int:
    """Run the step that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    steps = parser.add_subparsers(dest="step", required=True)
    steps.add_parser("version").add_argument("new")
    steps.add_parser("check").add_argument("tag")
    steps.add_parser("notes")
    given = parser.parse_args()
    if given.step == "version":
        set_version(given.new)
    elif given.step == "notes":
        sys.stdout.write(f"{notes(read('CHANGELOG.md'), version())}\n")
    elif reasons := refusals(given.tag):
        sys.exit("\n".join(["cannot be released:", *reasons]))
    return 0


if __name__ == "__main__":
    sys.exit(main())

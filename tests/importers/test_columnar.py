"""Columnar exports of Nsight Systems: what they say equals what the SQLite export of the same capture says."""

import subprocess
import sys
from dataclasses import replace

import columnar
import pandas as pd
import pytest
import real_parts

import importers
from importers import frames
from importers.errors import ReportError

FORMS = list(columnar.FORMS)


def assert_equal(capture, expected):
    """Hold two captures of one program against each other, but for the names of their files."""
    for name in frames.FRAMES:
        pd.testing.assert_frame_equal(getattr(capture, name), getattr(expected, name))
    assert capture.texts.data.tobytes() == expected.texts.data.tobytes()
    assert capture.texts.offsets.tolist() == expected.texts.offsets.tolist()
    assert facts(capture) == facts(expected)


def facts(capture):
    (fact,), (name,) = capture.facts, capture.source
    warnings = tuple(warning.replace(name, "NAME") for warning in fact.warnings)
    return replace(fact, warnings=warnings, path="")


def converted(export, folder, form, text=None):
    return columnar.FORMS[form](columnar.tables_of(export, text), folder / f"report{form}")


# -- Real captures


PROGRAM = """
import threading
from bridge import nvtx_op
@nvtx_op
def step(i):
    with nvtx_op("ünï"), nvtx_op(f"aten::mm, seq = {i}"):
        pass
def run():
    for i in range(100):
        step(i)
other = threading.Thread(target=run, name="worker")
other.start(), run(), other.join()
"""


@pytest.fixture(scope="module")
def recorded(nsys, tmp_path_factory):
    """A capture of this machine, which has no GPU."""
    folder = tmp_path_factory.mktemp("recorded")
    options = ["--trace=nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--output", "report"]
    (folder / "program.py").write_text(PROGRAM)
    program = [sys.executable, "program.py"]
    subprocess.run(
        [nsys, "profile", *options, *program],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder / "report.nsys-rep"


def exported(nsys, recorded, form, name):
    target = recorded.with_name(name)
    command = [nsys, "export", "--quiet=true", "--type", form, "--output", target, recorded]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


@pytest.mark.parametrize("form", ["arrow", "arrowdir", "parquetdir"])
def test_what_nsys_exports_in_two_forms_is_the_same_capture(nsys, recorded, form):
    offered = subprocess.run(
        [nsys, "export", "--help=type"], check=True, capture_output=True, text=True
    ).stdout
    if form not in offered.replace(",", " ").split():
        pytest.skip(f"this nsys does not write {form}")
    names = f"{form}.sqlite", f"{form}.columnar"
    sqlite = importers.load(exported(nsys, recorded, "sqlite", names[0]))
    capture = importers.load(exported(nsys, recorded, form, names[1]))
    assert len(capture.ranges) == 600
    assert_equal(capture, sqlite)


@pytest.fixture(scope="session", params=[
    pytest.param(path, id=path.stem)
    for path in real_parts.sampled(sorted((real_parts.CORPUS / "nsys").glob("*.sqlite")))
])  # fmt: skip
def profile(request, corpus):
    return request.param


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_real_profile_says_the_same_in_every_form(profile, form, tmp_path):
    try:
        expected = importers.load(profile)
    except ReportError as error:
        with pytest.raises(type(error)):
            importers.load(converted(profile, tmp_path, form))
        return
    assert_equal(importers.load(converted(profile, tmp_path, form)), expected)

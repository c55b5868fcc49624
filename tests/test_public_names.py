"""What `import bridge` offers: the names that `dir` shows, and what is said of a name that is not there."""

import sys
from importlib.util import find_spec

import pytest
from test_architecture import HEAVY, loaded_by, run

import bridge


def test_dir_shows_the_public_names_and_no_others():
    shown = {name for name in dir(bridge) if not name.startswith("__")}
    packages = {name for name in ("cupy", "jax", "torch") if find_spec(name)}
    modules = {"autorun", "compat", "importers", "scale", *packages}
    assert shown == {*bridge.__all__, *modules} - {"__version__"}
    assert {"load", "bench", "memory"} <= shown
    assert {"__version__", "__all__", "__doc__", "__file__"} <= set(dir(bridge))


def test_help_and_inspection_find_all_that_dir_shows(monkeypatch):
    """Modules for packages that are not installed are not shown."""
    monkeypatch.setattr(bridge, "_OF_PACKAGES", ("cupy", "jax", "torch", "nosuch"))
    monkeypatch.setattr(bridge, "_LAZY_MODULES", {**bridge._LAZY_MODULES, "nosuch": "nosuch"})
    assert "nosuch" not in dir(bridge)


@pytest.mark.slow
def test_every_name_that_dir_shows_can_be_had():
    program = "import bridge, inspect; print(*(name for name, _ in inspect.getmembers(bridge)))"
    assert {*run(sys.executable, "-c", program).stdout.split()} == {*dir(bridge)}


@pytest.mark.parametrize(
    ("name", "meant"),
    [("laod", "'load'"), ("nvtxop", "'nvtx_op'"), ("tourch", "'torch'")],
)
def test_a_name_that_is_not_there_suggests_the_nearest(name, meant):
    with pytest.raises(AttributeError) as said:
        getattr(bridge, name)
    expected = f"module 'bridge' has no attribute '{name}'; did you mean {meant}?"
    assert str(said.value) == expected
    assert said.value.name == name


def test_a_name_like_no_other_is_merely_unknown():
    with pytest.raises(AttributeError) as said:
        bridge.zzzzqqqq  # noqa: B018
    assert str(said.value) == "module 'bridge' has no attribute 'zzzzqqqq'"


@pytest.mark.slow
def test_a_traceback_suggests_once_and_a_question_costs_nothing():
    program = (
        "import bridge, traceback\ntry: bridge.laod\nexcept AttributeError: traceback.print_exc()"
    )
    last = run(sys.executable, "-c", program).stderr.splitlines()[-1]
    assert last == "AttributeError: module 'bridge' has no attribute 'laod'; did you mean 'load'?"
    loaded = loaded_by("import bridge; dir(bridge); hasattr(bridge, 'laod')")
    assert not loaded & {*HEAVY, "difflib", "bridge.knowledge.suggestions"}

"""BRIDGE_MODE selects what sessions and started programs record."""

from __future__ import annotations

import pytest

from bridge.annotate import mode
from bridge.capture.session.options import checked_options
from bridge.frameworks import autorun


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("0", ""),
        ("1", "ops"),
        ("2", "ops"),
        ("13", "ops api memory"),
        ("15", "ops api memory"),
        ("8", "memory"),
        ("api, modules", "api modules"),
        ("shapes", "shapes"),
    ],
)
def test_kinds_by_names_and_bits(text, kinds):
    assert mode.parse_kinds(text) == set(kinds.split())


@pytest.mark.parametrize(("text", "said"), [("16", "a sum of"), ("op", "ops"), ("ops,", "no kind")])
def test_others_are_refused(text, said):
    with pytest.raises(ValueError, match=said):
        mode.parse_kinds(text)


def test_a_session_takes_what_the_program_does_not_say(monkeypatch):
    monkeypatch.setenv("BRIDGE_MODE", "api,memory,shapes")
    options = checked_options({"profile_memory": False})
    chosen = options.level, options.api_calls, options.profile_memory, options.record_shapes
    assert chosen == (1, True, False, True)
    assert options.records_ops
    assert not options.with_modules
    monkeypatch.delenv("BRIDGE_MODE")
    assert checked_options({}).level == 1
    assert not checked_options({}).records_ops


def test_a_started_program_is_annotated_so(monkeypatch, capsys):
    armed = []
    monkeypatch.setattr(autorun, "arm", armed.append)
    monkeypatch.setenv("BRIDGE_AUTOSTART", "1")
    monkeypatch.delenv("BRIDGE_AUTORUN_OPTIONS", raising=False)
    monkeypatch.setenv("BRIDGE_MODE", "6")
    autorun.autostart()
    monkeypatch.setenv("BRIDGE_AUTORUN_OPTIONS", "--no-modules")  # more special, so it counts
    autorun.autostart()
    monkeypatch.delenv("BRIDGE_AUTORUN_OPTIONS")
    monkeypatch.setenv("BRIDGE_MODE", "everything")
    autorun.autostart()
    assert armed == [
        autorun.Options(modules=False, ops=True, api=True),
        autorun.Options(modules=False),
        autorun.Options(),
    ]
    assert "no kind 'everything'" in capsys.readouterr().err

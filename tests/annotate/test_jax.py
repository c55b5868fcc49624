"""JAX annotated: what runs has a range, what is only traced has none, and results are the same to the bit."""

from __future__ import annotations

import subprocess
import sys
import traceback
import warnings
from contextlib import nullcontext

import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import bridge.frameworks.jax  # noqa: E402
import bridge.jax  # noqa: E402
from bridge.annotate.hooks import Hooks  # noqa: E402

EVERYWHERE = sys.version_info >= (3, 12)  # the calls of all jitted functions are seen


@pytest.fixture
def annotated(tool):
    with bridge.jax.annotate() as wrapped:
        yield wrapped


def step(x, n=2):
    return (jnp.sin(x) * n).sum()


X = np.arange(4, dtype=np.float32)


def names(tool, call):
    """Name what one call makes, after a first one that compiles."""
    call()
    tool.slices.clear()
    call()
    return tool.names()


def test_calls_of_jitted_functions(tool, annotated):
    jitted = jax.jit(step, static_argnames="n")
    assert names(tool, lambda: jitted(X, n=3)) == ["jit:step"]
    assert isinstance(jitted, type(bridge.frameworks.jax.jit(step)))
    assert "sin" in jitted.lower(X).as_text()
    assert jitted.__wrapped__ is step


def test_the_call_that_compiles_is_one_range_too(tool, annotated):
    jitted = jax.jit(step)
    tool.slices.clear()
    jitted(X)
    assert tool.names() == ["jit:step"]


def test_options_given_first(tool, annotated):
    jitted = jax.jit(static_argnames="n")(step)
    assert names(tool, lambda: jitted(X)) == ["jit:step"]


@pytest.mark.skipif(
    not EVERYWHERE, reason="CPython 3.11 asks no type for the call of a jitted function"
)
def test_functions_that_were_jitted_before(tool):
    jitted = jax.jit(step)
    with bridge.jax.annotate():
        assert names(tool, lambda: jitted(X)) == ["jit:step"]


def test_eager_ops(tool, annotated):
    x = jnp.asarray(X)
    assert names(tool, lambda: jax.lax.add(x, x)) == ["jax::add"]
    assert names(tool, lambda: x + 1) == ["jax::add"]
    assert names(tool, lambda: jnp.sin(x)) == ["jax::sin"]
    assert names(tool, lambda: jnp.matmul(x, x)) == ["jax::matmul"]


def test_what_is_only_traced_has_no_range(tool, annotated):
    jitted = jax.jit(step)
    outer = jax.jit(lambda x: jitted(x) + jax.device_put(x).sum())
    tool.slices.clear()
    outer(X)
    assert tool.names() == ["jit:<lambda>"]
    tool.slices.clear()
    jax.make_jaxpr(jitted)(X)
    jitted.lower(X)
    jax.eval_shape(jitted, X)
    assert tool.names() == []


def test_what_grad_and_vmap_run_has_ranges(tool, annotated):
    jitted = jax.jit(step)
    assert names(tool, lambda: jax.vmap(jitted)(X)) == ["jit:step"]
    found = names(tool, lambda: jax.grad(jitted)(X))
    assert found.count("jit:step") == 2  # forward and backward
    eager = names(tool, lambda: jax.grad(step)(X))
    assert {"jit:sin", "jit:multiply"} <= set(eager)


def test_waits_and_copies(tool, annotated):
    x = jnp.asarray(X)
    for call, name, category in (
        (lambda: jax.block_until_ready([x, x]), "jax.block_until_ready", "wait"),
        (x.block_until_ready, "jax.block_until_ready", "wait"),
        (lambda: jax.device_put(X), "jax.device_put", "copy"),
        (lambda: jax.device_get(x), "jax.device_get", "copy"),
    ):
        tool.slices.clear()
        call()
        assert [piece.label[::2] for piece in tool.slices] == [(name, category)]


def results():
    jitted = jax.jit(step)
    x = jnp.asarray(X)
    return [
        jitted(x), jax.grad(jitted)(x), jax.vmap(jitted)(x), jax.grad(step)(x), x + 1, x[1:],
        x.at[0].set(3), jax.random.normal(jax.random.key(0), (3,)), jax.device_get(x),
        jax.lax.scan(lambda c, y: (c + y, c), 0.0, x)[1], jax.jacobian(jnp.sin)(x),
    ]  # fmt: skip


def test_results_are_the_same_to_the_bit(tool):
    before = results()
    with bridge.jax.annotate():
        within = results()
    for one, other in zip(before, within, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        assert type(one) is type(other)


def owners():
    modules = [module for name, module in sys.modules.items() if name.startswith("jax.")]
    array = type(jnp.zeros(()))
    return [jax, *modules, array, bridge.frameworks.jax.Jitted, jnp.ufunc, jax._src.core.EvalTrace]


def test_undo_leaves_all_as_it_was_and_twice_is_one_range(tool):
    results()  # what is imported late is imported now
    everywhere = owners()
    before = [dict(vars(owner)) for owner in everywhere]
    first, second = bridge.jax.annotate(), bridge.jax.annotate()
    jitted = jax.jit(step)
    assert names(tool, lambda: jitted(X)) == ["jit:step"]
    first.undo()
    assert names(tool, lambda: jitted(X)) == ["jit:step"]
    second.undo()
    for owner, was in zip(everywhere, before, strict=True):
        now = vars(owner)
        assert [name for name in was if now.get(name) is not was[name]] == []
        assert set(now) == set(was), owner
    assert names(tool, lambda: [jitted(X), jnp.sin(X), jax.device_put(X)]) == []


def test_an_error_passes_and_closes_the_range(tool, annotated):
    jitted = jax.jit(step)
    with pytest.raises(TypeError, match="str"):
        jitted("a")
    assert tool.open() == ()
    assert names(tool, lambda: jitted(X)) == ["jit:step"]


def test_a_traceback_and_a_type_are_those_of_the_program(tool):
    def fails(x):
        raise ValueError("mine")

    def frames(annotated):
        with bridge.jax.annotate() if annotated else nullcontext():
            function = jax.jit(fails)
            with pytest.raises(ValueError, match="mine") as raised:
                function(X)
        files = [frame.filename for frame in traceback.extract_tb(raised.value.__traceback__)]
        return files, type(function).__name__

    expected, name = frames(annotated=False)
    files, annotated_name = frames(annotated=True)
    assert files == expected
    assert annotated_name == name
    assert tool.all_closed()


def test_the_steps_of_a_jitted_function_that_is_not_jitted(tool, annotated):
    with jax.disable_jit():
        jax.jit(step)(X)
    assert tool.parents("jax::sin") == {("jit:step",)}


def test_without_the_private_names_it_says_what_is_missing(tool, monkeypatch):
    monkeypatch.delattr("jax._src.core.EvalTrace")
    module = bridge.frameworks.jax
    monkeypatch.setattr(module, "_hooks", Hooks("of this test", module._function_hooks))
    with pytest.warns(RuntimeWarning, match="no EvalTrace: eager ops have ranges only if"):
        wrapped = bridge.jax.annotate()
    with wrapped:
        jitted = jax.jit(step)
        assert names(tool, lambda: jitted(X)) == ["jit:step"]


def test_without_a_tool_it_says_nothing_and_runs(monkeypatch):
    program = (
        "import jax, bridge.jax\n"
        "with bridge.jax.annotate():\n"
        "    assert float(jax.jit(lambda x: x + 1)(1.0)) == 2\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_warned_of_here():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bridge.jax.annotate().undo()

"""CuPy annotated, as far as that can be tried without a GPU: what is replaced, what it still is, undoing."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import numpy as np
import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

import bridge.cupy  # noqa: E402
import bridge.frameworks.cupy  # noqa: E402

SOURCE = 'extern "C" __global__ void scale(float *x) { x[0] *= 2; }'


@pytest.fixture
def annotated(tool):
    with bridge.cupy.annotate() as wrapped:
        yield wrapped


def launched(call):
    """Call what needs a GPU and libraries: without them it fails, but within the call."""
    with contextlib.suppress(Exception):
        call()


def synchronized(stream):
    stream.synchronize()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: cupy.zeros(3), "cupy.zeros"),
        (lambda: cupy.add(1, 2), "cupy.add"),
        (lambda: cupy.sum([1]), "cupy.sum"),
        (lambda: cupy.matmul(1, 2), "cupy.matmul"),
        (lambda: cupy.linalg.svd(np.ones((2, 2))), "cupy.linalg.svd"),
        (lambda: cupy.fft.fft([1.0]), "cupy.fft.fft"),
        (lambda: cupy.random.rand(3), "cupy.random.rand"),
        (lambda: cupy.ElementwiseKernel("T x", "T y", "y = x", "same")(1), "kernel:same"),
        (
            lambda: cupy.ReductionKernel("T x", "T y", "x", "a + b", "y = a", "0", "total")(1),
            "kernel:total",
        ),
        (lambda: cupy.RawKernel(SOURCE, "scale")((1,), (1,), ()), "kernel:scale"),
        (lambda: synchronized(cupy.cuda.Stream.null), "cupy.cuda.Stream.synchronize"),
        (lambda: cupy.cuda.runtime.deviceSynchronize() or 0, "cupy.cuda.runtime.deviceSynchronize"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_what_has_a_range(tool, annotated, call, name):
    launched(call)
    assert name in tool.names()


def test_waits_and_copies_are_told_apart(tool, annotated):
    launched(cupy.cuda.Stream.null.synchronize)
    launched(lambda: cupy.asnumpy(cupy.zeros(3)))
    launched(lambda: cupy.asnumpy([1]))
    categories = {piece.label.name: piece.label.category for piece in tool.slices}
    assert categories["cupy.cuda.Stream.synchronize"] == "wait"
    assert categories["cupy.asnumpy"] == "copy"
    assert categories["cupy.zeros"] is None


def test_all_is_still_what_it_was(tool, annotated):
    assert isinstance(cupy.add, cupy.ufunc)
    assert cupy.add.nin == 2
    assert cupy.sum.__module__ == "cupy._math.sumprod"
    kernel = cupy.ElementwiseKernel("T x", "T y", "y = x", "same")
    raw = cupy.RawKernel(SOURCE, "scale")
    module = cupy.RawModule(code=SOURCE)
    assert (kernel.name, kernel.nin, raw.code) == ("same", 1, SOURCE)
    assert isinstance(kernel, cupy.ElementwiseKernel)
    assert isinstance(raw, cupy.RawKernel)
    assert isinstance(module, cupy.RawModule)
    assert not isinstance(raw, cupy.ElementwiseKernel)
    assert cupy.RawKernel.__name__ == "RawKernel"

    class Mine(cupy.RawKernel):
        pass

    assert issubclass(Mine, cupy.RawKernel)
    assert isinstance(Mine(SOURCE, "scale"), cupy.RawKernel)


def test_kernels_made_before_are_kernels(tool):
    before = cupy.RawKernel(SOURCE, "scale")
    with bridge.cupy.annotate():
        assert isinstance(before, cupy.RawKernel)


def test_nothing_of_numpys_is_taken(tool, annotated):
    assert cupy.printoptions is np.printoptions
    assert cupy.promote_types is np.promote_types


def owners():
    rooms = [sys.modules[name] for name in bridge.frameworks.cupy.MODULES]
    waits = [getattr(cupy.cuda, name) for name in bridge.frameworks.cupy.WAITS]
    return [*rooms, *waits, cupy.ndarray, cupy.cuda, cupy.cuda.runtime]


def test_undo_leaves_all_as_it_was(tool):
    before = [dict(vars(owner)) for owner in owners()]
    first, second = bridge.cupy.annotate(), bridge.cupy.annotate()
    launched(lambda: cupy.add(1, 2))
    assert tool.names().count("cupy.add") == 1
    first.undo()
    second.undo()
    for owner, was in zip(owners(), before, strict=True):
        now = vars(owner)
        assert [name for name in was if now.get(name) is not was[name]] == []
        assert set(now) == set(was), owner


def test_what_is_imported_afterwards_can_be():
    program = "import bridge.cupy; bridge.cupy.annotate(); import cupyx.scipy.special, cupyx.scipy.sparse, cupy.testing"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr

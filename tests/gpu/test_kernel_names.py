"""Names of kernels as nsys has them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from bridge.capture.cupti.names import kernel_name, short_name

SHORT = {
    "k_step": "k_step",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int, float*)": "vectorized_elementwise_kernel",
    "(anonymous namespace)::softmax(float*)": "softmax",
    "void (anonymous namespace)::softmax<float, 4>(float*)": "softmax",
    "std::enable_if<true, void>::type cutlass::Kernel<Policy<(int)4>>(Params)": "Kernel",
    "ampere_sgemm_128x64_tn": "ampere_sgemm_128x64_tn",
    "": "",
}


@pytest.mark.parametrize(("full", "short"), SHORT.items())
def test_a_short_name_has_no_result_namespace_or_parameters(full, short):
    assert short_name(full) == short


def test_a_mangled_name_is_demangled():
    assert kernel_name("_Z7flood_bv") == ("flood_b", "flood_b()", "_Z7flood_bv")
    assert kernel_name("_Zno") == ("_Zno", "_Zno", "_Zno")


def test_short_names_are_those_of_nsys(corpus):
    kernels = {}
    for path in sorted((corpus / "nsys").glob("*.sqlite")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            kernels |= dict.fromkeys(names_in(database))
    assert len(kernels) > 300
    wrong = [
        (short, short_name(full), kernel_name(mangled).short)
        for short, full, mangled in kernels
        if not short.endswith("...")  # nsys abbreviated it
        if not short_name(full) == kernel_name(mangled).short == short
    ]
    assert wrong == []


def names_in(database: sqlite3.Connection) -> list[tuple[str, str, str]]:
    """List the short, full and mangled names of an export's kernels, where it has all three."""
    columns = {row[1] for row in database.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")}
    if not columns >= {"shortName", "demangledName", "mangledName"}:
        return []
    return database.execute(
        "SELECT DISTINCT s.value, d.value, m.value FROM CUPTI_ACTIVITY_KIND_KERNEL"
        " JOIN StringIds s ON s.id = shortName JOIN StringIds d ON d.id = demangledName"
        " JOIN StringIds m ON m.id = mangledName"
    ).fetchall()

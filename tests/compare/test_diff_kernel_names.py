"""Which names of kernels are taken for one kernel's of two builds, and which are not."""

from __future__ import annotations

from time import process_time

import pytest

from bridge.analyze.compare.rows import (
    NAME_FORMS,
    without_arguments,
    without_build_details,
    without_tiles,
)

SAME_BUT_FOR_A_BUILD = [
    ("triton_poi_fused_add_3", "triton_poi_fused_add_12"),
    (
        "triton_per_fused_native_layer_norm_0d1d2d3de4de",
        "triton_per_fused_native_layer_norm_0d1d2d3",
    ),
    ("triton_red_fused__to_copy_mean_5", "triton_red_fused__to_copy_mean_6"),
    ("loop_add_fusion_3", "loop_add_fusion_11"),
    ("input_reduce_fusion", "input_reduce_fusion_2"),
    ("fused_nn_dense_add_1a2b3c4d5e6f7a8b_kernel", "fused_nn_dense_add_00ff00ff00ff00ee_kernel"),
    ("void f(lambda(int)#1)", "void f(lambda(int)#2)"),
    ("f<at::{lambda(int)#1}>", "f<at::{lambda(int)#3}>"),
    ("_ZN4core3ptr17h0123456789abcdefE", "_ZN4core3ptr17hfedcba9876543210E"),
    ("_GLOBAL__N__0a1b2c3d_4_main_cu", "_GLOBAL__N__ffeeddcc_4_main_cu"),
]
SAME_BUT_FOR_ARGUMENTS = [
    ("void gemm<float>(float *)", "void gemm<__half>(__half *)"),
    ("void at::native::vectorized_elementwise_kernel<4, Add>(int)", "void at::native::vectorized_elementwise_kernel<8, Add>(int)"),
    ("void f<(int)3, g<a> >(int)", "void f<(int)4, g<b> >(int)"),
    ("_ZN2at6native6kernelILi4EEEvi", "_ZN2at6native6kernelILi8EEEvi"),
    ("_Z4gemmIfEvPf", "_Z4gemmI6__halfEvPS0_"),
]  # fmt: skip
SAME_BUT_FOR_TILES = [
    ("ampere_sgemm_128x64_tn", "ampere_sgemm_64x64_tn"),
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "nvjet_tst_128x256_64x3_1x2_v_bz_coopB_TNN"),
    ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn", "cutlass_80_tensorop_s1688gemm_256x64_16x4_nn"),
    ("gemm_stages3_x", "gemm_stages4_x"),
    ("flash_fwd_sm80", "flash_fwd_sm90"),
]  # fmt: skip
NEVER_THE_SAME = [
    ("ampere_sgemm_128x64_tn", "ampere_sgemm_128x64_nn"),
    ("ampere_sgemm_128x64_tn", "ampere_hgemm_128x64_tn"),
    ("triton_poi_fused_add_3", "triton_poi_fused_mul_3"),
    ("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN", "nvjet_hsh_192x192_64x4_2x1_v_bz_coopB_TNN"),
    ("void at::native::reduce<int>(int)", "void at::native::scan<int>(int)"),
    ("_Z4gemmIfEvPf", "_Z4reluIfEvPf"),
    ("layer_1", "layer_2"),
    ("[CUDA memcpy Host-to-Device]", "[CUDA memcpy Device-to-Host]"),
    ("deadbeef", "facefeed"),  # words, as long as no figure is in them
]


@pytest.mark.parametrize(("one", "other"), SAME_BUT_FOR_A_BUILD)
def test_hashes_and_counters_are_of_a_build(one, other):
    assert one != other
    assert without_build_details(one) == without_build_details(other)


@pytest.mark.parametrize(("one", "other"), SAME_BUT_FOR_ARGUMENTS)
def test_templates_are_told_apart_before_they_are_stripped(one, other):
    assert without_build_details(one) != without_build_details(other)
    assert without_arguments(one) == without_arguments(other)


@pytest.mark.parametrize(("one", "other"), SAME_BUT_FOR_TILES)
def test_tiles_are_told_apart_before_they_are_stripped(one, other):
    assert without_arguments(one) != without_arguments(other)
    assert without_tiles(one) == without_tiles(other)


@pytest.mark.parametrize(("one", "other"), NEVER_THE_SAME)
def test_other_kernels_stay_others(one, other):
    assert all(form(one) != form(other) for form in NAME_FORMS)


@pytest.mark.parametrize(
    "name", ["", "<", ">", "(", "a<b", "_Z", "_ZN", "_Z99x", "operator<", "f(x)<y>"]
)
def test_what_is_no_name_stays_something(name):
    for form in NAME_FORMS:
        assert form(name) or not name


def test_a_name_of_the_corpus_keeps_its_words():
    name = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, T1)"
    assert without_arguments(name) == "at::native::anonymous::vectorized_layer_norm_kernel"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "_Z" + "9" * 5_000,
        "_ZN999999f",
        "triton_" + "1" * 60_000 + "x",
        "triton" + "_1" * 30_000 + "x",
        "triton" + "_1d" * 20_000 + "_",
        "lambda(" * 9_000,
    ],
    ids=lambda name: name[:12],
)
@pytest.mark.racy("costs are measured by the clock")
def test_no_name_takes_long(name):
    began = process_time()
    assert all(isinstance(form(name), str) for form in NAME_FORMS)
    assert process_time() - began < 2


def test_counters_go_together():
    assert without_build_details("fused_add_1_2.3") == "fused_add"
    assert without_build_details("fused_add_1x_2.3") == "fused_add_1x"

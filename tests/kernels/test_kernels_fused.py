"""The ops that names of fused kernels say, and which ops could use Tensor Cores."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bridge.knowledge import kernels
from bridge.knowledge.kernels.classes import known_ops

FUSED = {
    "triton_poi_fused_add_mul_3": "add mul",
    "triton_poi_fused__to_copy_1": "_to_copy",
    "triton_poi_fused__to_copy_add_native_layer_norm_12": "_to_copy add native_layer_norm",
    "triton_per_fused_native_layer_norm_native_layer_norm_backward_12": "native_layer_norm native_layer_norm_backward",
    "triton_red_fused__log_softmax_backward_data_nll_loss_backward_1": "_log_softmax_backward_data nll_loss_backward",
    "triton_red_fused__log_softmax__softmax_add_0": "_log_softmax _softmax add",
    "triton_poi_fused_max_pool2d_with_indices_relu_0": "max_pool2d_with_indices relu",
    "triton_poi_fused_scaled_dot_product_attention_view_7": "scaled_dot_product_attention view",
    "triton_tem_fused_addmm_relu_2": "addmm relu",
    "triton_tem_fused_flex_attention_7": "flex_attention",
    "triton_poi_fused_add_my_own_op_sub_0": "add my_own_op sub",
    "triton_poi_fused_my_own_op_0": "my_own_op",
    "triton_poi_fused_add_mul_3_0d1d2d3de": "add mul",
    "model_triton_poi_fused_add_mul_3": "add mul",
    "triton_poi_fused_add__softmax_0": "add_ softmax",  # in order, as add and _softmax are not
    "triton_for_fused_0": "",
    "triton_tem_fused_0": "",
    "triton_mm": "",
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT": "",
    "fused_add_0": "",
    "": "",
    # of PyTorch 2.13 on a CPU
    "cpp_fused__softmax_abs_add_all_amax_eq_ge_gelu_mul_native_layer_norm_ne_neg_scalar_tensor_sub_sum_where_0":
        "_softmax abs add all amax eq ge gelu mul native_layer_norm ne neg scalar_tensor sub sum where",
}  # fmt: skip


@pytest.mark.parametrize("name", FUSED)
def test_a_fused_kernel_says_its_ops(name):
    assert list(kernels.source_ops(name)) == FUSED[name].split()


USUAL = (
    "_log_softmax _log_softmax_backward_data _softmax _to_copy _unsafe_view abs add addcmul amax cat clone div embedding"
    " erf exp gelu gelu_backward index_put lift_fresh log mean mul native_batch_norm native_batch_norm_backward"
    " native_dropout native_layer_norm native_layer_norm_backward neg new_zeros nll_loss_forward permute pow relu rsqrt"
    " scaled_dot_product_attention select_backward sigmoid silu sub sum tanh threshold_backward view where zeros_like"
).split()


@given(st.sets(st.sampled_from(USUAL), min_size=1))
def test_any_ops_come_back(ops):
    listed = sorted(ops)
    joined = "_".join(listed)
    assume("_log_sigmoid" not in f"_{joined}")  # an op as well: such a name says nothing else
    assert list(kernels.source_ops(f"triton_red_fused_{joined}_7")) == listed


@given(st.text("ad_lmu0", max_size=60))
def test_what_is_returned_is_what_the_name_says(text):
    found = kernels.source_ops(f"triton_poi_fused_{text}")
    assert not found or text.startswith("_".join(found))


def test_a_long_name_is_split_quickly():
    names = (f"triton_poi_fused_{'add_' * 300}1", f"triton_poi_fused_{'x' * 9_000}_1")
    assert len(kernels.source_ops(names[0])) == 300
    assert kernels.source_ops(names[1]) == ()


def test_the_ops_are_pytorch_s():
    assert {"add", "_to_copy", "native_layer_norm", "convert_element_type"} < known_ops()
    assert len(known_ops()) > 1500


COULD = (
    "aten::mm aten::addmm aten::bmm aten::linear aten::matmul aten::convolution aten::cudnn_convolution"
    " aten::convolution_backward aten::_scaled_dot_product_flash_attention aten::_flash_attention_forward aten::lstm"
    " aten::_thnn_fused_lstm_cell aten::einsum aten::_scaled_mm aten.mm.default torch.mm aten::addmm_"
    " AddmmBackward0 MmBackward0 ConvolutionBackward0 ScaledDotProductFlashAttentionBackward0 CudnnConvolutionBackward"
).split()
COULD_NOT = (
    "aten::add aten::softmax aten::layer_norm aten::mv aten::dot aten::max_pool2d aten::copy_ mm_kernel step 1"
    " sparse::mm aten::sum"
    " AddBackward0 MvBackward0 NativeLayerNormBackward0 Backward mmBackward0"
).split()


@pytest.mark.parametrize("op", COULD)
def test_products_could_use_tensor_cores(op):
    assert kernels.eligible(op)


@pytest.mark.parametrize("op", [*COULD_NOT, "", "Backward pass"])
def test_others_could_not(op):
    assert not kernels.eligible(op)

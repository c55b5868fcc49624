"""Readable names of kernels: what engineers call them, and no two kernels that differ share one."""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict

import made_reports
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from real_parts import ROOT
from test_kernels_rules import NEWER

import bridge
from bridge.cli import main
from bridge.knowledge.kernels import readable_names
from bridge.knowledge.kernels.readable import naming_rules

LENGTH = 66
ADD = "at::native::CUDAFunctor_add<float>"
GEMM = "cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align1"
KNOWN = {
    f"void cutlass::Kernel<{GEMM}>({GEMM}::Params)": GEMM,
    "void cutlass_cudnn::Kernel<cutlass_tensorop_s1688fprop_tf32_64x64_16x6_nhwc>(T1::Params)": "cudnn::cutlass_tensorop_s1688fprop_tf32_64x64_16x6_nhwc",
    "void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_bf16>(T1::Params)": "cutlass3x_sm90_tensorop_s64x128x16gemm_bf16",
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, at::detail::Array<char*, 3> >(int)": "vectorized_elementwise_kernel<AddFunctor>",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::AddFunctor<c10::Half>, std::array<char *, (unsigned long)3>>(int, T2, T3)": "vectorized_elementwise_kernel<AddFunctor>",
    f"void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<{ADD}>(at::TensorIteratorBase&, {ADD} const&)::{{lambda(int)#1}}>(int, T3)": "elementwise_kernel<CUDAFunctor_add>",
    "void at::native::elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<at::native::neg_kernel_cuda(at::TensorIteratorBase &)::[lambda() (instance 2)]::operator ()() const::[lambda() (instance 7)]::operator ()() const::[lambda(float) (instance 1)]>(at::TensorIteratorBase &, const T1 &)::[lambda(int) (instance 1)]>(int, T3)": "elementwise_kernel<neg_kernel_cuda#2.7.1>",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4> >(T3)": "reduce_kernel<sum_functor#1>",
    "void cub::CUB_200600_500_NS::DeviceReduceKernel<cub::CUB_200600_500_NS::DeviceReducePolicy<double, unsigned int, cuda::std::__4::plus<void>>::Policy600, double *, cuda::std::__4::plus<void>, double>(T2)": "DeviceReduceKernel<cuda::std::plus>",
    "void cub::DeviceReduceKernel<cub::DeviceReducePolicy<float, int, cub::Min>::Policy600, float *, int, cub::Min, float>(T2, T5 *)": "DeviceReduceKernel<Min>",
    "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__scan::ScanAgent<int*, int*> >(long)": "_kernel_agent<__scan::ScanAgent>",
    "void clover::par_ranged2d_kernel<build_field(global_variables &)::[lambda(int, int) (instance 3)]>(clover::Range2d, T1)": "clover::par_ranged2d_kernel<build_field#3>",
    "void gemv2N_kernel<int, float, 128, false, cublasGemvParams<cublasGemvTensorStridedBatched<float>, cublasGemvTensorStridedBatched<float> > >(T1)": "gemv2N_kernel<false,GemvParams<strided*2>>",
    "(anonymous namespace)::softmax_warp_forward<float, float, float, 7, true, false>(float*)": "softmax_warp_forward<true,false>",
    "triton_poi_fused_add_mul_3": "triton_poi_fused_add_mul_3",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)": "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "vllm::moe::topkGatingSoftmax<8, 64>(float const*)": "vllm::moe::topkGatingSoftmax",
    "add(int, float *, float *)": "add",
    # what is called like a library's kernel, and is not
    "reduce_kernel(float*)": "::reduce_kernel",
    "void reduce_kernel<Mine>(float*)": "::reduce_kernel<Mine>",
    GEMM: f"::{GEMM}",
    "void at::native::reduce_kernel<Mine>(int)": "reduce_kernel<::Mine>",
    "void at::native::reduce_kernel<at::native::Mine>(int)": "reduce_kernel<Mine>",
}  # fmt: skip


@pytest.mark.parametrize("full", KNOWN)
def test_a_kernel_is_called_as_engineers_call_it(full):
    assert readable_names([("", full)]) == [KNOWN[full]]


@pytest.mark.parametrize("full", [*KNOWN, *NEWER])
def test_a_name_is_short_and_the_same_with_its_short_name(full):
    (name,) = readable_names([("", full)])
    assert len(name) <= LENGTH or "<" not in name
    short = re.sub(r"\W*\Z", "", re.split(r"[<(]", full.replace("(anonymous namespace)", ""))[0])
    short = re.split(r"[: ]+", short)[-1]
    assert readable_names([(short, full)]) == [name]


def test_a_short_name_that_nsys_abbreviated_is_not_shown():
    full = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn"
    assert readable_names([("ampere_bf16_s16816gemm_bf16_12_1...", full)]) == [full]
    (name,) = readable_names([("of_something_else_1...", full)])
    assert name.startswith("of_something_else_1...~")


# -- No two kernels that differ share a name: a witness that reads no template, only words


SPELLINGS = (
    (r"\(anonymous namespace\)::|<unnamed>::", ""),
    (r"\((?:unsigned )?(?:int|long|char|short)(?: long)*\)(?=-?\d)", ""),
    (r"\(bool\)0", "false"),
    (r"\(bool\)1", "true"),
    (r"\[lambda(\([^()]*\)) \(instance (\d+)\)\]", r"{lambda\1#\2}"),
    (r"operator ?\( ?\)", ""),
    (r"#(\d+)", r" lambda\1 "),
)
# Words that tell no kernel: element types, namespaces, and classes that go with others.
SAME = """void const unsigned signed bool char short int long float double half c10 Half BFloat16 __half __nv_bfloat16
 float2 float4 OpaqueType cutlass_half bfloat16_t half_t
 at native detail cuda memory binary_internal templates cub thrust std __4 core cuda_cub at_cuda_detail cudnn ops cnn
 lambda TrivialOffsetCalculator LoadWithoutCast StoreWithoutCast Array array TensorListMetadata
 gpu_kernel_impl_nocast ReduceOp func_wrapper_t gpu_index_kernel function_traits
 NullType null_type use_default __identity identity_decomposer_t device_ptr tuple KeyValuePair
 AgentScanPolicy DeviceScanPolicy MemBoundScaling BlockLoadAlgorithm CacheLoadModifier BlockStoreAlgorithm BlockScanAlgorithm
 ScanTileState Policy600 Policy800 DeviceRadixSortPolicy DeviceReducePolicy"""  # fmt: skip
NEUTRAL = re.compile(rf"\b(?:CUB_\w+_NS|{'|'.join(SAME.split())})\b|\b\d\w*\b")


def witness(full: str) -> tuple[str, ...]:
    """Return the words of a name that tell kernels apart, in order; parameters are left out."""
    for pattern, text in SPELLINGS:
        full = re.sub(pattern, text, full)
    inner = re.compile(r"\([^()]*\)")  # parameters, from the inside
    while inner.search(full):
        full = inner.sub(" ", full)
    full = re.sub(r"^[\w:]*enable_if.*?::type ", "", full)
    return tuple(re.findall(r"\w+", NEUTRAL.sub(" ", full)))


@pytest.mark.slow
def test_kernels_of_the_corpus_that_share_a_name_differ_in_types_and_constants_alone(real_kernels):
    recorded = sorted(real_kernels)
    assert len(recorded) > 600
    groups = defaultdict(set)
    for (short, full), name in zip(recorded, readable_names(recorded), strict=True):
        groups[name].add((short, witness(full)))
    shared = {name: kernels for name, kernels in groups.items() if len(kernels) > 1}
    assert not shared
    assert len(groups) > 500
    assert {"Kernel", "kernel", "elementwise_kernel", "_kernel_agent"}.isdisjoint(groups)
    assert all(len(name) <= LENGTH or "<" not in name for name in groups)


def test_the_witness_tells_kernels_apart():
    kernels = [full for full in KNOWN if "AddFunctor" not in full]
    assert len({witness(full) for full in kernels}) > len(kernels) - 4
    assert witness("k<A<int>, 4>(int)") == witness("k<A<float>, 8>(T1)") != witness("k<B<int>>()")


# -- The same for names that nobody has seen


CLASSES = st.sampled_from("A B C at::native::A at::native::B x::A cub::Sum true false".split())
ELEMENTS = st.sampled_from(["float", "c10::Half", "unsigned int", "double*", "int const&"])
TREES = st.recursive(
    st.tuples(CLASSES, st.just(())),
    lambda inner: st.tuples(st.sampled_from(["F", "at::native::G", "y::H"]), st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=8,
)  # fmt: skip
ROOTS = st.sampled_from(["k", "at::native::reduce_kernel", "reduce_kernel", "mine::reduce_kernel"])


def text(tree, element, number):
    name, arguments = tree
    if not arguments:
        return name
    inside = [part for argument in arguments for part in (element, text(argument, element, number))]
    return f"{name}<{', '.join([*inside, str(number)])}>"


@given(ROOTS, TREES, ROOTS, TREES, st.tuples(ELEMENTS, ELEMENTS), st.tuples(*[st.integers(0, 512)] * 2))  # fmt: skip
def test_kernels_share_a_name_if_and_only_if_all_but_types_and_numbers_is_the_same(
    root, tree, other_root, other_tree, elements, numbers
):
    full = [
        f"void {r}<{text(t, e, n)}, {n}>({e}, T1)"
        for (r, t), e, n in zip([(root, tree), (other_root, other_tree)], elements, numbers, strict=True)
    ]  # fmt: skip
    one, other = readable_names([("", name) for name in full])
    assert (one == other) == ((root, tree) == (other_root, other_tree))


@given(st.text(max_size=80), st.text(max_size=300))
def test_any_text_is_named(short, full):
    (name,) = readable_names([(short, full)])
    assert name or not short + full
    assert readable_names([(short, full)]) == [name]


# -- Names made to take long


HOSTILE = {
    "templates in templates": lambda i: "void " + "a<" * 1300 + str(i) + ">" * 1300 + "()",
    "many arguments": lambda i: f"void k{i}<" + ",".join(["x::Foo_kernel_cuda<T>"] * 180) + ">()",
    "one word": lambda i: "void k<" + "a_kernel" * 480 + f"{i}>()",
    "one word of PyTorch": lambda i: f"at::native::elementwise_kernel<{'a_kernel' * 480}{i}>()",
    "namespaces": lambda i: "void k<" + "a::" * 1300 + f"b{i}>()",
    "open parentheses": lambda i: f"void k{i}<A>" + "(" * 4000,
    "open brackets": lambda i: f"void k{i}" + "<" * 4000,
    "braces": lambda i: "void k<" + "{" * 4000 + f">{i}()",
    "lambdas": lambda i: "void k<" + "{lambda(int)#1}::" * 230 + f"b{i}>()",
    "operators": lambda i: "void k<" + "operator " * 430 + f"b{i}>()",
    "blanks": lambda i: "void k<" + " " * 4000 + f"b{i}>()",
    "very long": lambda i: f"void cutlass::Kernel<{'A_Gemm' * 1700}{i}>()",
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", HOSTILE)
@pytest.mark.racy("costs are measured by the clock")
def test_names_made_to_take_long_take_a_bounded_time(shape):
    kernels = [("", HOSTILE[shape](i)) for i in range(100)]
    begun = time.process_time()
    names = readable_names(kernels)
    assert time.process_time() - begun < 1.5  # 100 000 of them: within minutes on any machine
    assert len(set(names)) == len(names) or shape == "templates in templates"
    assert max(map(len, names)) < 5_000


# -- Where names are shown


@pytest.fixture
def kernels_called_alike(tmp_path):
    """A report with two kernels that nsys calls alike, each launched twice, and one in C."""
    made = made_reports.Made()
    made.annotation(made_reports.PUSH_POP, 0, 9_000, text="mm", thread=made_reports.thread(7))
    fulls = [f"void cutlass::Kernel<cutlass_80_s1688gemm_{tile}>(T1::Params)" for tile in ("64x64", "128x64")]  # fmt: skip
    for at in range(4):
        called = {"name": made.string("Kernel"), "full_name": made.string(fulls[at % 2]), "mangled": made.string(f"_Z{at % 2}")}  # fmt: skip
        made.launched("kernels", 100 * at, 7, 1000 * at + 200, 1000 * at + 300 + at, **called)
    plain = dict.fromkeys(("name", "full_name", "mangled"), made.string("triton_poi_fused_add_0"))
    made.launched("kernels", 900, 7, 8_000, 8_100, **plain)
    return made.written(tmp_path / "made.sqlite")


READABLE = {"cutlass_80_s1688gemm_64x64": 202, "cutlass_80_s1688gemm_128x64": 204, "triton_poi_fused_add_0": 100}  # fmt: skip


def run(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(*arguments):
    found = json.loads(run("report", *arguments, "--format", "json"))["rows"]
    return {row["kernel"]: row["total_ns"] for row in found}


def test_tables_show_readable_names_and_the_recorded_ones_on_request(kernels_called_alike):
    assert rows(kernels_called_alike, "--by", "kernel") == READABLE
    assert rows(kernels_called_alike, "--by", "op-kernel") == READABLE
    short = {"Kernel": 406, "triton_poi_fused_add_0": 100}
    assert rows(kernels_called_alike, "--by", "kernel", "--kernel-names", "short") == short
    assert rows(kernels_called_alike, "--by", "kernel", "--kernel-names", "mangled").keys() == {"_Z0", "_Z1", "triton_poi_fused_add_0"}  # fmt: skip
    assert len(rows(kernels_called_alike, "--by", "kernel", "--kernel-names", "demangled")) == len(
        READABLE
    )


def test_every_output_shows_readable_names(kernels_called_alike, tmp_path):
    outputs = [tmp_path / name for name in ("trace.json", "page.html", "flame.txt")]
    run("trace", kernels_called_alike, "-o", outputs[0])
    run("html", kernels_called_alike, "-o", outputs[1])
    run("flame", kernels_called_alike, "-o", outputs[2])
    for output in outputs:
        text_of_output = output.read_text()
        assert "cutlass_80_s1688gemm_64x64" in text_of_output, output
    names = {event.get("name") for event in json.loads(outputs[0].read_text())["traceEvents"]}
    assert names >= READABLE.keys()
    assert "Kernel" not in names


def test_a_stored_run_and_a_comparison_name_kernels_as_the_report_does(
    kernels_called_alike, tmp_path
):
    db = tmp_path / "bridge.db"
    run("import", kernels_called_alike, "--db", db)
    assert rows("--db", db, "--by", "kernel") == READABLE
    compared = json.loads(
        run(
            "diff", kernels_called_alike, kernels_called_alike, "--by", "kernel", "--format", "json"
        )
    )
    assert {row["kernel"] for row in compared["rows"]} == READABLE.keys()


def test_every_activity_has_the_name_of_its_own_kernel(kernels_called_alike):
    attributed = bridge.load(kernels_called_alike).attributed
    activities, named = attributed.capture.activities, attributed.activity_name
    expected = [
        readable_names([(row["name"], row["full_name"])])[0]
        for row in activities.to_pandas().to_dict("records")
    ]
    assert named.tolist() == expected
    assert np.unique(named.codes).tolist() == [0, 1, 2]


def test_rules_hide_a_namespace_once():
    """No kernel is two libraries': its name would stand for both."""
    libraries = [library for library in naming_rules().libraries if library.namespace.pattern]
    kernels = [re.split(r"[<(]", full)[0].split("::")[-1] for full in KNOWN]
    for kernel in kernels:
        assert sum(bool(library.kernels.fullmatch(kernel)) for library in libraries) <= 1


def test_the_page_says_what_kernels_are_called():
    text = (ROOT / "docs" / "kernel-names.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(.*)` \| `(.*)` \|$", text.partition("<!-- names -->")[2], re.MULTILINE)  # fmt: skip
    assert len(shown) > 5
    assert readable_names([("", full) for full, _ in shown]) == [name for _, name in shown]
    assert f"at most {LENGTH} characters" in text

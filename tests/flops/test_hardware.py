"""The data file of GPUs: every entry sound, found by the names that reports have, and extended by files of users."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from bridge.knowledge.hardware import DTYPES, catalogue, read

ENTRIES = tomllib.loads(
    files("bridge.knowledge.hardware").joinpath("gpus.toml").read_text(encoding="utf-8")
)
UNKNOWN = "Some GPU 9000"


@pytest.fixture(autouse=True)
def anew(monkeypatch):
    monkeypatch.delenv("BRIDGE_GPUS", raising=False)
    catalogue.cache_clear()
    yield
    catalogue.cache_clear()


@pytest.mark.parametrize("entry", ENTRIES["gpu"], ids=lambda entry: entry["names"][0])
def test_figures_fit_together(entry):
    """Dense figures: narrower is never slower, and what multiprocessors and clock make of them is what is said."""
    peaks = entry["tflops"]
    assert "NVIDIA" in entry["source"]
    for narrow, wide in (("fp16", "fp32"), ("tf32", "fp32"), ("fp8", "fp16"), ("int8", "fp16"), ("fp64_tensor", "fp64")):  # fmt: skip
        if narrow in peaks and wide in peaks:
            assert peaks[narrow] >= peaks[wide]
    if {"fp16", "bf16"} <= set(peaks):
        assert peaks["fp16"] == peaks["bf16"]
    if {"tf32", "fp16"} <= set(peaks):
        assert peaks["fp16"] / peaks["tf32"] == pytest.approx(2, rel=0.02)
    if {"fp8", "fp16"} <= set(peaks):
        assert peaks["fp8"] / peaks["fp16"] == pytest.approx(2, rel=0.02)
    if {"sms", "clock_mhz"} <= set(entry):
        per_clock = peaks["fp32"] * 1e6 / (2 * entry["sms"] * entry["clock_mhz"])
        assert any(per_clock == pytest.approx(lanes, rel=0.02) for lanes in (64, 128))


def test_no_name_is_listed_twice():
    names = [name for entry in ENTRIES["gpu"] for name in entry["names"]]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("name", "fp16", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-40GB", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", 312, 2039),
        ("NVIDIA A100-PCIE-40GB", 312, 1555),
        ("NVIDIA A100 80GB PCIe", 312, 1935),
        ("NVIDIA H100 80GB HBM3", 989.4, 3352),
        ("NVIDIA H100 PCIe", 756, 2039),
        ("Tesla V100-SXM2-32GB", 125, 900),
        ("Tesla T4", 65, 320),
        ("NVIDIA GeForce RTX 3090", 71, 936),
        ("NVIDIA L40S", 362.05, 864),
    ],
)
def test_gpus_are_found_by_what_reports_call_them(name, fp16, bandwidth):
    peaks = catalogue().peaks(name, {})
    assert (peaks.of("fp16"), peaks.gb_per_s) == (fp16, bandwidth)


@pytest.mark.parametrize(
    "name",
    ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "NVIDIA A1000", ""],
)
def test_what_is_only_called_alike_is_not_the_same(name):
    assert catalogue().find(name) is None


def test_a_gpu_that_is_not_listed_is_computed():
    """An A100's own figures, from its multiprocessors and clock."""
    facts = {
        "compute_major": 8,
        "compute_minor": 0,
        "sm_count": 108,
        "clock_hz": 1_410_000_000,
        "memory_bandwidth": 1_555_200_000_000,
    }
    computed, listed = (
        catalogue().peaks(name, facts) for name in (UNKNOWN, "NVIDIA A100-SXM4-40GB")
    )
    assert computed.gb_per_s == pytest.approx(1555.2)
    for dtype in DTYPES:
        expected = listed.of(dtype)
        assert computed.of(dtype) == (expected and pytest.approx(expected, rel=0.01))
    bare = catalogue().peaks(UNKNOWN, {})
    assert (bare.of("fp32"), bare.gb_per_s) == (None, 0)
    other = catalogue().peaks(UNKNOWN, facts | {"compute_major": 99})
    assert other.of("fp32") is None


@pytest.mark.slow
def test_computed_peaks_are_those_of_data_sheets(corpus):
    """Of the GPUs of real reports that are listed too."""
    from bridge.report import load

    devices = load(corpus / "nsys/gaussian-no-nvtx.sqlite").capture.devices.to_pandas().iloc[0]
    computed = catalogue().peaks(UNKNOWN, devices.to_dict())
    listed = catalogue().peaks(devices["name"], {})
    assert computed.of("fp32") == pytest.approx(listed.of("fp32"), rel=0.01)
    assert computed.gb_per_s == pytest.approx(listed.gb_per_s, rel=0.01)


OWN = """
[[gpu]]
names = ["My * GPU", "NVIDIA A100-SXM4-40GB"]
tflops = { bf16 = 7 }
gb_per_s = 8
source = "measured"

[[capability]]
compute = "99.0"
multiply_adds = { fp32 = 1000 }
"""


def test_files_of_users_come_first(tmp_path, monkeypatch):
    path = tmp_path / "gpus.toml"
    path.write_text(OWN)
    monkeypatch.setenv("BRIDGE_GPUS", str(path))
    for name in ("My own GPU", "NVIDIA A100-SXM4-40GB"):
        peaks = catalogue().peaks(name, {})
        assert (peaks.of("bf16"), peaks.of("fp16"), peaks.gb_per_s) == (7, None, 8)
    assert catalogue().peaks("NVIDIA A100-SXM4-80GB", {}).of("fp16") == 312
    facts = {"compute_major": 99, "compute_minor": 0, "sm_count": 10, "clock_hz": 10**9}
    assert catalogue().peaks(UNKNOWN, facts).of("fp32") == pytest.approx(20)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[gpu]\n", "gpus.toml: "),
        ("[[gpus]]\n", "no entry 'gpus'"),
        ("gpu = 3\n", "gpu is a list of tables"),
        ("[[gpu]]\ntflops = { fp16 = 1 }\n", "needs names"),
        ('[[gpu]]\nnames = ["a"]\ntflops = { fp5 = 1 }\n', "a: no dtype 'fp5'"),
        ('[[gpu]]\nnames = ["a"]\ntflops = { fp16 = "1" }\n', "a: fp16 is a positive number"),
        ('[[gpu]]\nnames = ["a"]\ngb_per_s = -1\n', "gb_per_s is a positive number"),
        ('[[gpu]]\nnames = ["a"]\ntflop = 1\n', "a: no key 'tflop'"),
        ('[[gpu]]\nnames = ["a"]\ntflops = { fp16 = inf }\n', "positive number"),
        ('[[capability]]\ncompute = "9.0"\n', "a table by dtype is needed"),
    ],
)
def test_wrong_files_are_said_in_a_line(tmp_path, text, said):
    path = tmp_path / "gpus.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"gpus\.toml") as error:
        read(path)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ValueError, match=r"none\.toml: No such file"):
        read(tmp_path / "none.toml")

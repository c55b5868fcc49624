"""A small training on the GPU with `bridge.torch.auto`: the same kernels at each run, so that captures can be compared.

    python torch_program.py [--steps 4] [--kineto trace.json] [--graph] [--plain] [--overhead] [--timed]

`--kineto` records with PyTorch's own profiler (CUPTI by NVIDIA's and Meta's code): an independent witness.
`--timed` prints the median of 30 steps under whatever profiles this process, to be compared with `--plain`.
`--overhead` times steps with and without annotations, nobody listening, and prints the ratio.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time

import torch

import bridge
import bridge.torch


def made(device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
    return torch.nn.Sequential(
        torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.nn.Linear(256, 10)
    ).to(device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--kineto")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--timed", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = made(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    data = torch.randn(8, 64, 256, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def timed(many: int = 30) -> float:
        taken = []
        for _ in range(many):
            began = time.perf_counter()
            step()
            wait()
            taken.append(time.perf_counter() - began)
        return statistics.median(taken)

    for _ in range(3):  # libraries are loaded, algorithms chosen
        step()
    wait()
    if options.overhead:
        bare = timed()
        with bridge.torch.auto(model):
            annotated = timed()
        print(
            f"overhead: {bare * 1e3:.3f} ms bare, {annotated * 1e3:.3f} ms annotated, ratio {annotated / bare:.3f}; {bridge.backend()}"
        )
        return
    profiler = (
        torch.profiler.profile(activities=list(torch.profiler.supported_activities()))
        if options.kineto
        else contextlib.nullcontext()
    )
    with contextlib.nullcontext() if options.plain else bridge.torch.auto(model), profiler:
        for number in range(options.steps):
            with bridge.nvtx_op(f"step {number}"):
                step()
        wait()
        if options.timed:
            print(f"overhead: {timed() * 1e3:.3f} ms per step; {bridge.backend()}")
    if options.kineto:
        profiler.export_chrome_trace(options.kineto)
    if options.graph and device == "cuda":
        captured = torch.cuda.CUDAGraph()
        still = made(device).eval()
        with torch.no_grad(), torch.cuda.graph(captured), bridge.nvtx_op("captured"):
            still(data)
        with bridge.nvtx_op("replay"):
            for _ in range(3):
                captured.replay()
            wait()
    print(f"{options.steps} steps on {device}, torch {torch.__version__}, {bridge.backend()}")


if __name__ == "__main__":
    main()

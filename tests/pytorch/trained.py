"""Three steps of training, annotated; run under nsys by test_torch_under_nsys.py."""

from __future__ import annotations

from small import train, transformer

import bridge.torch

if __name__ == "__main__":
    model = transformer()
    with bridge.torch.auto(model, ops=True, shapes="text"):
        train(model)

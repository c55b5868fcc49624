"""Asks examples/model_server.py in this process, eight requests at once: python asked_server.py LOG [RECORDING].

LOG gets what the server answered, every batch that it ran, and what the model gives for each prompt alone.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import torch
from fastapi.testclient import TestClient

import bridge

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import model_server

PROMPTS = [("Which op was it? " * n, 2 + 3 * (n % 4)) for n in range(1, 9)]
SEED = 7  # of the model


class Logged(model_server.Engine):
    def __init__(self):
        torch.manual_seed(SEED)
        super().__init__()
        self.batches = []

    def run(self):
        while self.waiting.qsize() < len(PROMPTS):  # so that which requests meet is no chance
            time.sleep(0.001)
        super().run()

    def step(self, requests, phase):
        self.batches.append([phase, {one.id: len(one.unseen) for one in requests}])
        super().step(requests, phase)


def alone(model, prompt, wanted):
    """Give the tokens that the model finds for one prompt, without any other request."""
    tokens, state = list(prompt.encode()), None
    found = []
    with torch.inference_mode():
        for _ in range(wanted):
            token, state = model(torch.tensor([tokens], device=model_server.DEVICE), state)
            tokens = token.tolist()
            found += tokens
    return found


def main(log, recording=None):
    model_server.Engine = Logged
    with bridge.nvtx_op("first"):  # the first range of a process takes nsys 30 ms
        pass
    with (
        bridge.profile(path=recording) if recording else nullcontext(),
        TestClient(model_server.app) as client,
        ThreadPoolExecutor(len(PROMPTS)) as pool,
    ):
        ask = [{"prompt": prompt, "tokens": wanted} for prompt, wanted in PROMPTS]
        answers = list(pool.map(lambda one: client.post("/generate", json=one).json(), ask))
        refused = client.post("/generate", json={"prompt": ""}).status_code
    engine = model_server.app.state.engine
    told = [
        answer | {"prompt": len(prompt.encode()), "alone": alone(engine.model, prompt, wanted)}
        for answer, (prompt, wanted) in zip(answers, PROMPTS, strict=True)
    ]
    said = {"answers": told, "batches": engine.batches, "refused": refused}
    Path(log).write_text(json.dumps(said), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A server of a small language model: requests join and leave between batches, and each batch is marked.

bridge run examples/model_server.py     # asks itself, eight requests at once
bridge report --by request
uvicorn --app-dir examples model_server:app     # serves: POST /generate {"prompt": "Which op?", "tokens": 8}
"""

import asyncio
import itertools
import queue
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from threading import Thread

import torch
from fastapi import FastAPI
from pydantic import BaseModel, Field
from torch import nn

import bridge

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MOST = 4  # requests that are served at once; others wait


class Prompt(BaseModel):
    prompt: str = Field(min_length=1, max_length=4096)
    tokens: int = Field(default=16, ge=1, le=512)


class Model(nn.Module):
    """An untrained recurrent model of bytes: it keeps one state of fixed size of each request."""

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(256, 64), nn.Linear(256, 256)
        self.layers = nn.GRU(64, 256, num_layers=2, batch_first=True)

    def forward(self, tokens, state):
        seen, state = self.layers(self.embed(tokens), state)
        return self.head(seen[:, -1]).argmax(-1), state


@dataclass
class Request:
    id: str
    unseen: list[int]  # what the model has not read: the prompt, then the newest token
    wanted: int
    came: float = field(default_factory=time.perf_counter)
    began: float = 0.0  # the first batch
    first: float = 0.0  # the first token
    tokens: list[int] = field(default_factory=list)
    state: torch.Tensor | None = None
    answer: Future = field(default_factory=Future)

    def take(self, token, state):
        self.first = self.first or time.perf_counter()
        self.tokens.append(token)
        self.unseen, self.state = [token], state
        if len(self.tokens) == self.wanted:
            times = {"waited_ms": self.began - self.came, "first_token_ms": self.first - self.began}
            times = {name: round(1000 * seconds, 3) for name, seconds in times.items()}
            self.answer.set_result({"id": self.id, **times, "tokens": self.tokens})


class Engine:
    """Runs batches on a thread of its own: each new request alone, then one token of all that are served."""

    def __init__(self):
        self.model = Model().to(DEVICE).eval()
        self.numbers, self.waiting, self.served = itertools.count(), queue.SimpleQueue(), []

    def submit(self, asked):
        request = Request(f"r{next(self.numbers)}", list(asked.prompt.encode()), asked.tokens)
        self.waiting.put(request)
        return request.answer

    @torch.inference_mode()
    def run(self):
        while True:
            while len(self.served) < MOST and not (self.served and self.waiting.empty()):
                if (request := self.waiting.get()) is None:
                    return
                if request.answer.set_running_or_notify_cancel():
                    self.served.append(request)
                    request.began = time.perf_counter()
                    self.step([request], "prefill")
            self.step(self.served, "decode")

    def step(self, requests, phase):
        try:
            with bridge.batch({one.id: len(one.unseen) for one in requests}, phase):
                unseen = torch.tensor([one.unseen for one in requests], device=DEVICE)
                state = torch.cat([one.state for one in requests], 1) if phase == "decode" else None
                found, state = self.model(unseen, state)
                found = found.tolist()  # waits for the GPU
            for request, token, own in zip(requests, found, state.split(1, 1), strict=True):
                request.take(token, own)
        except RuntimeError as error:  # of PyTorch, such as a GPU without memory
            for request in requests:
                request.answer.set_exception(error)
        self.served = [one for one in self.served if not one.answer.done()]


@asynccontextmanager
async def serving(app):
    app.state.engine = Engine()
    thread = Thread(target=app.state.engine.run)
    thread.start()
    yield
    app.state.engine.waiting.put(None)
    thread.join()


app = FastAPI(lifespan=serving)


@app.post("/generate")
async def generate(asked: Prompt) -> dict:
    return await asyncio.wrap_future(app.state.engine.submit(asked))


if __name__ == "__main__":
    from fastapi.testclient import TestClient

    prompts = [{"prompt": "Which op was it? " * n, "tokens": 3 * n} for n in range(1, 9)]
    with TestClient(app) as client, ThreadPoolExecutor(len(prompts)) as pool:
        for answer in pool.map(lambda asked: client.post("/generate", json=asked).json(), prompts):
            print(answer | {"tokens": len(answer["tokens"])})

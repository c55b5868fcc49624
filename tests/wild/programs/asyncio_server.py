# requires: torch
"""An asyncio server that batches requests and infers in a thread; clients, cancellation, context variables."""

import asyncio
import contextvars
import json

import torch
from torch import nn

import watched

REQUEST = contextvars.ContextVar("request", default="none")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        self.requests = []

    def forward(self, values):
        self.requests.append(REQUEST.get())
        return self.layers(values)


class Server:
    def __init__(self, model):
        self.model = model
        self.queue = asyncio.Queue()

    async def serve(self, reader, writer):
        while line := await reader.readline():
            answer = asyncio.get_running_loop().create_future()
            await self.queue.put((json.loads(line), answer))
            writer.write(json.dumps(await answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    async def work(self):
        while True:
            rows, answer = await self.queue.get()
            REQUEST.set(f"{len(rows)} rows")
            output = await asyncio.to_thread(self.infer, torch.tensor(rows))
            answer.set_result(output.tolist())

    def infer(self, values):
        with torch.inference_mode():
            return self.model(values)


async def ask(port, number):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    for turn in range(6):
        rows = [[float(number), float(turn), 1.0, -1.0]] * (number + 1)
        writer.write(json.dumps(rows).encode() + b"\n")
        answers.append(json.loads(await reader.readline()))
    writer.close()
    return answers


async def serve_all(model):
    server = Server(model)
    working = asyncio.create_task(server.work())
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        answers = await asyncio.gather(*(ask(port, number) for number in range(4)))
        for turn in range(12):
            await asyncio.to_thread(server.infer, torch.full((3, 4), float(turn)))
            watched.step()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    try:
        await asyncio.to_thread(server.infer, torch.ones(1, 5))
    except RuntimeError as error:
        answers.append(str(error))
    return answers, working.cancelled()


def main():
    watched.begin()
    model = Model()
    with watched.watched(model):
        answers, cancelled = asyncio.run(serve_all(model))
    watched.show("answers", answers, str(cancelled), answers[-1])
    watched.show("requests", *sorted(model.requests))


if __name__ == "__main__":
    main()

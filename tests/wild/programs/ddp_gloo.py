# requires: torch
"""DistributedDataParallel of two forked processes over gloo: buckets, accumulation without sync, hooks, uneven inputs."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import watched


def main(rank, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    watched.begin(rank)
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    model = DistributedDataParallel(inner, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(rank)
    losses = []
    with watched.watched(model, part=f"rank{rank}"):
        for _ in range(12):
            optimizer.zero_grad()
            with model.no_sync():
                model(torch.randn(8, 8)).square().mean().backward()
            loss = model(torch.randn(8, 8)).square().mean()
            loss.backward()
            optimizer.step()
            gathered = [torch.zeros(()) for _ in range(2)]
            dist.all_gather(gathered, loss.detach())
            losses += [one.item() for one in gathered]
            watched.step()
        model.eval()
        with Join([model]):
            for _ in range(2 + rank):
                model(torch.randn(4, 8)).sum().backward()
    gradients = [one.grad for one in model.parameters()]
    for turn in range(2):
        dist.barrier()
        if turn == rank:
            watched.show(f"rank {rank}", *losses, model, *gradients)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


if __name__ == "__main__":
    mp.start_processes(main, (free_port(),), nprocs=2, start_method="fork")

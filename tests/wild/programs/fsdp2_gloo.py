# requires: torch
"""FSDP2 (fully_shard) of two spawned processes over gloo: parameters that are sharded tensors, mixed precision, a checkpoint."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import watched


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, values):
        return values + self.down(nn.functional.gelu(self.up(self.norm(values))))


def main(rank, port):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    watched.begin()
    model = nn.Sequential(*(Block(16) for _ in range(3)), nn.Linear(16, 4))
    mesh = init_device_mesh("cpu", (2,))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model[:3]:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(rank)
    losses = []
    with watched.watched(model, part=f"rank{rank}"):
        for _ in range(8):
            loss = model(torch.randn(4, 16)).float().square().mean()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses += [loss.item(), norm.full_tensor().item()]
            watched.step()
        whole = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    kinds = sorted({type(one).__name__ for one in model.parameters()})
    for turn in range(2):
        dist.barrier()
        if turn == rank:
            watched.show(f"rank {rank}", *losses, whole)
            watched.show("kinds", *kinds, type(model).__name__)
    dist.barrier()
    dist.destroy_process_group()


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(main, (free_port(),), nprocs=2)

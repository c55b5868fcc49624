# requires: torch
"""Data loaders whose workers start by fork, spawn and forkserver; samplers, streams, and an error in a worker."""

import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    WeightedRandomSampler,
    get_worker_info,
)

import watched


class Rows(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index < 0:
            raise IndexError(index)
        return torch.full((4,), float(index)) + torch.rand(4), index % 3


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        first, apart = (info.id, info.num_workers) if info else (0, 1)
        return (torch.rand(4) + number for number in range(first, 12, apart))


class Broken(Rows):
    def __getitem__(self, index):
        raise ValueError(f"no row {index}")


def seeded(worker):
    torch.manual_seed(worker)


def collate(rows):
    return torch.stack([row for row, _ in rows]) * 2, torch.tensor([label for _, label in rows])


def main():
    watched.begin()
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    options = {"batch_size": 6, "worker_init_fn": seeded}
    losses = []
    with watched.watched(model):
        # A fork while PyTorch's profiler runs aborts workers at times, without bridge, too.
        for start in (None, "spawn", "forkserver", *(() if watched.COUNTS else ("fork",))):
            loader = DataLoader(
                Rows(),
                shuffle=True,
                collate_fn=collate,
                generator=torch.Generator().manual_seed(3),
                num_workers=1 if start else 0,
                multiprocessing_context=start,
                persistent_workers=bool(start),
                **options,
            )
            for _ in range(2):
                for values, labels in loader:
                    optimizer.zero_grad()
                    loss = nn.functional.cross_entropy(model(values), labels)
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                    watched.step()
            watched.show(f"{start}", len(loader), type(iter(loader)).__name__, *losses[-2:])
        sampler = WeightedRandomSampler(torch.ones(24), 12)
        sampled = [values for values, _ in DataLoader(Rows(), sampler=sampler, **options)]
        options["multiprocessing_context"] = "spawn" if watched.COUNTS else "fork"
        streamed = list(DataLoader(Stream(), num_workers=2, **options))
        try:
            list(DataLoader(Broken(), num_workers=1, **options))
        except ValueError as error:
            print(error)
    watched.show("losses", *losses)
    watched.show("parameters", model)
    watched.show("others", *sampled, *streamed)


if __name__ == "__main__":
    main()

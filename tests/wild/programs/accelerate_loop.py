# requires: accelerate, torch
"""A loop with accelerate: prepared model, optimizer and loader, accumulation, gathering, saved and loaded state."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import watched


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.recurrent = nn.LSTM(8, 16, num_layers=2, batch_first=True)
        self.linear = nn.Linear(16, 4)

    def forward(self, words):
        hidden, _ = self.recurrent(self.embedding(words))
        return self.linear(hidden[:, -1])


def main():
    watched.begin()
    set_seed(0)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = Model()
    rows = TensorDataset(torch.randint(20, (48, 6)), torch.randint(4, (48,)))
    loader = DataLoader(rows, batch_size=6, shuffle=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=8)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    losses, gathered = [], []
    with watched.watched(model):
        for _ in range(2):
            for words, labels in loader:
                with accelerator.accumulate(model):
                    output = model(words)
                    loss = nn.functional.cross_entropy(output, labels)
                    accelerator.backward(loss)
                    if accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), 1.0)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                losses.append(loss.item())
                gathered.append(accelerator.gather_for_metrics(output))
                watched.step()
        accelerator.save_state("state")
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        accelerator.load_state("state")
    watched.show("losses", *losses)
    watched.show("gathered", *gathered, str(output.dtype))
    watched.show("parameters", accelerator.unwrap_model(model), type(model).__name__)


if __name__ == "__main__":
    main()

# requires: lightning, torch
"""Lightning: a module fitted with callbacks, checkpoints and validation, tested, and by manual optimization."""

import logging
import warnings

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import watched


class Module(lightning.LightningModule):
    def __init__(self, manual):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
        self.automatic_optimization = not manual
        self.kept = []

    def forward(self, values):
        return self.net(values)

    def training_step(self, batch, number):
        values, labels = batch
        loss = nn.functional.cross_entropy(self(values), labels)
        self.log("loss", loss)
        self.kept.append(loss.item())
        if not self.automatic_optimization:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()
        return loss

    def validation_step(self, batch, number):
        values, labels = batch
        self.log("validation", nn.functional.cross_entropy(self(values), labels))

    test_step = validation_step

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Marks(Callback):
    def on_train_batch_end(self, *given):
        watched.step()


def main():
    watched.begin()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    lightning.seed_everything(0, verbose=False)
    rows = TensorDataset(torch.randn(40, 8), torch.randint(3, (40,)))
    for manual in (False, True):
        module = Module(manual)
        loader = DataLoader(rows, batch_size=8, shuffle=True)
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            gradient_clip_val=None if manual else 0.5,
            callbacks=[Marks(), ModelCheckpoint("kept", monitor="validation")],
        )
        with watched.watched(module, part=f"manual-{manual}"):
            trainer.fit(module, loader, DataLoader(rows, batch_size=20))
            tested = trainer.test(module, DataLoader(rows, batch_size=10), verbose=False)
        watched.show("losses", *module.kept)
        watched.show("tested", tested[0]["validation"], trainer.global_step)
        watched.show("metrics", *(trainer.callback_metrics[name] for name in ("validation",)))
        watched.show("parameters", module)


if __name__ == "__main__":
    main()

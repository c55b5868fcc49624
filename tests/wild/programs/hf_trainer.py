# requires: transformers, accelerate, torch
"""The Trainer of transformers: training, evaluation, callbacks, checkpoints, and going on from one."""

import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)
from transformers.utils import logging

import watched


class Rows(Dataset):
    def __init__(self, count, seed):
        random = torch.Generator().manual_seed(seed)
        self.words = torch.randint(1, 50, (count, 12), generator=random)
        self.labels = torch.randint(2, (count,), generator=random)

    def __len__(self):
        return len(self.words)

    def __getitem__(self, index):
        return {"input_ids": self.words[index], "labels": self.labels[index]}


class Marks(TrainerCallback):
    def __init__(self):
        self.events = []

    def on_step_end(self, args, state, control, **given):
        self.events.append(f"step {state.global_step}")
        watched.step()

    def on_evaluate(self, args, state, control, metrics=None, **given):
        self.events.append(f"loss {metrics['eval_loss']!r}")

    def on_log(self, args, state, control, logs=None, **given):
        self.events += [f"{name} {logs[name]!r}" for name in ("loss", "grad_norm") if name in logs]


def main():
    watched.begin()
    logging.disable_progress_bar()
    set_seed(0)
    config = DistilBertConfig(vocab_size=50, dim=32, hidden_dim=48, n_layers=2, n_heads=2)
    model = DistilBertForSequenceClassification(config)
    arguments = TrainingArguments(
        "out",
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        num_train_epochs=2,
        logging_steps=2,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_num_workers=1,
        seed=0,
        log_level="error",
    )
    marks = Marks()
    trainer = Trainer(
        model,
        arguments,
        train_dataset=Rows(32, 1),
        eval_dataset=Rows(8, 2),
        compute_metrics=lambda given: {"accuracy": float((given[0].argmax(-1) == given[1]).mean())},
    )
    trainer.remove_callback(PrinterCallback)  # prints times
    trainer.add_callback(marks)
    with watched.watched(model):
        result = trainer.train()
        predicted = trainer.predict(Rows(6, 3))
        again = trainer.train(resume_from_checkpoint="out/checkpoint-4")
    watched.show("trained", result.training_loss, result.global_step, again.training_loss)
    watched.show("predicted", predicted.predictions, predicted.metrics["test_accuracy"])
    watched.show("parameters", model)
    print("\n".join(marks.events))


if __name__ == "__main__":
    main()

# requires: transformers, torch
"""Models of transformers trained in a loop of the program's own: GPT-2, BERT with labels, T5 with an encoder."""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    get_linear_schedule_with_warmup,
)

import watched


def gpt2():
    config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2)
    return GPT2LMHeadModel(config)


def bert():
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        num_labels=3,
    )
    return BertForSequenceClassification(config)


def t5():
    config = T5Config(
        vocab_size=64,
        d_model=32,
        d_kv=16,
        d_ff=48,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
    )
    return T5ForConditionalGeneration(config)


def main():
    watched.begin()
    models = {"gpt2": gpt2(), "bert": bert(), "t5": t5()}
    models["gpt2"].gradient_checkpointing_enable()
    with watched.watched(*models.values()):
        for name, model in models.items():
            model.train()
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
            scheduler = get_linear_schedule_with_warmup(optimizer, 2, 8)
            losses = []
            for _ in range(6):
                words = torch.randint(1, 64, (4, 16))
                mask = torch.ones_like(words)
                mask[1, 9:] = 0
                labels = torch.randint(3, (4,)) if name == "bert" else words
                output = model(input_ids=words, attention_mask=mask, labels=labels)
                output.loss.backward()
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                losses.append(output.loss.item())
                watched.step()
            watched.show(name, *losses, output.logits, model)
            watched.show("output", type(output).__name__, *output.keys())


if __name__ == "__main__":
    main()

# requires: peft, transformers, torch
"""PEFT: LoRA of a small Llama, trained, switched off, merged and saved; a second adapter."""

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import watched


def base():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    return LlamaForCausalLM(config)


def main():
    watched.begin()
    options = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    model = get_peft_model(base(), LoraConfig(lora_dropout=0.1, use_rslora=True, **options))
    model.add_adapter("other", LoraConfig(use_dora=True, **options))
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)
    losses, outputs = [], []
    with watched.watched(model):
        for number in range(10):
            model.set_adapter("other" if number % 5 == 4 else "default")
            words = torch.randint(64, (4, 12))
            loss = model(input_ids=words, labels=words).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            watched.step()
        model.set_adapter("default")
        model.eval()
        words = torch.arange(12)[None]
        with torch.no_grad():
            outputs.append(model(input_ids=words).logits)
            with model.disable_adapter():
                outputs.append(model(input_ids=words).logits)
            model.save_pretrained("adapter")
            loaded = PeftModel.from_pretrained(base(), "adapter").eval()
            outputs.append(loaded(input_ids=words).logits)
            merged = model.merge_and_unload()
            outputs.append(merged(input_ids=words).logits)
    watched.show("losses", *losses)
    watched.show("outputs", *outputs, type(merged).__name__)
    watched.show("parameters", merged)


if __name__ == "__main__":
    main()

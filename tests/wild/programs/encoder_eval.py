# requires: torch
"""nn.TransformerEncoder in eval mode: its fused path, with and without padding, which hooks and modes can turn off."""

import torch
from torch import nn

import watched


def main():
    watched.begin()
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=False)
    model = nn.TransformerEncoder(layer, num_layers=2).eval()
    alone = nn.MultiheadAttention(32, 4, batch_first=True).eval()
    words = torch.randn(4, 12, 32)
    padding = torch.arange(12)[None] >= torch.tensor([12, 7, 3, 9])[:, None]
    results = []
    with watched.watched(model, alone):
        with torch.inference_mode():
            for _ in range(12):
                results.append(model(words))
                results.append(model(words, src_key_padding_mask=padding))
                watched.step()
        with torch.no_grad():
            results.append(model(words.half().float()))
            results.append(alone(words, words, words, need_weights=False)[0])
            results.append(alone(words, words, words, key_padding_mask=padding)[1])
    for number, result in enumerate(results[-5:]):
        watched.show(f"result {number}", result)
    watched.show("all", *results)


if __name__ == "__main__":
    main()

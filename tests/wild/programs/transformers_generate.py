# requires: transformers, torch
"""Generation by transformers: greedy, sampled, by beams, with caches, streamed, and with a stop of its own."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

import watched


class Streamer(BaseStreamer):
    def __init__(self):
        self.seen = []

    def put(self, value):
        self.seen.append(value.flatten().tolist())

    def end(self):
        self.seen.append("end")


def main():
    watched.begin()
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval()
    words = torch.randint(3, 96, (2, 6))
    words[1, :2] = 0
    given = {"input_ids": words, "attention_mask": (words != 0).long(), "max_new_tokens": 10}
    streamer = Streamer()
    stops = StoppingCriteriaList([lambda ids, scores: torch.full((len(ids),), ids.shape[1] >= 12)])
    shift = LogitsProcessorList([lambda ids, scores: scores.roll(1, -1)])
    with watched.watched(model):
        watched.show("greedy", model.generate(**given, do_sample=False))
        sampled = model.generate(**given, do_sample=True, top_k=20, temperature=0.7, top_p=0.9)
        watched.show("sampled", sampled)
        watched.show("beams", model.generate(**given, num_beams=3, do_sample=False))
        watched.show("uncached", model.generate(**given, do_sample=False, use_cache=False))
        static = model.generate(**given, do_sample=False, cache_implementation="static")
        watched.show("static", static)
        stopped = model.generate(
            **given, do_sample=False, stopping_criteria=stops, logits_processor=shift
        )
        watched.show("stopped", stopped)
        alone = {name: value[:1] for name, value in given.items() if name != "max_new_tokens"}
        model.generate(**alone, max_new_tokens=5, do_sample=False, streamer=streamer)
        details = model.generate(
            **given,
            do_sample=False,
            return_dict_in_generate=True,
            output_scores=True,
            output_attentions=True,
        )
        watched.show("details", details.sequences, details.scores, type(details).__name__)
        for _ in range(10):
            with torch.inference_mode():
                logits = model(words).logits
            watched.step()
    watched.show("streamed", streamer.seen)
    watched.show("logits", logits)


if __name__ == "__main__":
    main()

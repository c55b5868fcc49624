# requires: diffusers, torch
"""A small UNet of diffusers: a training, and pipelines of DDPM and DDIM with its weights."""

import torch
from diffusers import DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DConditionModel, UNet2DModel
from diffusers.training_utils import EMAModel

import watched


def main():
    watched.begin()
    model = UNet2DModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    conditioned = UNet2DConditionModel(
        sample_size=8,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        cross_attention_dim=16,
        attention_head_dim=8,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    )
    noises = DDPMScheduler(num_train_timesteps=20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    average = EMAModel(model.parameters(), decay=0.9)
    losses = []
    with watched.watched(model, conditioned):
        for _ in range(8):
            images, noise = torch.randn(2, 3, 8, 8), torch.randn(2, 3, 8, 8)
            times = torch.randint(20, (2,))
            predicted = model(noises.add_noise(images, noise, times), times).sample
            loss = torch.nn.functional.mse_loss(predicted, noise)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            average.step(model.parameters())
            losses.append(loss.item())
            watched.step()
        pipeline = DDPMPipeline(model.eval(), noises)
        pipeline.set_progress_bar_config(disable=True)
        random = torch.Generator().manual_seed(5)
        made = pipeline(2, generator=random, num_inference_steps=4, output_type="np").images
        pipeline.scheduler = DDIMScheduler.from_config(noises.config)
        other = pipeline(1, generator=random, num_inference_steps=3, output_type="np").images
        with torch.no_grad():
            late = conditioned(torch.randn(1, 4, 8, 8), 3, torch.randn(1, 5, 16)).sample
    watched.show("losses", *losses)
    watched.show("parameters", model, average.shadow_params)
    watched.show("images", made, other, late)


if __name__ == "__main__":
    main()

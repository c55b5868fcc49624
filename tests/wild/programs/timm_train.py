# requires: timm, torchvision, torch
"""Models of timm: a vision transformer trained with mixup and an average, an EfficientNet, its features."""

import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3

import watched


def main():
    watched.begin()
    model = timm.create_model(
        "vit_tiny_patch16_224",
        img_size=32,
        patch_size=8,
        depth=2,
        num_classes=4,
        drop_path_rate=0.1,
        pretrained=False,
    )
    small = timm.create_model("efficientnet_lite0", num_classes=3, pretrained=False).eval()
    optimizer = create_optimizer_v2(model, opt="adamw", lr=0.001, weight_decay=0.05)
    average = ModelEmaV3(model, decay=0.9)
    mixup, loss_of = Mixup(0.8, num_classes=4), SoftTargetCrossEntropy()
    losses = []
    with watched.watched(model, small):
        for _ in range(8):
            images, labels = mixup(torch.randn(4, 3, 32, 32), torch.randint(4, (4,)))
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            average.update(model)
            losses.append(loss.item())
            watched.step()
        with torch.inference_mode():
            outputs = small(torch.randn(1, 3, 64, 64)), model.forward_features(images)
            outputs += tuple(model.get_intermediate_layers(images, n=2))
    watched.show("losses", *losses)
    watched.show("parameters", model, average.module)
    watched.show("outputs", *outputs)


if __name__ == "__main__":
    main()

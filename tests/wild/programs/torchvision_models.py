# requires: torchvision, torch
"""Models and transforms of torchvision: a ResNet trained, a detector, a segmentation, features taken out."""

import torch
import torchvision
from torchvision.models.feature_extraction import create_feature_extractor
from torchvision.transforms import v2

import watched


def main():
    watched.begin()
    model = torchvision.models.resnet18(weights=None, num_classes=5)
    detector = torchvision.models.detection.ssdlite320_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=4
    ).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    change = v2.Compose(
        [
            v2.RandomHorizontalFlip(),
            v2.RandomResizedCrop(32),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )
    losses = []
    with watched.watched(model, detector):
        for _ in range(6):
            images = change(torch.randint(256, (4, 3, 40, 40), dtype=torch.uint8))
            loss = torch.nn.functional.cross_entropy(model(images), torch.randint(5, (4,)))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            watched.step()
        with torch.inference_mode():
            found = detector([torch.rand(3, 64, 64), torch.rand(3, 48, 80)])
        extractor = create_feature_extractor(model.eval(), {"layer2": "two", "avgpool": "last"})
        with torch.no_grad():
            features = extractor(torch.rand(1, 3, 32, 32))
            vit = torchvision.models.VisionTransformer(32, 8, 2, 2, 16, 32, num_classes=3).eval()
            seen = vit(torch.rand(2, 3, 32, 32))
    watched.show("losses", *losses)
    watched.show("parameters", model)
    watched.show("found", *found)
    watched.show("features", features, seen)


if __name__ == "__main__":
    main()

"""digits_cnn: a small convolutional network on scikit-learn's handwritten digits."""

import pathlib

import torch

import digits_data
import torch_training


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 32, 3, padding=1, bias=False),
        torch.nn.BatchNorm2d(32),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(32, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(32, 10),
    )


def main():
    train_images, test_images, train_labels, test_labels = digits_data.split()
    train_images, test_images = train_images[:, None], test_images[:, None]
    model = torch_training.train(build(), train_images, train_labels, epochs=40)
    print("digits_cnn test accuracy", torch_training.accuracy(model, test_images, test_labels))
    path = pathlib.Path(__file__).parent.parent / "digits_cnn" / "1" / "model.onnx"
    torch_training.export(model, test_images[:1], str(path), "image", "logits")


if __name__ == "__main__":
    main()

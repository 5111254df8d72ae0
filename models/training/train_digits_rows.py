"""digits_rows: each digit read as a sequence of 8 rows by a small self-attention encoder."""

import math
import pathlib

import torch

import digits_data
import torch_training

WIDTH, HEADS = 32, 4


class EncoderLayer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_attention = torch.nn.LayerNorm(WIDTH)
        self.query_key_value = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = torch.nn.Linear(WIDTH, WIDTH)
        self.norm_feed_forward = torch.nn.LayerNorm(WIDTH)
        self.feed_forward = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.GELU(), torch.nn.Linear(2 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, steps, _ = x.shape
        qkv = self.query_key_value(self.norm_attention(x))
        query, key, value = qkv.reshape(batch, steps, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        weights = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(WIDTH // HEADS), dim=-1)
        attended = (weights @ value).transpose(1, 2).reshape(batch, steps, WIDTH)
        x = x + self.projection(attended)
        return x + self.feed_forward(self.norm_feed_forward(x))


class RowEncoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(8, WIDTH)
        self.position = torch.nn.Parameter(torch.randn(1, 8, WIDTH) * 0.1)
        self.layers = torch.nn.ModuleList([EncoderLayer(), EncoderLayer()])
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.classify = torch.nn.Linear(WIDTH, 10)

    def forward(self, rows):
        x = self.embed(rows) + self.position
        for layer in self.layers:
            x = layer(x)
        return self.classify(self.norm(x).mean(dim=1))


def main():
    torch.manual_seed(0)
    train_images, test_images, train_labels, test_labels = digits_data.split()
    model = torch_training.train(RowEncoder(), train_images, train_labels, epochs=80)
    print("digits_rows test accuracy", torch_training.accuracy(model, test_images, test_labels))
    path = pathlib.Path(__file__).parent.parent / "digits_rows" / "1" / "model.onnx"
    torch_training.export(model, test_images[:1], str(path), "rows", "logits")


if __name__ == "__main__":
    main()

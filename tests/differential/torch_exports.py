"""Writes exports/torch_*.onnx: what torch.onnx.export makes of torchvision and transformers models,
by both of its exporters, at several opsets, without the weights (see seeded_weights.py).

    pip install torch torchvision transformers onnxscript
    python torch_exports.py
"""

import pathlib
import sys
import tempfile
import warnings

import onnx
import torch
import torchvision.models as vision
from torchvision.models.convnext import CNBlockConfig, ConvNeXt
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, GPT2Config, GPT2Model

import seeded_weights

FOLDER = pathlib.Path(__file__).parent / "exports"
LARGEST_FILE = 50_000
IMAGE = (torch.randn(1, 3, 96, 96),)


def convnext():
    blocks = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 48, 1), CNBlockConfig(48, None, 2)]
    return ConvNeXt(blocks, num_classes=10)


def vision_transformer():
    return vision.VisionTransformer(image_size=96, patch_size=16, num_layers=2, num_heads=4, hidden_dim=64,
                                    mlp_dim=128, num_classes=10)


def swin():
    return vision.SwinTransformer(patch_size=[4, 4], embed_dim=16, depths=[2, 2], num_heads=[2, 4],
                                  window_size=[6, 6], num_classes=10)


def encoder():
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, activation="gelu")
    return torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class LastState(torch.nn.Module):
    """A transformer as a function of ids and mask."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask):
        return self.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state \
            if isinstance(self.model, GPT2Model) else \
            self.model(input_ids=ids, attention_mask=mask).last_hidden_state


def bert():
    return LastState(BertModel(BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=100,
        max_position_embeddings=64, attn_implementation="eager"), add_pooling_layer=False))


def bert_sdpa():
    return LastState(BertModel(BertConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, vocab_size=100,
        max_position_embeddings=64, attn_implementation="sdpa"), add_pooling_layer=False))


def distilbert():
    return LastState(DistilBertModel(DistilBertConfig(
        dim=64, n_layers=2, n_heads=4, hidden_dim=128, vocab_size=100, max_position_embeddings=64,
        attn_implementation="eager")))


def gpt2():
    return LastState(GPT2Model(GPT2Config(
        n_embd=64, n_layer=2, n_head=4, vocab_size=100, n_positions=64, attn_implementation="eager")))


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layer = kind(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.head = torch.nn.Linear(48, 5)

    def forward(self, x):
        return self.head(self.layer(x)[0])


TOKENS = (torch.randint(0, 100, (2, 12)), torch.ones(2, 12, dtype=torch.int64))
SEQUENCE = (torch.randn(2, 7, 16),)

CNNS = ["resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "squeezenet1_1",
        "shufflenet_v2_x0_5", "densenet121", "regnet_y_400mf", "mnasnet0_5", "googlenet", "vgg11_bn"]
OWN = {"convnext": (convnext, IMAGE), "vit": (vision_transformer, IMAGE), "swin": (swin, IMAGE),
       "encoder": (encoder, (torch.randn(2, 10, 64),)), "bert": (bert, TOKENS), "bert_sdpa": (bert_sdpa, TOKENS),
       "distilbert": (distilbert, TOKENS), "gpt2": (gpt2, TOKENS),
       "lstm": (lambda: Recurrent(torch.nn.LSTM), SEQUENCE), "gru": (lambda: Recurrent(torch.nn.GRU), SEQUENCE)}


def make(name):
    if name in OWN:
        build, inputs = OWN[name]
        return build().eval(), inputs
    extra = {"init_weights": False} if name == "googlenet" else {}
    return getattr(vision, name)(weights=None, **extra).eval(), IMAGE


def export(name, opset, dynamo):
    torch.manual_seed(0)
    model, inputs = make(name)
    kind = "dynamo" if dynamo else "script"
    target = FOLDER / f"torch_{name}_{kind}_{opset}.onnx"
    names = [f"in{i}" for i in range(len(inputs))]
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/model.onnx"
        if dynamo:
            batch = torch.export.Dim("batch", min=1, max=64)
            torch.onnx.export(model, inputs, path, dynamo=True, opset_version=opset, external_data=False,
                              input_names=names, dynamic_shapes=[{0: batch} for _ in inputs], verbose=False)
        else:
            torch.onnx.export(model, inputs, path, dynamo=False, opset_version=opset, input_names=names,
                              dynamic_axes={n: {0: "batch"} for n in names})
        stripped = seeded_weights.strip(onnx.load(path)).SerializeToString()
    if len(stripped) > LARGEST_FILE:
        return f"{target.name}: {len(stripped)} bytes, left out"
    target.write_bytes(stripped)
    return f"{target.name}: {len(stripped)} bytes"


def main():
    warnings.filterwarnings("ignore")
    FOLDER.mkdir(exist_ok=True)
    wanted = sys.argv[1:]
    for name in wanted or [*CNNS, *OWN]:
        for opset, dynamo in ((13, False), (17, False), (20, True), (25, True)):
            try:
                print(export(name, opset, dynamo), flush=True)
            except Exception as error:  # an exporter that refuses is its own affair
                print(f"{name} {opset} dynamo={dynamo}: {str(error)[:200]!r}", flush=True)


if __name__ == "__main__":
    main()

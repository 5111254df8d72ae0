#!/usr/bin/env python3
"""Writes a wide choice of architectures, with random weights, into FOLDER/NAME/model.onnx.

The goals are raced with the models of make_models.py; these are looked over for any that onnxruntime is faster with.
NAME_fp16 is a model whose floats are float16, as onnxconverter-common writes it.

Needs torch, torchvision, transformers, onnx and onnxconverter-common.
"""

import argparse
import pathlib
import sys
import warnings

# Of torchvision, by the side of their images.
VISION = {"alexnet": 224, "densenet121": 224, "efficientnet_v2_s": 224, "googlenet": 224, "inception_v3": 299,
          "maxvit_t": 224, "mnasnet1_0": 224, "mobilenet_v3_large": 224, "regnet_y_400mf": 224, "resnet50": 224,
          "resnext50_32x4d": 224, "shufflenet_v2_x1_0": 224, "squeezenet1_1": 224, "swin_v2_t": 256, "vgg11": 224,
          "wide_resnet50_2": 224}
SEGMENTATION = ["deeplabv3_mobilenet_v3_large", "fcn_resnet50"]
TEXT = {  # of transformers, a few layers each: class, configuration
    "albert": ("AlbertModel", "AlbertConfig", dict(hidden_size=768, num_attention_heads=12, intermediate_size=3072,
                                                   num_hidden_layers=3)),
    "bert": ("BertModel", "BertConfig", dict(num_hidden_layers=3)),
    "clip_text": ("CLIPTextModel", "CLIPTextConfig", dict(num_hidden_layers=3)),
    "deberta": ("DebertaV2Model", "DebertaV2Config",
                dict(hidden_size=384, num_hidden_layers=3, num_attention_heads=6, intermediate_size=1536,
                     vocab_size=5000, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=64)),
    "distilbert": ("DistilBertModel", "DistilBertConfig", dict(n_layers=3)),
    "llama": ("LlamaModel", "LlamaConfig", dict(hidden_size=512, intermediate_size=1376, num_hidden_layers=3,
                                                num_attention_heads=8, num_key_value_heads=4, vocab_size=5000,
                                                use_cache=False)),
    "roberta": ("RobertaModel", "RobertaConfig", dict(num_hidden_layers=3)),
    "t5_encoder": ("T5EncoderModel", "T5Config", dict(d_model=512, num_layers=3, vocab_size=5000)),
}
OTHER = {  # of transformers: class, configuration, the shape of the one input
    "mobilevit": ("MobileViTModel", "MobileViTConfig", {}, "pixel_values", (1, 3, 256, 256)),
    "segformer": ("SegformerModel", "SegformerConfig", {}, "pixel_values", (1, 3, 256, 256)),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", dict(num_hidden_layers=2), "input_values", (1, 16000)),
    "whisper_encoder": ("WhisperEncoder", "WhisperConfig",
                        dict(d_model=384, encoder_layers=2, encoder_attention_heads=6, encoder_ffn_dim=1536),
                        "input_features", (1, 80, 3000)),
}
OWN = ["conv1d", "lstm", "unet"]
HALF = [f"{name}_fp16" for name in ("resnet50", "mobilenet_v3_large", "bert", "clip_text")]
TOKENS = 64


def export(module, inputs, names, path):
    import torch
    with torch.no_grad():
        torch.onnx.export(module.eval(), inputs, str(path), input_names=names, opset_version=17, dynamo=False)


def wrapped(module, names):
    """The first result of a module that is called with named inputs."""
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.module = module

        def forward(self, *inputs):
            return self.module(**dict(zip(names, inputs)))[0]

    return Wrapped()


def make_vision(name, path):
    import torch
    import torchvision
    options = {"googlenet": dict(aux_logits=False, init_weights=False), "inception_v3": dict(init_weights=False)}
    model = getattr(torchvision.models, name)(weights=None, **options.get(name, {}))
    if name == "inception_v3":
        model.aux_logits, model.AuxLogits = False, None
    export(model, (torch.randn(1, 3, VISION[name], VISION[name]),), ["x"], path)


def make_segmentation(name, path):
    import torch
    import torchvision

    class Masks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = getattr(torchvision.models.segmentation, name)(weights=None, weights_backbone=None)

        def forward(self, x):
            return self.model(x)["out"]

    export(Masks(), (torch.randn(1, 3, 256, 256),), ["x"], path)


def transformer(kind, configuration, options):
    import transformers
    config = getattr(transformers, configuration)(**options)
    config._attn_implementation = "eager"
    if kind == "WhisperEncoder":
        return transformers.models.whisper.modeling_whisper.WhisperEncoder(config)
    return getattr(transformers, kind)(config)


def make_text(name, path):
    import torch
    names = ["input_ids", "attention_mask"]
    ids = torch.randint(0, 1000, (1, TOKENS))
    export(wrapped(transformer(*TEXT[name]), names), (ids, torch.ones_like(ids)), names, path)


def make_other(name, path):
    import torch
    kind, configuration, options, wanted, shape = OTHER[name]
    export(wrapped(transformer(kind, configuration, options), [wanted]), (torch.randn(*shape),), [wanted], path)


def make_own(name, path):
    import torch
    from torch import nn

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.out = nn.LSTM(256, 256, 2, bidirectional=True), nn.Linear(512, 32)

        def forward(self, x):
            return self.out(self.layers(x)[0])

    def block(channels, out):
        layers = []
        for width in (channels, out):
            layers += [nn.Conv2d(width, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU()]
        return nn.Sequential(*layers)

    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.down = nn.ModuleList([block(3, 32), block(32, 64), block(64, 128)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)])
            self.joined = nn.ModuleList([block(128, 64), block(64, 32)])
            self.pool, self.out = nn.MaxPool2d(2), nn.Conv2d(32, 1, 1)

        def forward(self, x):
            first = self.down[0](x)
            second = self.down[1](self.pool(first))
            y = self.down[2](self.pool(second))
            for up, joined, skipped in zip(self.up, self.joined, (second, first)):
                y = joined(torch.cat([up(y), skipped], 1))
            return self.out(y)

    if name == "lstm":
        export(Lstm(), (torch.randn(50, 1, 256),), ["x"], path)
    elif name == "unet":
        export(Unet(), (torch.randn(1, 3, 128, 128),), ["x"], path)
    else:
        layers = [nn.Conv1d(1, 64, 15, 4, 7), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 9, 2, 4),
                  nn.BatchNorm1d(128), nn.ReLU(), nn.Conv1d(128, 128, 3, 1, 4, dilation=4), nn.ReLU(),
                  nn.Conv1d(128, 128, 3, 1, 1, groups=128), nn.PReLU(128), nn.Conv1d(128, 64, 1)]
        export(nn.Sequential(*layers), (torch.randn(1, 1, 8000),), ["x"], path)


def make_half(origin, path):
    import onnx
    from onnxconverter_common import float16
    onnx.save(float16.convert_float_to_float16(onnx.load(origin)), path)


def make(folder, name):
    path = folder / name / "model.onnx"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    if name in HALF:
        make_half(make(folder, name.removesuffix("_fp16")), path)
        return path
    import torch
    torch.manual_seed(0)
    for names, maker in ((VISION, make_vision), (SEGMENTATION, make_segmentation), (TEXT, make_text),
                         (OTHER, make_other), (OWN, make_own)):
        if name in names:
            maker(name, path)
            return path
    sys.exit(f"there is no model {name}; --help names them")


def main():
    every = [*VISION, *SEGMENTATION, *TEXT, *OTHER, *OWN, *HALF]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"without names: all of {', '.join(every)}")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in arguments.names or every:
        print(make(arguments.folder, name), flush=True)


if __name__ == "__main__":
    main()

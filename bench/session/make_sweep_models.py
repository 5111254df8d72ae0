#!/usr/bin/env python3
"""Writes a wide choice of architectures, with random weights, into FOLDER/NAME/model.onnx.

The goals are raced with the models of make_models.py; these are looked over for any that onnxruntime is faster with.
NAME_fp16 is a model whose floats are float16, as onnxconverter-common writes it, NAME_qop one whose operators are
quantized, as onnxruntime's quantizer writes it (QOperator).

Needs torch, torchvision, transformers, onnx, onnxruntime and onnxconverter-common.
"""

import argparse
import pathlib
import sys
import warnings

import make_models

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
    "electra": ("ElectraModel", "ElectraConfig", dict(num_hidden_layers=6, vocab_size=5000)),
    "funnel": ("FunnelBaseModel", "FunnelConfig", dict(block_sizes=[1, 1, 1], vocab_size=5000)),
    "modernbert": ("ModernBertModel", "ModernBertConfig",
                   dict(num_hidden_layers=4, vocab_size=5000, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                        cls_token_id=1, sep_token_id=2)),
    "mpnet": ("MPNetModel", "MPNetConfig", dict(num_hidden_layers=3, vocab_size=5000)),
    "qwen3": ("Qwen3Model", "Qwen3Config", dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=3,
                                                num_attention_heads=8, num_key_value_heads=4, head_dim=64,
                                                vocab_size=5000, use_cache=False)),
    "vits": ("VitsModel", "VitsConfig", dict(vocab_size=1000, hidden_size=96, num_hidden_layers=3, ffn_dim=384,
                                             flow_size=96, upsample_initial_channel=256, noise_scale=0.0,
                                             noise_scale_duration=0.0, use_stochastic_duration_prediction=False)),
    "xlnet": ("XLNetModel", "XLNetConfig", dict(n_layer=3, vocab_size=5000)),
    "t5_encoder": ("T5EncoderModel", "T5Config", dict(d_model=512, num_layers=3, vocab_size=5000)),
}
OTHER = {  # of transformers: class, configuration, the shape of the one input
    "cvt": ("CvtModel", "CvtConfig", dict(depth=[1, 2, 4]), "pixel_values", (1, 3, 224, 224)),
    "dfine": ("DFineForObjectDetection", "DFineConfig", {}, "pixel_values", (1, 3, 640, 640)),
    "dinov2": ("Dinov2Model", "Dinov2Config",
               dict(hidden_size=384, num_attention_heads=6, image_size=518, patch_size=14), "pixel_values",
               (1, 3, 224, 224)),
    "encodec": ("EncodecModel", "EncodecConfig", {}, "input_values", (1, 1, 24000)),
    "focalnet": ("FocalNetModel", "FocalNetConfig", {}, "pixel_values", (1, 3, 224, 224)),
    "hubert": ("HubertModel", "HubertConfig", dict(num_hidden_layers=2), "input_values", (1, 16000)),
    "levit": ("LevitModel", "LevitConfig", {}, "pixel_values", (1, 3, 224, 224)),
    "mobilenet_v2_masks": ("MobileNetV2ForSemanticSegmentation", "MobileNetV2Config", {}, "pixel_values",
                           (1, 3, 256, 256)),
    "mobilevit": ("MobileViTModel", "MobileViTConfig", dict(initializer_range=0.1), "pixel_values", (1, 3, 256, 256)),
    "pvt_v2": ("PvtV2Model", "PvtV2Config", {}, "pixel_values", (1, 3, 224, 224)),
    "rtdetr_v2": ("RTDetrV2ForObjectDetection", "RTDetrV2Config", {}, "pixel_values", (1, 3, 640, 640)),
    "segformer": ("SegformerModel", "SegformerConfig", {}, "pixel_values", (1, 3, 256, 256)),
    "wav2vec2": ("Wav2Vec2Model", "Wav2Vec2Config", dict(num_hidden_layers=2), "input_values", (1, 16000)),
    "whisper_encoder": ("WhisperEncoder", "WhisperConfig",
                        dict(d_model=384, encoder_layers=2, encoder_attention_heads=6, encoder_ffn_dim=1536),
                        "input_features", (1, 80, 3000)),
}
DETECTION = ["fasterrcnn_mobilenet_v3_large_320_fpn", "ssdlite320_mobilenet_v3_large"]
VIDEO = ["r3d_18"]
OWN = ["conv1d", "diffusion", "lstm", "recommender", "tcn", "text_lines", "unet", "vocoder", "yolo"]  # in the shape of such
HALF = [f"{name}_fp16" for name in ("resnet50", "mobilenet_v3_large", "bert", "clip_text")]
QUANTIZED = [f"{name}_qop" for name in ("densenet121", "googlenet", "squeezenet1_1", "inception_v3", "yolo", "unet",
                                        "mobilevit", "shufflenet_v2_x1_0", "mnasnet1_0", "segformer")]
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
            return self.module(**dict(zip(names, inputs)), return_dict=False)[0]

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


def make_detection(name, path):
    import torch
    import torchvision
    model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None)
    export(model, ([torch.rand(3, 320, 320)],), ["x"], path)


def make_video(name, path):
    import torch
    import torchvision
    export(getattr(torchvision.models.video, name)(weights=None), (torch.randn(1, 3, 8, 112, 112),), ["x"], path)


def own_modules():
    """Each as (module, inputs), made when it is asked for."""
    import torch
    from torch import nn

    def layers(*modules):
        return nn.Sequential(*modules)

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.out = nn.LSTM(256, 256, 2, bidirectional=True), nn.Linear(512, 32)

        def forward(self, x):
            return self.out(self.layers(x)[0])

    def block(channels, out):
        return layers(*[layer for width in (channels, out) for layer in (
            nn.Conv2d(width, out, 3, padding=1), nn.GroupNorm(8, out), nn.SiLU())])

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

    class TextLines(nn.Module):
        def __init__(self):
            super().__init__()
            self.image = layers(nn.Conv2d(1, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, 1, 1), nn.ReLU(),
                                nn.MaxPool2d(2), nn.Conv2d(128, 256, 3, 1, 1), nn.BatchNorm2d(256), nn.ReLU(),
                                nn.MaxPool2d((2, 1)), nn.Conv2d(256, 256, (4, 1)), nn.ReLU())
            self.layers, self.out = nn.LSTM(256, 128, 2, bidirectional=True), nn.Linear(256, 96)

        def forward(self, x):
            return self.out(self.layers(self.image(x).squeeze(2).permute(2, 0, 1))[0])

    class Attention(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.norm = nn.GroupNorm(32, channels)
            self.q, self.k, self.v, self.out = (nn.Linear(channels, channels) for _ in range(4))

        def forward(self, x):
            batch, channels, height, width = x.shape
            y = self.norm(x).flatten(2).transpose(1, 2)
            q, k, v = (part(y).view(batch, height * width, 8, channels // 8).transpose(1, 2)
                       for part in (self.q, self.k, self.v))
            y = torch.softmax(q @ k.transpose(-1, -2) * (channels // 8) ** -0.5, -1) @ v
            y = self.out(y.transpose(1, 2).reshape(batch, height * width, channels))
            return x + y.transpose(1, 2).reshape(batch, channels, height, width)

    class Residual(nn.Module):
        def __init__(self, channels, out):
            super().__init__()
            self.layers = layers(nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, 1, 1),
                                 nn.GroupNorm(32, out), nn.SiLU(), nn.Conv2d(out, out, 3, 1, 1))
            self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

        def forward(self, x):
            return self.skip(x) + self.layers(x)

    def diffusion():
        return layers(nn.Conv2d(4, 64, 3, 1, 1), Residual(64, 64), nn.Conv2d(64, 128, 3, 2, 1), Residual(128, 128),
                      Attention(128), Residual(128, 256), Attention(256), nn.Upsample(scale_factor=2),
                      nn.Conv2d(256, 64, 3, 1, 1), nn.GroupNorm(32, 64), nn.SiLU(), nn.Conv2d(64, 4, 3, 1, 1))

    class Recommender(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList([nn.Embedding(1000, 16) for _ in range(8)])
            self.layers = layers(nn.Linear(8 * 16 + 13, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1),
                                 nn.Sigmoid())

        def forward(self, ids, x):
            return self.layers(torch.cat([table(ids[:, i]) for i, table in enumerate(self.tables)] + [x], 1))

    def tcn():
        return layers(*[layers(nn.Conv1d(64, 64, 3, padding=2 ** i, dilation=2 ** i), nn.BatchNorm1d(64), nn.ReLU(),
                               nn.Conv1d(64, 64, 1), nn.PReLU()) for i in range(5)])

    def vocoder():
        def bend():
            return nn.LeakyReLU(0.1)
        return layers(nn.Conv1d(80, 128, 7, padding=3), bend(), nn.ConvTranspose1d(128, 64, 16, 8, 4), bend(),
                      nn.Conv1d(64, 64, 3, padding=1), bend(), nn.ConvTranspose1d(64, 32, 16, 8, 4), bend(),
                      nn.Conv1d(32, 32, 11, padding=25, dilation=5), bend(), nn.Conv1d(32, 1, 7, padding=3), nn.Tanh())

    def conv1d():
        return layers(nn.Conv1d(1, 64, 15, 4, 7), nn.BatchNorm1d(64), nn.ReLU(), nn.Conv1d(64, 128, 9, 2, 4),
                      nn.BatchNorm1d(128), nn.ReLU(), nn.Conv1d(128, 128, 3, 1, 4, dilation=4), nn.ReLU(),
                      nn.Conv1d(128, 128, 3, 1, 1, groups=128), nn.PReLU(128), nn.Conv1d(128, 64, 1))

    def conv(channels, out, kernel=3, stride=1):
        return layers(nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(out), nn.SiLU())

    class Split(nn.Module):
        def __init__(self, width, count):
            super().__init__()
            self.first, self.last = conv(width, width, 1), conv(width + count * width // 2, width, 1)
            self.parts = nn.ModuleList([layers(conv(width // 2, width // 2), conv(width // 2, width // 2))
                                        for _ in range(count)])

        def forward(self, x):
            parts = list(self.first(x).chunk(2, 1))
            for part in self.parts:
                parts.append(parts[-1] + part(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Yolo(nn.Module):
        def __init__(self):
            super().__init__()
            self.eighth = layers(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Split(32, 1), conv(32, 64, 3, 2), Split(64, 2))
            self.sixteenth, self.last = layers(conv(64, 128, 3, 2), Split(128, 2)), layers(conv(128, 256, 3, 2), Split(256, 1))
            self.pool, self.before, self.after = nn.MaxPool2d(5, 1, 2), conv(256, 128, 1), conv(512, 256, 1)
            self.up = nn.Upsample(scale_factor=2)
            self.middle, self.fine = layers(conv(384, 128, 1), Split(128, 1)), layers(conv(192, 64, 1), Split(64, 1))
            self.heads = nn.ModuleList([layers(conv(width, 64), conv(64, 64), nn.Conv2d(64, 84, 1))
                                        for width in (64, 128, 256)])

        def forward(self, x):
            eighth = self.eighth(x)
            sixteenth = self.sixteenth(eighth)
            pooled = [self.before(self.last(sixteenth))]
            for _ in range(3):
                pooled.append(self.pool(pooled[-1]))
            coarse = self.after(torch.cat(pooled, 1))
            middle = self.middle(torch.cat([self.up(coarse), sixteenth], 1))
            fine = self.fine(torch.cat([self.up(middle), eighth], 1))
            found = torch.cat([head(y).flatten(2) for head, y in zip(self.heads, (fine, middle, coarse))], 2)
            boxes, classes = found.split([4, 80], 1)
            return torch.cat([boxes.sigmoid() * 640, classes.sigmoid()], 1)

    random = torch.randn
    return {"conv1d": lambda: (conv1d(), (random(1, 1, 8000),)), "diffusion": lambda: (diffusion(), (random(1, 4, 32, 32),)),
            "lstm": lambda: (Lstm(), (random(50, 1, 256),)), "tcn": lambda: (tcn(), (random(1, 64, 500),)),
            "recommender": lambda: (Recommender(), (torch.randint(0, 1000, (32, 8)), random(32, 13))),
            "text_lines": lambda: (TextLines(), (random(1, 1, 32, 160),)), "unet": lambda: (Unet(), (random(1, 3, 128, 128),)),
            "vocoder": lambda: (vocoder(), (random(1, 80, 100),)), "yolo": lambda: (Yolo(), (random(1, 3, 320, 320),))}


def make_own(name, path):
    module, inputs = own_modules()[name]()
    export(module, inputs, [f"x{i}" for i in range(len(inputs))], path)


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
    if name in QUANTIZED:
        make_models.quantize(name, make(folder, name.removesuffix("_qop")), path)
        return path
    import torch
    torch.manual_seed(0)
    for names, maker in ((VISION, make_vision), (SEGMENTATION, make_segmentation), (TEXT, make_text),
                         (OTHER, make_other), (DETECTION, make_detection), (VIDEO, make_video), (OWN, make_own)):
        if name in names:
            maker(name, path)
            return path
    sys.exit(f"there is no model {name}; --help names them")


def main():
    every = [*VISION, *SEGMENTATION, *TEXT, *OTHER, *DETECTION, *VIDEO, *OWN, *HALF, *QUANTIZED]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"without names: all of {', '.join(every)}")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    for name in arguments.names or every:
        print(make(arguments.folder, name), flush=True)


if __name__ == "__main__":
    main()

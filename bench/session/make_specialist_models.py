#!/usr/bin/env python3
"""Writes models of fields that have libraries of their own into FOLDER/NAME/NAME.onnx, with random weights, as PyTorch's
exporter by torch.export writes them, or for detectors the older one: sounds (torchaudio, speechbrain), graphs
(torch_geometric), detectors, videos and motion (torchvision), volumes (monai), tables (pytorch-tabnet), faces. Inputs are seeded random numbers (test_data_set_0).

These are looked over for any that onnxruntime is faster with; a model that cannot be exported is named and left out.

Needs torch, torchvision, torchaudio, torch_geometric, speechbrain, monai, pytorch-tabnet, onnx and onnxscript.
"""

import argparse
import functools
import pathlib
import shutil
import sys
import warnings

import torch

from make_library_models import Call, export, folder_of, write_inputs

VIDEOS = ["mc3_18", "mvit_v2_s", "r2plus1d_18", "s3d", "swin3d_t"]
DETECTORS = ["fcos_resnet50_fpn", "keypointrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "retinanet_resnet50_fpn",
             "ssd300_vgg16"]
GRAPHS = ["GCN", "GraphSAGE", "GIN", "GAT", "EdgeCNN"]


def export_by_script(root, name, make):
    """By the older exporter, for what decides by numbers as it runs."""
    torch.manual_seed(0)
    model, inputs = make()
    folder = folder_of(root, name)
    torch.onnx.export(model.eval(), inputs, str(folder / f"{name}.onnx"), dynamo=False, input_names=["images"])
    write_inputs(folder, ["images"], inputs)


def sounds():
    import torchaudio.models as models
    signal, spectrogram = torch.randn(1, 1, 16000), torch.randn(1, 200, 80)
    first = lambda model, *x: model(*x)[0]
    yield "conv_tasnet", lambda: (models.conv_tasnet_base(), (signal,))
    yield "hdemucs", lambda: (models.hdemucs_low(sources=["voice", "rest"]), (torch.randn(1, 2, 44100),))
    yield "deepspeech", lambda: (models.DeepSpeech(80, n_hidden=512), (spectrogram[None],))
    yield "wav2letter", lambda: (models.Wav2Letter(num_classes=40, input_type="mfcc", num_features=80),
                                 (spectrogram.mT.contiguous(),))
    yield "conformer", lambda: (Call(models.Conformer(80, 4, 320, 4, 31), first), (spectrogram, torch.tensor([200])))
    yield "emformer", lambda: (Call(models.Emformer(80, 4, 320, 4, 16, right_context_length=4), first),
                               (torch.randn(1, 132, 80), torch.tensor([128])))
    yield "wavernn", lambda: (models.WaveRNN([5, 5, 8], n_classes=512, hop_length=200, n_res_block=4, n_rnn=256, n_fc=256),
                              (torch.randn(1, 1, 2000), torch.randn(1, 1, 14, 128)))
    yield "squim", lambda: (models.squim_objective_base(), (signal[0],))
    yield "wavlm", lambda: (Call(models.wavlm_base(), first), (signal[0],))


def graph_model(name):
    import torch_geometric.nn.models as models
    edges = torch.randint(0, 2708, (2, 10556))
    return getattr(models, name)(in_channels=500, hidden_channels=64, num_layers=3, out_channels=7), (
        torch.randn(2708, 500), edges)


def flow():
    import torchvision
    pair = torch.randn(1, 3, 128, 192), torch.randn(1, 3, 128, 192)
    return Call(torchvision.models.optical_flow.raft_small(), lambda model, *x: model(*x, num_flow_updates=6)[-1]), pair


def detector(name):
    import torchvision
    model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None)
    return Call(model, lambda model, x: tuple(model([x[0]])[0].values())), (torch.rand(1, 3, 320, 320),)


def video(name):
    import torchvision
    return getattr(torchvision.models.video, name)(), (torch.randn(1, 3, 16, 224, 224),)


def speakers(name):
    """Of 2 s of speech, as 80 filters."""
    from speechbrain.lobes.models import ECAPA_TDNN, Xvector
    make = {"ecapa_tdnn": lambda: ECAPA_TDNN.ECAPA_TDNN(80, lin_neurons=192),
            "xvector": lambda: Xvector.Xvector(in_channels=80)}
    return make[name](), (torch.randn(1, 201, 80),)


def volumes():
    from monai.networks import nets
    volume, plane = torch.randn(1, 1, 64, 64, 64), torch.randn(1, 1, 256, 256)
    channels, strides = (16, 32, 64, 128), (2, 2, 2)
    yield "monai_unet", lambda: (nets.UNet(3, 1, 3, channels, strides, num_res_units=2), (volume,))
    yield "monai_unet_2d", lambda: (nets.UNet(2, 1, 3, channels, strides, num_res_units=2), (plane,))
    yield "monai_basic_unet", lambda: (nets.BasicUNet(3, 1, 2, (16, 16, 32, 64, 128, 16)), (volume,))
    yield "monai_segresnet", lambda: (nets.SegResNet(3, 16, 1, 2), (volume,))
    yield "monai_dynunet", lambda: (
        nets.DynUNet(3, 1, 2, [3] * 4, [1, 2, 2, 2], [2, 2, 2], filters=[16, 32, 64, 128]), (volume,))
    yield "monai_vnet", lambda: (nets.VNet(3, 1, 2), (volume,))
    yield "monai_swin_unetr", lambda: (nets.SwinUNETR(in_channels=1, out_channels=2, feature_size=12), (volume,))
    yield "monai_unetr", lambda: (nets.UNETR(1, 2, (64, 64, 64), hidden_size=192, mlp_dim=768, num_heads=6), (volume,))
    yield "monai_attention_unet", lambda: (nets.AttentionUnet(3, 1, 2, channels, strides), (volume,))
    yield "monai_densenet", lambda: (nets.DenseNet121(3, 1, 2), (volume,))
    yield "monai_resnet", lambda: (nets.resnet18(spatial_dims=3, n_input_channels=1, num_classes=2), (volume,))


def tables():
    from pytorch_tabnet.tab_network import TabNet
    row = torch.randn(64, 30)
    yield "tabnet", lambda: (
        Call(TabNet(30, 2, group_attention_matrix=torch.eye(30)), lambda model, x: model(x)[0]), (row,))

    class Attention(torch.nn.Module):
        """FT-Transformer: each column of a table is a token."""

        def __init__(self, columns=30, width=64):
            super().__init__()
            self.weight, self.bias = (torch.nn.Parameter(torch.randn(columns, width) * 0.1) for _ in range(2))
            self.token = torch.nn.Parameter(torch.randn(1, 1, width))
            layer = torch.nn.TransformerEncoderLayer(width, 8, 128, batch_first=True, norm_first=True)
            self.layers, self.head = torch.nn.TransformerEncoder(layer, 3), torch.nn.Linear(width, 2)

        def forward(self, x):
            tokens = x[:, :, None] * self.weight + self.bias
            tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1)
            return self.head(self.layers(tokens)[:, 0])
    yield "ft_transformer", lambda: (Attention(), (row,))

    class Crossed(torch.nn.Module):
        """A deep and cross network over embedded categories."""

        def __init__(self, fields=26, width=16):
            super().__init__()
            self.tables = torch.nn.ModuleList(torch.nn.Embedding(1000, width) for _ in range(fields))
            total = fields * width + 13
            self.crosses = torch.nn.ModuleList(torch.nn.Linear(total, total) for _ in range(3))
            self.deep = torch.nn.Sequential(torch.nn.Linear(total, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))

        def forward(self, categories, numbers):
            x = torch.cat([table(categories[:, i]) for i, table in enumerate(self.tables)] + [numbers], 1)
            crossed = x
            for layer in self.crosses:
                crossed = x * layer(crossed) + crossed
            return torch.sigmoid(self.deep(crossed))
    yield "deep_and_cross", lambda: (Crossed(), (torch.randint(0, 1000, (64, 26)), torch.randn(64, 13)))


class FaceBlock(torch.nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        nn = torch.nn
        self.body = nn.Sequential(nn.BatchNorm2d(channels), nn.Conv2d(channels, out, 3, 1, 1, bias=False),
                                  nn.BatchNorm2d(out), nn.PReLU(out), nn.Conv2d(out, out, 3, stride, 1, bias=False),
                                  nn.BatchNorm2d(out))
        self.shortcut = nn.Identity() if stride == 1 and channels == out else nn.Sequential(
            nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


def faces():
    """ResNet of ArcFace, whose slopes are learned for each channel."""
    nn, blocks, before = torch.nn, [], 64
    for width, count in ((64, 2), (128, 2), (256, 2), (512, 2)):
        for i in range(count):
            blocks.append(FaceBlock(before, width, 1 if i else 2))
            before = width
    model = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64), *blocks,
                          nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(512 * 49, 512), nn.BatchNorm1d(512))
    for module in model.modules():
        if isinstance(module, nn.PReLU):
            torch.nn.init.uniform_(module.weight, 0.1, 0.4)
    return model, (torch.randn(1, 3, 112, 112),)


def exports():
    """Name, and what makes a model with its inputs."""
    yield from sounds()
    yield "raft_small", flow
    yield "arcface_resnet18", faces
    for group in (volumes, tables):
        yield from group()
    for names, make in ((VIDEOS, video), (GRAPHS, graph_model), (["ecapa_tdnn", "xvector"], speakers)):
        for name in names:
            yield name.lower(), functools.partial(make, name)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="only these")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    root = arguments.folder.resolve()
    made = [(name, functools.partial(export, root, name, make)) for name, make in exports()]
    made += [(name, functools.partial(export_by_script, root, name, functools.partial(detector, name)))
             for name in DETECTORS]
    for name, write in made:
        if arguments.names and name not in arguments.names:
            continue
        try:
            write()
            print(name, flush=True)
        except Exception as error:  # of the exporter's many kinds
            shutil.rmtree(root / name, ignore_errors=True)
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

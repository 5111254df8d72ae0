#!/usr/bin/env python3
"""Writes models of libraries that people train with into FOLDER/NAME/NAME.onnx, with random weights, as PyTorch's
exporter by torch.export writes them: a model of each of timm's modules, ultralytics' detectors, segmentation models,
and what image generators of diffusers are made of. Inputs are seeded random numbers (test_data_set_0).

These are looked over for any that onnxruntime is faster with; a model that cannot be exported is named and left out.

Needs torch, torchvision, timm, ultralytics, segmentation-models-pytorch, diffusers, onnx and onnxscript.
"""

import argparse
import functools
import os
import pathlib
import shutil
import sys
import warnings

import torch
from onnx import numpy_helper

SMALL = ("tiny", "nano", "xxs", "pico", "atto", "femto", "small", "_s", "mini", "micro", "_t0", "_b0", "_50", "18",
         "26", "lite", "_xs")
DETECTORS = ["yolov3-tiny", "yolov5n", "yolov6n", "yolov8n", "yolov8n-seg", "yolov8n-pose", "yolov8n-obb",
             "yolov8n-cls", "yolov8n-worldv2", "yolov9t", "yolov10n", "yolo11n", "yolo11n-seg", "yolo11n-pose",
             "yolo11n-obb", "yolo11n-cls", "yolo12n", "yolo26n", "yolo26n-seg", "yolo26n-pose", "rtdetr-l"]
DETECTOR_OPTIONS = {"nms": {"nms": True}, "dynamic": {"dynamic": True}}
SEGMENTATION = ["unet", "unetplusplus", "manet", "linknet", "fpn", "pspnet", "deeplabv3", "deeplabv3plus", "pan",
                "upernet", "segformer"]
ENCODERS = ["efficientnet-b0", "mobilenet_v2", "mit_b0", "densenet121", "se_resnet50", "timm-mobilenetv3_large_100",
            "resnext50_32x4d", "xception", "vgg11_bn", "mobileone_s0"]


def folder_of(root, name):
    folder = root / name
    (folder / "test_data_set_0").mkdir(parents=True, exist_ok=True)
    return folder


def write_inputs(folder, names, tensors):
    for i, (name, tensor) in enumerate(zip(names, tensors)):
        (folder / "test_data_set_0" / f"input_{i}.pb").write_bytes(
            numpy_helper.from_array(tensor.numpy(), name).SerializeToString())


def export(root, name, make):
    torch.manual_seed(0)
    model, inputs = make()
    folder = folder_of(root, name)
    with torch.no_grad():
        program = torch.onnx.export(model.eval(), inputs, str(folder / f"{name}.onnx"), dynamo=True,
                                    external_data=False, verbose=False)
    write_inputs(folder, [value.name for value in program.model.graph.inputs], inputs)


def timm_name(module):
    """Of the module's small models the one whose weights are nearest to 8 million."""
    import timm
    names = sorted((name for name in timm.list_models() if timm.models._registry._model_to_module.get(name) == module),
                   key=lambda name: (not any(part in name for part in SMALL), len(name)))
    sizes = []
    for name in names[:14]:
        with torch.device("meta"):
            weights = sum(weight.numel() for weight in timm.create_model(name).parameters())
        sizes.append((abs(weights - 8e6), name))
    return min(sizes)[1]


def timm_model(name):
    import timm
    model = timm.create_model(name)
    return model, (torch.randn(1, *model.default_cfg.get("input_size", (3, 224, 224))),)


def segmentation_model(architecture, encoder):
    import segmentation_models_pytorch
    model = segmentation_models_pytorch.create_model(architecture, encoder_name=encoder, encoder_weights=None,
                                                     classes=3)
    return model, (torch.randn(1, 3, 256, 256),)


class Call(torch.nn.Module):
    """A model called so that it takes and gives tensors alone."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


def conditional(cls, inputs, **configuration):
    import diffusers
    model = getattr(diffusers, cls)(**configuration)
    return Call(model, lambda model, *x: model(*x, return_dict=False)[-1]), tuple(inputs)


def unet(**more):
    return conditional(
        "UNet2DConditionModel", (torch.randn(1, 4, 32, 32), torch.tensor([10.0]), torch.randn(1, 77, 256)),
        sample_size=32, block_out_channels=(128, 256, 256), cross_attention_dim=256, attention_head_dim=8,
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"), **more)


def autoencoder(decodes):
    import diffusers
    model = diffusers.AutoencoderKL(
        block_out_channels=(64, 128, 256, 256), down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4, layers_per_block=2, latent_channels=4)
    if decodes:
        return Call(model, lambda model, z: model.decode(z, return_dict=False)[0]), (torch.randn(1, 4, 24, 24),)
    return Call(model, lambda model, x: model.encode(x).latent_dist.mean), (torch.randn(1, 3, 192, 192),)


def flux():
    import diffusers
    model = diffusers.FluxTransformer2DModel(
        num_layers=2, num_single_layers=2, attention_head_dim=64, num_attention_heads=6, joint_attention_dim=256,
        pooled_projection_dim=256, axes_dims_rope=(16, 24, 24), in_channels=16)

    def call(model, x, text, pooled, time, text_ids, image_ids):
        return model(x, encoder_hidden_states=text, pooled_projections=pooled, timestep=time, txt_ids=text_ids,
                     img_ids=image_ids, return_dict=False)[0]
    return Call(model, call), (torch.randn(1, 256, 16), torch.randn(1, 64, 256), torch.randn(1, 256),
                               torch.tensor([0.5]), torch.zeros(64, 3), torch.zeros(256, 3))


def generators():
    torch.manual_seed(0)
    latent, time, text = torch.randn(1, 4, 32, 32), torch.tensor([10.0]), torch.randn(1, 77, 128)
    yield "sd_unet", unet
    yield "sdxl_unet", functools.partial(unet, use_linear_projection=True, transformer_layers_per_block=2)
    yield "vae_decoder", functools.partial(autoencoder, True)
    yield "vae_encoder", functools.partial(autoencoder, False)
    yield "flux", flux
    yield "dit", functools.partial(
        conditional, "DiTTransformer2DModel", (latent, torch.tensor([10]), torch.tensor([3])), num_attention_heads=6,
        attention_head_dim=64, in_channels=4, num_layers=4, sample_size=32, num_embeds_ada_norm=1000)
    yield "sd3", functools.partial(
        conditional, "SD3Transformer2DModel",
        (torch.randn(1, 16, 32, 32), torch.randn(1, 77, 256), torch.randn(1, 256), time), sample_size=32, num_layers=3,
        attention_head_dim=64, num_attention_heads=6, joint_attention_dim=256, caption_projection_dim=384,
        pooled_projection_dim=256, pos_embed_max_size=32)
    yield "controlnet", functools.partial(
        conditional, "ControlNetModel", (latent, time, text, torch.randn(1, 3, 256, 256)), block_out_channels=(64, 128),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), cross_attention_dim=128, attention_head_dim=8,
        layers_per_block=1)
    yield "unet3d", functools.partial(
        conditional, "UNet3DConditionModel", (torch.randn(1, 4, 4, 16, 16), torch.tensor([10]), text),
        block_out_channels=(64, 128), down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"),
        up_block_types=("UpBlock3D", "CrossAttnUpBlock3D"), cross_attention_dim=128, attention_head_dim=16,
        layers_per_block=1)


def exports():
    """Name, and what makes a model with its inputs."""
    import timm
    for module in timm.list_modules():
        name = timm_name(module)
        yield name, functools.partial(timm_model, name)
    for architecture in SEGMENTATION:
        yield f"smp_{architecture}", functools.partial(segmentation_model, architecture, "resnet18")
    for encoder in ENCODERS:
        yield f"smp_unet_{encoder}", functools.partial(segmentation_model, "unet", encoder)
    yield from generators()


def write_detector(root, name, option=None):
    """Ultralytics has an exporter of its own."""
    import ultralytics
    torch.manual_seed(0)
    full_name = f"{name}_{option}" if option else name
    folder, side = folder_of(root, full_name), 224 if "cls" in name else 640
    model = (ultralytics.RTDETR if name.startswith("rtdetr") else ultralytics.YOLO)(f"{name}.yaml")
    written = model.export(format="onnx", imgsz=side, simplify=False, verbose=False,
                           **DETECTOR_OPTIONS.get(option, {}))
    shutil.move(written, folder / f"{full_name}.onnx")
    write_inputs(folder, ["images"], [torch.rand(1, 3, side, side)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", help="only these")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ["YOLO_OFFLINE"] = "1"
    root = arguments.folder.resolve()
    made = [(name, functools.partial(export, root, name, make)) for name, make in exports()]
    made += [(name, functools.partial(write_detector, root, name)) for name in DETECTORS]
    made += [(f"{name}_{option}", functools.partial(write_detector, root, name, option))
             for name in ("yolov8n", "yolo11n") for option in DETECTOR_OPTIONS]
    for name, write in made:
        if arguments.names and name not in arguments.names:
            continue
        try:
            write()
            print(name)
        except Exception as error:  # of the exporter's many kinds
            shutil.rmtree(root / name, ignore_errors=True)
            print(f"{name}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()

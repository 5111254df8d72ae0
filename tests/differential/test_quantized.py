"""What onnxruntime's quantizer makes of the embedded models gives the same outputs here."""

import pathlib
import tempfile
import unittest

import numpy
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import oracle

MODELS = pathlib.Path(__file__).resolve().parents[2] / "models"
SHAPES = {"digits_cnn": (1, 1, 8, 8), "digits_rows": (1, 8, 8)}


class Samples(CalibrationDataReader):
    """Random images for calibration."""

    def __init__(self, name, shape):
        random = numpy.random.default_rng(3)
        self.samples = iter([{name: random.random(shape, numpy.float32)} for _ in range(8)])

    def get_next(self):
        return next(self.samples, None)


class Quantized(unittest.TestCase):
    def compare(self, name, quantize):
        source = MODELS / name / "1" / "model.onnx"
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/quantized.onnx"
            quantize(str(source), path)
            model = onnx.load(path)
        entry = model.graph.input[0].name
        for batch in (1, 5):
            data = numpy.random.default_rng(batch).random((batch, *SHAPES[name][1:]), numpy.float32)
            # A value at the middle between two steps may be rounded either way: allow one step of the
            # logits, whose range of about 12 is cut into 255.
            oracle.assert_same(self, model, {entry: data}, rtol=0, atol=0.06)

    def test_dynamic(self):
        for name in SHAPES:
            for kind in (QuantType.QInt8, QuantType.QUInt8):
                with self.subTest(model=name, type=kind):
                    self.compare(name, lambda source, path: quantize_dynamic(
                        source, path, weight_type=kind, reduce_range=oracle.saturates()))

    def test_static(self):
        for name, shape in SHAPES.items():
            entry = onnx.load(MODELS / name / "1" / "model.onnx").graph.input[0].name
            for form in (QuantFormat.QDQ, QuantFormat.QOperator):
                for per_channel in (False, True):
                    with self.subTest(model=name, form=form, per_channel=per_channel):
                        self.compare(name, lambda source, path: quantize_static(
                            source, path, Samples(entry, shape), quant_format=form, per_channel=per_channel,
                            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                            reduce_range=oracle.saturates()))


if __name__ == "__main__":
    unittest.main()

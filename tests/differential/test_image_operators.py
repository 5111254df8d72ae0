"""Images that graphs decode and encode themselves, as onnxruntime-extensions do (in the other one of its domains)."""

import subprocess
import tempfile
import unittest

import numpy
from onnx import TensorProto, numpy_helper

import oracle
from test_tokenizers import by_extensions, model_of

UINT8 = TensorProto.UINT8
DOMAIN = "com.microsoft.extensions"


def picture(height, width):
    """Smooth, so that JPEG keeps it."""
    y, x = numpy.mgrid[:height, :width]
    return numpy.stack([x * 255 // width, y * 255 // height, (x + y) * 255 // (height + width)], 2).astype(numpy.uint8)


class ImageOperators(unittest.TestCase):
    def run_op(self, op, value, **options):
        model, feeds = model_of(op, [value], [UINT8], domain=DOMAIN, **options)
        with tempfile.TemporaryDirectory() as folder:
            oracle.write_case(model, feeds, [], folder)
            done = subprocess.run([oracle.BINARY, "run", f"{folder}/model.onnx", "--inputs", folder, "--outputs", folder],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(f"{folder}/output_0.pb", "rb") as file:
                return numpy_helper.to_array(TensorProto.FromString(file.read()))

    def expected(self, op, value, **options):
        result = by_extensions(*model_of(op, [value], [UINT8], domain=DOMAIN, **options))
        self.assertIsInstance(result, list, result)
        return result[0]

    def test_png_comes_back_as_it_was(self):
        pixels = picture(31, 45)
        for space in ({}, {"color_space": "bgr"}, {"color_space": "rgb"}):
            encoded = self.run_op("EncodeImage", pixels, format="png", **space)
            with self.subTest(**space):
                numpy.testing.assert_array_equal(self.run_op("DecodeImage", encoded, **space), pixels)
                numpy.testing.assert_array_equal(self.expected("DecodeImage", encoded, **space), pixels)
                theirs = self.expected("EncodeImage", pixels, format="png", **space)
                numpy.testing.assert_array_equal(self.run_op("DecodeImage", theirs, **space), pixels)

    def test_jpeg_comes_back_alike(self):
        pixels = picture(48, 64)
        for space in ("bgr", "rgb"):
            ours = self.run_op("EncodeImage", pixels, format="jpg", color_space=space)
            theirs = self.expected("EncodeImage", pixels, format="jpg", color_space=space)
            for encoded in (ours, theirs):
                decoded = self.run_op("DecodeImage", encoded, color_space=space).astype(int)
                self.assertLess(numpy.abs(decoded - pixels).max(), 16)
                self.assertLess(numpy.abs(decoded - self.expected("DecodeImage", encoded, color_space=space)).max(), 4)

    def test_refused(self):
        def refusal(op, value, **options):
            return oracle.refusal(*model_of(op, [value], [UINT8], domain=DOMAIN, **options))

        pixels = picture(4, 4)
        self.assertIn("format 'gif' is neither", refusal("EncodeImage", pixels, format="gif"))
        self.assertIn("color_space 'RGB' is neither", refusal("EncodeImage", pixels, format="png", color_space="RGB"))
        self.assertIn("expected an image [height, width, 3], got [4, 4, 2]", refusal("EncodeImage", pixels[..., :2], format="png"))
        self.assertIn("0 x 0 pixels", refusal("EncodeImage", pixels[:0, :0], format="png"))
        self.assertIn("does not decode", refusal("DecodeImage", numpy.zeros(8, numpy.uint8)))


if __name__ == "__main__":
    unittest.main()

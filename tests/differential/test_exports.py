"""Graphs that torch.onnx.export, Keras and tf2onnx wrote give onnxruntime's outputs, with batch 1 and 3."""

import pathlib
import unittest

import numpy
import onnx

import oracle
import seeded_weights

EXPORTS = pathlib.Path(__file__).parent / "exports"


class Exports(unittest.TestCase):
    def test_every_export_is_small(self):
        for path in EXPORTS.glob("*.onnx"):
            self.assertLessEqual(path.stat().st_size, 50_000, path.name)

    def check(self, path):
        model = seeded_weights.fill(onnx.load(path))
        for batch in (1, 3):
            dims = {dim.dim_param: batch for value in model.graph.input
                    for dim in value.type.tensor_type.shape.dim if dim.dim_param}
            feeds = oracle.random_feeds(model, batch, dims)
            expected = oracle.expected_outputs(model, feeds)
            for output in expected:
                self.assertTrue(numpy.isfinite(output).all(), "the seeded weights say nothing")
            oracle.assert_same(self, model, feeds, rtol=1e-3, atol=1e-4, outputs=expected)


for _path in sorted(EXPORTS.glob("*.onnx")):
    setattr(Exports, f"test_{_path.stem}", lambda self, path=_path: self.check(path))

if __name__ == "__main__":
    unittest.main()

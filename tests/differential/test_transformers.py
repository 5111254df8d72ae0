"""What onnxruntime.transformers and the 4-bit quantizer make of exports gives onnxruntime's outputs."""

import pathlib
import tempfile
import unittest

import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.quant_utils import QuantFormat
from onnxruntime.transformers import optimizer
from onnxruntime.transformers.fusion_options import FusionOptions

import oracle
import seeded_weights

EXPORTS = pathlib.Path(__file__).parent / "exports"
HEADS, HIDDEN = {"bert": (2, 32), "gpt2": (2, 32)}, None


def operators(model):
    return {node.op_type for node in model.graph.node}


class Transformers(unittest.TestCase):
    def compare(self, model, **tolerance):
        for batch in (1, 3):
            dims = {dim.dim_param: batch for value in model.graph.input
                    for dim in value.type.tensor_type.shape.dim if dim.dim_param}
            oracle.assert_same(self, model, oracle.random_feeds(model, batch, dims), **{"rtol": 1e-3, "atol": 1e-4, **tolerance})

    def optimized(self, name, kind, **options):
        model = seeded_weights.fill(onnx.load(EXPORTS / f"{name}.onnx"))
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(model, f"{folder}/model.onnx")
            fused = optimizer.optimize_model(f"{folder}/model.onnx", kind, opt_level=0, only_onnxruntime=False, **options)
        return fused.model

    def test_show(self):
        for path in sorted(EXPORTS.glob("*bert*.onnx")) + sorted(EXPORTS.glob("*gpt2*.onnx")) + sorted(EXPORTS.glob("*vit*.onnx")):
            kind = "gpt2" if "gpt2" in path.name else "vit" if "vit" in path.name else "bert"
            try:
                model = self.optimized(path.stem, kind)
                print(path.stem, sorted({n.op_type for n in model.graph.node if n.domain == "com.microsoft"}))
                with self.subTest(path.stem):
                    self.compare(model)
            except Exception as error:
                print(path.stem, repr(error)[:200])


if __name__ == "__main__":
    unittest.main()

"""What onnxruntime.transformers and the 4- and 8-bit quantizer make of exports gives onnxruntime's
outputs."""

import logging
import pathlib
import tempfile
import unittest

import onnx
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.quantization.quant_utils import QuantFormat
from onnxruntime.transformers import optimizer

import oracle
import seeded_weights

EXPORTS = pathlib.Path(__file__).parent / "exports"
logging.disable(logging.WARNING)


def operators(model):
    return {node.op_type for node in model.graph.node}


def load(name):
    return seeded_weights.fill(onnx.load(EXPORTS / f"{name}.onnx"))


class Transformers(unittest.TestCase):
    def compare(self, model, **tolerance):
        for batch in (1, 3):
            dims = {dim.dim_param: batch for value in model.graph.input
                    for dim in value.type.tensor_type.shape.dim if dim.dim_param}
            oracle.assert_same(self, model, oracle.random_feeds(model, batch, dims), **{"rtol": 1e-3, "atol": 1e-4, **tolerance})

    def optimized(self, name, kind):
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(load(name), f"{folder}/model.onnx")
            return optimizer.optimize_model(f"{folder}/model.onnx", kind, opt_level=0, only_onnxruntime=False).model

    def test_fused_encoders(self):
        fused = set()
        for pattern, kind in (("*bert*", "bert"), ("torch_vit*", "vit")):
            for path in sorted(EXPORTS.glob(f"{pattern}.onnx")):
                with self.subTest(path.stem):
                    model = self.optimized(path.stem, kind)
                    fused |= operators(model)
                    self.compare(model)
        self.assertLessEqual({"SkipLayerNormalization", "BiasGelu", "LayerNormalization"}, fused)

    def test_weights_of_few_bits(self):
        for name in ("torch_encoder_script_17", "torch_bert_script_17", "torch_vit_dynamo_20"):
            for bits, form, symmetric in ((4, QuantFormat.QOperator, True), (4, QuantFormat.QOperator, False),
                                          (4, QuantFormat.QDQ, True), (8, QuantFormat.QOperator, False)):
                with self.subTest(name, bits=bits, form=form, symmetric=symmetric):
                    model = load(name)
                    for imported in model.opset_import:
                        if imported.domain == "" and form == QuantFormat.QDQ:
                            imported.version = max(imported.version, 21)
                    quantizer = MatMulNBitsQuantizer(model, bits=bits, block_size=32, is_symmetric=symmetric, quant_format=form)
                    quantizer.process()
                    quantized = quantizer.model.model
                    self.assertIn("MatMulNBits" if form == QuantFormat.QOperator else "DequantizeLinear", operators(quantized))
                    self.compare(quantized, rtol=1e-2, atol=1e-3)


if __name__ == "__main__":
    unittest.main()

"""`onnxd optimize` saves files that onnxruntime runs with the results of the original."""

import pathlib
import subprocess
import tempfile
import unittest

import numpy
import onnx

import oracle
import seeded_weights

EXPORTS = pathlib.Path(__file__).parent / "exports"


def optimize(model, level):
    """The saved model, or the refusal's text."""
    with tempfile.TemporaryDirectory() as folder:
        path, saved = pathlib.Path(folder) / "in.onnx", pathlib.Path(folder) / "out.onnx"
        path.write_bytes(model.SerializeToString())
        done = subprocess.run([oracle.BINARY, "optimize", str(path), str(saved), "--optimization", level],
                              capture_output=True, text=True, timeout=120)
        return onnx.load(saved) if done.returncode == 0 else done.stderr


class Optimized(unittest.TestCase):
    def check(self, path):
        model = seeded_weights.fill(onnx.load(path))
        dims = {dim.dim_param: 2 for value in model.graph.input
                for dim in value.type.tensor_type.shape.dim if dim.dim_param}
        feeds = oracle.random_feeds(model, 0, dims)
        expected = oracle.expected_outputs(model, feeds)
        for level in ("basic", "extended"):
            saved = optimize(model, level)
            if isinstance(saved, str):
                # The one reason there may be: functions inlined from another opset.
                self.assertRegex(saved, "which no opset of .* gives it beside the model's other nodes")
                continue
            self.assertLessEqual(len(saved.graph.node), len(model.graph.node) + 200)
            self.assertFalse([node.op_type for node in saved.graph.node if node.domain == "onnxd"])
            for wanted, got in zip(expected, oracle.expected_outputs(saved, feeds)):
                numpy.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4 * (1 + numpy.abs(wanted).max()))


for _path in sorted(EXPORTS.glob("*.onnx")):
    setattr(Optimized, f"test_{_path.stem}", lambda self, path=_path: self.check(path))

if __name__ == "__main__":
    unittest.main()

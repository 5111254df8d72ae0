"""Operators and versions that no ONNX backend test case covers give onnxruntime's outputs; of random
ones the distribution is checked."""

import pathlib
import subprocess
import tempfile
import unittest

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import oracle

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
ML = "ai.onnx.ml"


def tensor_type(name, value):
    kind = STRING if value.dtype == object else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)


def map_type(name, key, value):
    inner = helper.make_map_type_proto(key, helper.make_tensor_type_proto(value, []))
    return helper.make_value_info(name, inner)


class Uncovered(unittest.TestCase):
    def setUp(self):
        self.random = numpy.random.default_rng(11)

    def floats(self, *shape):
        return self.random.standard_normal(shape).astype(numpy.float32)

    def model(self, op, feeds, out=FLOAT, opset=17, ml=1, domain="", types=None, constants=(), outputs=("y",), **attributes):
        node = helper.make_node(op, [*feeds, *dict(constants)], list(outputs), domain=domain, **attributes)
        inputs = types or [tensor_type(name, value) for name, value in feeds.items()]
        graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info(name, out, None) for name in outputs],
                                  [numpy_helper.from_array(value, name) for name, value in constants])
        imports = [helper.make_opsetid("", opset), helper.make_opsetid(ML, ml)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def compare(self, op, feeds, outputs=None, **options):
        with self.subTest(op, **{key: value for key, value in options.items() if key in ("opset", "mode", "pooled_shape")}):
            oracle.assert_same(self, self.model(op, feeds, **options), feeds, rtol=1e-4, atol=1e-5, outputs=outputs)

    def test_maps(self):
        words = {"a": 1.5, "c": -2.0}
        self.compare("DictVectorizer", {"x": words}, domain=ML, types=[map_type("x", STRING, FLOAT)],
                     string_vocabulary=["c", "b", "a"])
        numbers = {3: 1.5, 7: -2.0}
        self.compare("DictVectorizer", {"x": numbers}, domain=ML, types=[map_type("x", INT64, FLOAT)],
                     int64_vocabulary=[7, 1, 3])
        self.compare("CastMap", {"x": numbers}, domain=ML, types=[map_type("x", INT64, FLOAT)], cast_to="TO_FLOAT", map_form="DENSE")
        self.compare("CastMap", {"x": numbers}, domain=ML, types=[map_type("x", INT64, FLOAT)], cast_to="TO_FLOAT",
                     map_form="SPARSE", max_map=9)
        # onnxruntime's Python interface takes no map of strings.
        self.compare("CastMap", {"x": {0: "4", 2: "7"}}, [numpy.array([[4, 7]])], domain=ML, out=INT64, types=[map_type("x", INT64, STRING)],
                     cast_to="TO_INT64", map_form="DENSE")

    def test_categories(self):
        mapping = {"cats_int64s": [1, 5, 9], "cats_strings": ["one", "five", "nine"], "domain": ML}
        self.compare("CategoryMapper", {"x": numpy.array([5, 1, 4])}, out=STRING, default_string="other", **mapping)
        self.compare("CategoryMapper", {"x": numpy.array(["nine", "two"], object)}, out=INT64, default_int64=-3, **mapping)
        self.compare("FeatureVectorizer", {"a": self.floats(2, 3), "b": self.floats(2, 1)}, domain=ML, inputdimensions=[3, 1])

    def test_pools(self):
        regions = numpy.array([[0, 0, 0, 5, 5], [1, 1, 2, 6, 4], [0, 3, 3, 3, 3]], numpy.float32)
        for pooled_shape in ([2, 2], [3, 1]):
            self.compare("MaxRoiPool", {"x": self.floats(2, 3, 8, 8), "r": regions}, pooled_shape=pooled_shape, spatial_scale=0.5)
        for opset in (7, 11, 18):
            self.compare("LpPool", {"x": self.floats(1, 2, 6, 6)}, opset=opset, kernel_shape=[3, 3], strides=[2, 2], p=3)
            self.compare("GlobalLpPool", {"x": self.floats(1, 2, 4, 4)}, opset=opset, p=1)
        self.compare("MaxPool", {"x": self.floats(1, 2, 7, 7)}, opset=11, kernel_shape=[3, 3], dilations=[2, 2], ceil_mode=1)

    def test_older_versions(self):
        x = self.floats(2, 3)
        self.compare("Relu", {"x": x}, opset=13)
        self.compare("ReduceMin", {"x": x}, opset=12, axes=[1])
        self.compare("LpNormalization", {"x": x}, opset=7, axis=0, p=1)
        self.compare("Upsample", {"x": self.floats(1, 1, 2, 3)}, opset=9, mode="nearest",
                     constants=[("s", numpy.array([1, 1, 2, 3], numpy.float32))])
        index = numpy.array([[1, 0, 1]])
        for op, opset in (("Scatter", 9), ("ScatterElements", 13)):
            self.compare(op, {"x": x, "i": index, "u": self.floats(1, 3)}, opset=opset)
        self.compare("ScatterND", {"x": x, "i": numpy.array([[1]]), "u": self.floats(1, 3)}, opset=13)

    def test_tree_ensemble_of_version_5(self):
        # One split at x[0] < 0.5, one of membership in {1, 3}.
        attributes = dict(
            n_targets=1, post_transform=0, aggregate_function=1, tree_roots=[0, 1],
            nodes_modes=numpy_helper.from_array(numpy.array([1, 6], numpy.uint8)), nodes_featureids=[0, 1],
            nodes_splits=numpy_helper.from_array(numpy.array([0.5, 0], numpy.float32)),
            nodes_truenodeids=[0, 2], nodes_trueleafs=[1, 1], nodes_falsenodeids=[1, 3], nodes_falseleafs=[1, 1],
            membership_values=numpy_helper.from_array(numpy.array([1, 3, numpy.nan], numpy.float32)),
            leaf_targetids=[0, 0, 0, 0], leaf_weights=numpy_helper.from_array(numpy.array([10, 20, 1, 2], numpy.float32)))
        x = numpy.array([[0, 1], [1, 2], [0.4, 3], [9, 0]], numpy.float32)
        expected = numpy.array([[11], [22], [11], [22]], numpy.float32)
        self.compare("TreeEnsemble", {"x": x}, [expected], ml=5, domain=ML, **attributes)

    def draw(self, model, feeds=()):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            onnx.save(model, path / "model.onnx")
            for i, feed in enumerate(feeds):
                (path / f"input_{i}.pb").write_bytes(numpy_helper.from_array(feed).SerializeToString())
            subprocess.run([oracle.BINARY, "run", path / "model.onnx", "--inputs", folder, "--outputs", folder], check=True, capture_output=True)
            return numpy_helper.to_array(onnx.load_tensor(path / "output_0.pb"))

    def test_random_numbers(self):
        shape = [100, 200]  # 20,000 numbers: means within 5 standard errors
        like = numpy.zeros(shape, numpy.float32)
        for op, feeds in (("RandomNormal", {}), ("RandomNormalLike", {"x": like})):
            extra = {} if feeds else {"shape": shape}
            for seed in (1.0, 2.0):
                with self.subTest(op, seed=seed):
                    model = self.model(op, feeds, mean=3.0, scale=2.0, seed=seed, **extra)
                    y = self.draw(model, feeds.values())
                    self.assertLess(abs(y.mean() - 3), 5 * 2 / len(y.ravel()) ** 0.5)
                    self.assertLess(abs(y.std() - 2), 0.1)
                    self.assertTrue((y == self.draw(model, feeds.values())).all(), "a seed repeats")
        for op, feeds in (("RandomUniform", {}), ("RandomUniformLike", {"x": like})):
            extra = {} if feeds else {"shape": shape}
            with self.subTest(op):
                y = self.draw(self.model(op, feeds, low=-1.0, high=3.0, seed=5.0, **extra), feeds.values())
                self.assertTrue(-1 <= y.min() and y.max() < 3)
                self.assertLess(abs(y.mean() - 1), 5 * 1.2 / len(y.ravel()) ** 0.5)
        shares = numpy.log(numpy.array([[0.1, 0.2, 0.7]], numpy.float32))
        y = self.draw(self.model("Multinomial", {"x": shares}, out=TensorProto.INT32, sample_size=20_000, seed=3.0), [shares])
        self.assertEqual(y.shape, (1, 20_000))
        counts = numpy.bincount(y[0], minlength=3) / 20_000
        self.assertLess(numpy.abs(counts - [0.1, 0.2, 0.7]).max(), 0.02)


if __name__ == "__main__":
    unittest.main()

"""Model files that no exporter writes: refused, or run, in bounded time and memory.

The cases follow a list of what has broken model loaders before: O01 broken bytes ... O30 sizes.
Mutations of real cases are in tests/hostile, arbitrary bytes in tests/fuzz.
"""

import json
import os
import pathlib
import resource
import subprocess
import tempfile
import unittest
import urllib.request

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import daemon

FLOAT, INT64, STRING = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
HUGE = 2**62
ADDRESS_SPACE = 6 << 30


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))


def value(name, kind=FLOAT, shape=(2, 3)):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs=(), outputs=(), constants=(), opset=21, **extra):
    graph = helper.make_graph(nodes, "g", list(inputs), list(outputs),
                              [c if isinstance(c, TensorProto) else numpy_helper.from_array(c[1], c[0]) for c in constants])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10, **extra)


def node(op, inputs, outputs=("y",), **attributes):
    return helper.make_node(op, list(inputs), list(outputs), name="n", **attributes)


def one(op, inputs, *, constants=(), shape=(2, 3), kind=FLOAT, out=FLOAT, **attributes):
    """A model of one node on an input x."""
    return model_of([node(op, inputs, **attributes)], [value("x", kind, shape)], [value("y", out, None)], constants)


def ints(*values):
    return numpy.array(values, numpy.int64)


class HostileModels(unittest.TestCase):
    def onnxd(self, command, path, *arguments, timeout=60):
        return subprocess.run([daemon.BINARY, command, path, *map(str, arguments)], capture_output=True, text=True,
                              errors="replace", timeout=timeout, preexec_fn=limits)

    def check(self, model, files=()):
        """`onnxd check` of the model; its exit code and message."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.onnx"
            path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
            for name, data in files:
                (pathlib.Path(folder) / name).write_bytes(data)
            done = self.onnxd("check", path)
        self.assertIn(done.returncode, (0, 1), done.stderr[-2000:])
        return done

    def refuse(self, model, message="onnxd: [A-Z_]+", files=()):
        done = self.check(model, files)
        self.assertEqual(done.returncode, 1, "it was accepted")
        self.assertRegex(done.stderr, message)
        self.assertLess(len(done.stderr), 20_000)

    def run_model(self, model, feeds):
        """`onnxd run`: an answer or an error, never a crash."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.onnx"
            onnx.save(model, path)
            for i, data in enumerate(feeds):
                (pathlib.Path(folder) / f"input_{i}.pb").write_bytes(numpy_helper.from_array(data).SerializeToString())
            done = self.onnxd("run", path, "--inputs", folder, "--outputs", f"{folder}/out")
            self.assertIn(done.returncode, (0, 1), done.stderr[-2000:])
            if done.returncode == 0:
                return numpy_helper.to_array(onnx.load_tensor(f"{folder}/out/output_0.pb"))
        return done.stderr

    def refuse_run(self, model, feeds, message):
        answer = self.run_model(model, feeds)
        self.assertIsInstance(answer, str, "it answered")
        self.assertRegex(answer, message)

    def test_o01_broken_bytes(self):
        good = one("Relu", ["x"]).SerializeToString()
        random = numpy.random.default_rng(1)
        for data in (b"", b"\x08", random.bytes(1000), *(good[:n] for n in range(0, len(good), 5))):
            self.check(data)
        for _ in range(100):
            flipped = bytearray(good)
            flipped[random.integers(len(good))] ^= 1 << random.integers(8)
            self.check(bytes(flipped))

    def test_o02_versions(self):
        self.refuse(numpy_helper.from_array(numpy.ones(3, numpy.float32)).SerializeToString())
        relu = one("Relu", ["x"])
        for opset, message in ((0, "opset"), (10**6, "")):
            relu.opset_import[0].version = opset
            self.check(relu)
        del relu.opset_import[:]
        self.refuse(relu, "imports no opset of ai.onnx")
        relu.opset_import.extend([helper.make_opsetid("", 13), helper.make_opsetid("", 14)])
        self.check(relu)
        named = one("Relu", ["x"])
        named.opset_import[0].domain = "ai.onnx"
        self.assertEqual(self.check(named).returncode, 0)

    def test_o03_amplification(self):
        for field in (b"\x0a\x00", b"\x2a\x00", b"\x5a\x00"):  # empty nodes, initializers, inputs
            graph = field * 2_000_000
            self.refuse(b"\x08\x08\x3a" + varint(len(graph)) + graph)

    def test_o04_wire_format(self):
        self.check(b"\x08\x08" + b"\x0b" * 200)  # groups
        self.refuse(b"\x08" + b"\xff" * 20 + b"\x01")  # an over-long varint
        nested = b""
        for _ in range(300):
            nested = b"\x3a" + varint(len(nested)) + nested
        self.check(nested)
        for name in (b"\xff\xfe", b"a\x00b", b"n" * 1_000_000):
            data = one("Relu", ["QQQQ"]).SerializeToString().replace(b"QQQQ", name[:4].ljust(4, b"\x00"))
            self.check(data)

    def test_o05_cycles(self):
        self.refuse(model_of([node("Relu", ["y"])], [], [value("y")]), "cycle|nothing before it")
        loop = [helper.make_node("Relu", [f"v{(i + 1) % 1000}"], [f"v{i}"]) for i in range(1000)]
        self.refuse(model_of(loop, [], [value("v0")]), "cycle")

    def test_o06_missing_values(self):
        self.refuse(model_of([node("Relu", ["nowhere"])], [], [value("y")]), "'nowhere'")
        self.refuse(model_of([node("Add", ["x", ""])], [value("x")], [value("y")]), "required")

    def test_o07_values_defined_twice(self):
        twice = [node("Relu", ["x"]), node("Neg", ["x"])]
        self.refuse(model_of(twice, [value("x")], [value("y")]), "'y'")
        data = numpy.ones((2, 3), numpy.float32)
        self.refuse(model_of([node("Relu", ["x"])], [value("x"), value("x")], [value("y")]), "'x'")
        self.refuse(model_of([node("Add", ["x", "c"])], [value("x")], [value("y")], [("c", data), ("c", data)]), "'c'")

    def test_o08_outputs(self):
        self.refuse(model_of([node("Relu", ["x"])], [value("x")], [value("z")]), "'z'")
        self.refuse(model_of([node("Relu", ["x"])], [value("x")], []), "no outputs")
        self.assertEqual(self.check(model_of([], [value("x")], [value("x")])).returncode, 0)
        same = model_of([node("Relu", ["x"])], [value("x")], [value("y"), value("y")])
        self.check(same)

    def test_o09_operators_and_attributes(self):
        self.refuse(one("Nonsense", ["x"]), "operator Nonsense of opset 21 is unknown")
        self.refuse(one("Relu", ["x"], domain="com.nowhere"), "com.nowhere::Relu")
        self.refuse(one("Relu", ["x", "x"]), "2 inputs")
        self.refuse(one("Add", ["x"]), "1 inputs")
        self.refuse(model_of([node("Relu", ["x"], ["y", "z"])], [value("x")], [value("y")]), "2 outputs")
        self.refuse(one("Relu", ["x"], colour=3), "attribute 'colour'")
        self.refuse(one("Concat", ["x"]), "required attribute 'axis'")
        self.refuse(one("Concat", ["x"], axis="one"), "attribute 'axis' is STRING, expected INT")
        twice = one("LeakyRelu", ["x"], alpha=1.0)
        twice.graph.node[0].attribute.append(twice.graph.node[0].attribute[0])
        self.refuse(twice, "twice")
        reference = one("LeakyRelu", ["x"], alpha=1.0)
        reference.graph.node[0].attribute[0].ref_attr_name = "a"
        self.refuse(reference)

    def test_o10_types(self):
        add = model_of([node("Add", ["x", "i"])], [value("x"), value("i", INT64)], [value("y")])
        self.refuse(add, "mixes types")
        self.refuse(one("Cast", ["x"], to=0))
        self.refuse(one("Cast", ["x"], to=9999))
        branch = [helper.make_graph([helper.make_node("Constant", [], ["r"], value=numpy_helper.from_array(numpy.array(v)))], "b", [],
                                    [value("r", kind, ())]) for v, kind in ((1.5, TensorProto.DOUBLE), (1, INT64))]
        choose = model_of([node("If", ["c"], then_branch=branch[0], else_branch=branch[1])],
                          [value("c", TensorProto.BOOL, ())], [helper.make_tensor_value_info("y", FLOAT, ())])
        self.refuse(choose)

    def test_o11_initializers(self):
        good = dict(name="c", data_type=FLOAT, dims=[2, 3], raw_data=b"\0" * 24)
        for change in ({"raw_data": b"\0" * 23}, {"raw_data": b"\0" * 28}, {"dims": [-1, 3]}, {"dims": [HUGE, HUGE]},
                       {"dims": [2**31, 2**31]}, {"data_type": 0}, {"data_type": 77}, {"dims": [1] * 1000},
                       {"raw_data": b"\0" * 24, "float_data": [1.0] * 6}, {"data_type": STRING},
                       {"data_type": TensorProto.INT4, "dims": [49]}, {"dims": [0]}):
            with self.subTest(**change):
                self.refuse(one("Add", ["x", "c"], constants=[TensorProto(**{**good, **change})]))
        typed = TensorProto(name="c", data_type=FLOAT, dims=[2, 3], int64_data=[1] * 6)
        self.refuse(one("Add", ["x", "c"], constants=[typed]))

    def test_o12_input_types(self):
        self.check(one("Relu", ["x"], shape=(-1, 0)))
        self.refuse(one("Relu", ["x"], shape=[1] * 100_000))
        untyped = one("Relu", ["x"])
        untyped.graph.input[0].ClearField("type")
        self.check(untyped)
        clash = model_of([node("Add", ["a", "b"])], [value("a", shape=("n",)), value("b", shape=("n",))], [value("y", shape=("n",))])
        self.refuse_run(clash, [numpy.ones(2, numpy.float32), numpy.ones(3, numpy.float32)], "n")

    def test_o13_shape_arithmetic(self):
        image, kernel = (1, 2, 8, 8), ("w", numpy.ones((2, 2, 3, 3), numpy.float32))
        for attributes in ({"pads": [HUGE] * 4}, {"pads": [-HUGE] * 4}, {"strides": [0, 0]}, {"strides": [-1, 1]}, {"dilations": [HUGE, HUGE]},
                           {"dilations": [0, 1]}, {"kernel_shape": [3, 3, 3]}, {"group": 0}, {"group": -1}, {"group": 3},
                           {"pads": [1]}, {"strides": [1]}, {"auto_pad": "WHATEVER"}):
            with self.subTest("Conv", **attributes):
                self.refuse(one("Conv", ["x", "w"], constants=[kernel], shape=image, **attributes))
        for attributes in ({"kernel_shape": [0, 0]}, {"kernel_shape": [HUGE, HUGE]}, {"kernel_shape": [3]},
                           {"kernel_shape": [3, 3], "pads": [HUGE] * 4}, {"kernel_shape": [3, 3], "strides": [0, 1]}):
            with self.subTest("MaxPool", **attributes):
                self.refuse(one("MaxPool", ["x"], shape=image, **attributes))
        for attributes in ({"output_padding": [HUGE, 1]}, {"strides": [HUGE, HUGE]}, {"output_shape": [HUGE, HUGE]}, {"pads": [HUGE] * 4}):
            with self.subTest("ConvTranspose", **attributes):
                self.refuse(one("ConvTranspose", ["x", "w"], constants=[kernel], shape=image, **attributes))
        for op, operand in (("Reshape", ints(-1, -1)), ("Reshape", ints(0, 0, 0)), ("Reshape", ints(-2, 3)), ("Reshape", ints(HUGE, HUGE)),
                            ("Tile", ints(-1, 1)), ("Pad", ints(1)), ("Squeeze", ints(7)), ("Unsqueeze", ints(-9)), ("Unsqueeze", ints(0, 0)),
                            ("Split", ints(5, 5))):
            with self.subTest(op, operand=operand):
                self.refuse(one(op, ["x", "c"], constants=[("c", operand)]))
        for op, operand in (("Tile", ints(2**40, 2**40)), ("Pad", ints(HUGE, 0, 0, 0)), ("Expand", ints(HUGE, 2, 3))):
            with self.subTest(op, operand=operand):
                self.refuse_run(one(op, ["x", "c"], constants=[("c", operand)]), [numpy.ones((2, 3), numpy.float32)],
                                "RESOURCE_EXHAUSTED|INVALID_ARGUMENT")
        for scale in (0.0, -1.0, float("nan"), float("inf"), 1e30):
            with self.subTest("Resize", scale=scale):
                scales = ("s", numpy.array([1, 1, scale, scale], numpy.float32))
                self.refuse(one("Resize", ["x", "", "s"], constants=[scales], shape=image))

    def test_o14_bombs_at_load(self):
        shape = ("s", ints(10**7, 10**6))
        far = [("a", numpy.array(0, numpy.int64)), ("b", numpy.array(10**15, numpy.int64)), ("d", numpy.array(1, numpy.int64))]
        for bomb in (model_of([node("ConstantOfShape", ["s"])], [], [value("y", shape=None)], [shape]),
                     model_of([node("Range", ["a", "b", "d"])], [], [value("y", INT64, None)], far),
                     one("Expand", ["x", "s"], constants=[shape], shape=(1, 1)),
                     one("Tile", ["x", "s"], constants=[shape], shape=(1, 1)),
                     model_of([node("OneHot", ["i", "d", "v"])], [], [value("y", shape=None)],
                              [("i", ints(1, 2)), ("d", ints(10**12)), ("v", numpy.array([0, 1], numpy.float32))])):
            with self.subTest(bomb.graph.node[0].op_type):
                self.check(bomb)
                self.run_model(bomb, [numpy.ones((1, 1), numpy.float32)] if bomb.graph.input else [])
        doubling = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(45)]
        chain = model_of(doubling, [], [value("v45", shape=None)], [("v0", numpy.ones(8, numpy.float32))])
        self.check(chain)
        self.refuse_run(chain, [], "RESOURCE_EXHAUSTED")
        body = helper.make_graph([helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Add", ["a", "a"], ["a2"])], "b",
                                 [value("i", INT64, ()), value("c", TensorProto.BOOL, ()), value("a", FLOAT, ())],
                                 [value("c2", TensorProto.BOOL, ()), value("a2", FLOAT, ())])
        loop = model_of([node("Loop", ["m", "c", "a"], body=body)], [], [value("y", FLOAT, ())],
                        [("m", numpy.array(10**12)), ("c", numpy.array(True)), ("a", numpy.array(1, numpy.float32))])
        self.check(loop)

    def test_o15_bombs_at_run(self):
        for op, feeds in (("ConstantOfShape", [ints(10**7, 10**6)]), ("ConstantOfShape", [ints(-1)])):
            model = model_of([node(op, ["s"])], [value("s", INT64, (None,))], [value("y", shape=None)])
            self.refuse_run(model, feeds, "RESOURCE_EXHAUSTED|INVALID_ARGUMENT")
        for op, operand in (("Tile", ints(10**6, 10**7)), ("Expand", ints(10**7, 10**6)), ("Reshape", ints(5, 5)), ("Tile", ints(-3, 1))):
            model = model_of([node(op, ["x", "s"])], [value("x", shape=(1, 1)), value("s", INT64, (2,))], [value("y", shape=None)])
            self.refuse_run(model, [numpy.ones((1, 1), numpy.float32), operand], "RESOURCE_EXHAUSTED|INVALID_ARGUMENT")
        for k in (-1, 7, HUGE):
            model = model_of([node("TopK", ["x", "k"], ["y", "i"])], [value("x"), value("k", INT64, (1,))],
                             [value("y", shape=None), value("i", INT64, None)])
            self.refuse_run(model, [numpy.ones((2, 3), numpy.float32), ints(k)], "INVALID_ARGUMENT")

    def test_o16_indices(self):
        x = numpy.ones((2, 3), numpy.float32)
        for op, index, extra in (("Gather", ints(2), []), ("Gather", ints(-3), []), ("Gather", ints(HUGE), []),
                                 ("GatherND", numpy.array([[0, 3]]), []), ("GatherND", numpy.array([[-3, 0]]), []),
                                 ("GatherElements", numpy.array([[5, 0, 0]]), []),
                                 ("ScatterND", numpy.array([[9, 0]]), [numpy.ones(1, numpy.float32)]),
                                 ("ScatterElements", numpy.array([[-7]]), [numpy.ones((1, 1), numpy.float32)])):
            names = ["x", "i", "u"][:2 + len(extra)]
            model = model_of([node(op, names)], [value("x"), value("i", INT64, index.shape), value("u", shape=extra[0].shape if extra else ())][:len(names)],
                             [value("y", shape=None)])
            with self.subTest(op, index=index):
                self.refuse_run(model, [x, index, *extra], "INVALID_ARGUMENT|OUT_OF_RANGE")
        for step in (0, -2**63):
            names = ["x", "b", "e", "a", "s"]
            model = model_of([node("Slice", names)], [value("x"), *(value(n, INT64, (1,)) for n in names[1:])], [value("y", shape=None)])
            answer = self.run_model(model, [x, ints(0), ints(2), ints(0), ints(step)])
            self.assertEqual(isinstance(answer, str), step == 0)
        extractor = model_of([helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml")],
                             [value("x"), value("i", INT64, (1,))], [value("y", shape=None)])
        extractor.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
        self.refuse_run(extractor, [x, ints(-1)], "outside")

    def test_o17_integer_arithmetic(self):
        low = -2**31
        for op, a, b in (("Div", 5, 0), ("Div", low, -1), ("Mod", 5, 0), ("Mod", low, -1), ("Pow", 7, 1000), ("Mul", low, low), ("Sub", low, 1)):
            model = model_of([node(op, ["a", "b"])], [value(n, TensorProto.INT32, (1,)) for n in "ab"], [value("y", TensorProto.INT32, None)])
            with self.subTest(op, a=a, b=b):
                self.run_model(model, [numpy.array([a], numpy.int32), numpy.array([b], numpy.int32)])
        shift = model_of([node("BitShift", ["a", "b"], direction="LEFT")], [value(n, TensorProto.UINT8, (1,)) for n in "ab"],
                         [value("y", TensorProto.UINT8, None)])
        self.assertEqual(self.run_model(shift, [numpy.array([3], numpy.uint8), numpy.array([200], numpy.uint8)])[0], 0)
        for number in (float("nan"), 1e30, float("-inf")):
            for kind in (TensorProto.INT8, TensorProto.INT64, TensorProto.UINT32, TensorProto.BOOL):
                self.run_model(one("Cast", ["x"], shape=(1,), out=kind, to=kind), [numpy.array([number], numpy.float32)])

    def test_o18_attributes_against_tensors(self):
        weights = [("w", numpy.ones((1, 16, 3), numpy.float32)), ("r", numpy.ones((1, 16, 4), numpy.float32))]
        for attributes in ({"hidden_size": 5}, {"hidden_size": 4, "direction": "bidirectional"}, {"hidden_size": HUGE}, {"hidden_size": -4},
                           {"hidden_size": 4, "activations": ["Sigmoid"]}, {"hidden_size": 4, "direction": "sideways"}):
            with self.subTest(**attributes):
                self.refuse(one("LSTM", ["x", "w", "r"], constants=weights, shape=(2, 1, 3), **attributes))
        scales = [("s", numpy.ones(3, numpy.float32))]
        quantize = one("QuantizeLinear", ["x", "s"], constants=scales, shape=(2, 4), out=TensorProto.UINT8, axis=1)
        self.refuse_run(quantize, [numpy.ones((2, 4), numpy.float32)], "INVALID_ARGUMENT")
        attention = model_of([node("Attention", ["x", "x", "x"], q_num_heads=0, kv_num_heads=3)], [value("x", shape=(1, 2, 8))],
                             [value("y", shape=None)], opset=23)
        self.refuse_run(attention, [numpy.ones((1, 2, 8), numpy.float32)], "heads")

    def test_o19_nesting(self):
        def nested(depth):
            """Conditions in conditions, written by hand: protobuf's own libraries stop at 33."""
            leaf = graph = helper.make_graph([helper.make_node("Identity", ["x"], ["r"])], "g", [], [value("r", shape=None)]).SerializeToString()
            output = helper.make_graph([], "g", [], [value("r", shape=None)]).SerializeToString()
            for _ in range(depth):
                attribute = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"
                other = field(1, b"else_branch") + field(6, leaf) + b"\xa0\x01\x05"
                node = field(1, b"c") + field(2, b"r") + field(4, b"If") + field(5, attribute) + field(5, other)
                graph = field(1, node) + output
            for entry in (value("x"), value("c", TensorProto.BOOL, ())):
                graph += field(11, entry.SerializeToString())
            return b"\x08\x0a" + field(7, graph) + field(8, helper.make_opsetid("", 21).SerializeToString())
        self.assertEqual(self.check(nested(4)).returncode, 0)
        self.refuse(nested(40), "deep|nest|level")
        self.refuse(nested(5000), "deep|nest|level")
        captured = helper.make_graph([helper.make_node("Identity", ["nowhere"], ["r"])], "b", [], [value("r", shape=None)])
        self.refuse(model_of([node("If", ["c"], then_branch=captured, else_branch=captured)],
                             [value("c", TensorProto.BOOL, ())], [value("y", shape=None)]), "nowhere")

    def test_o20_functions(self):
        def function(name, calls):
            nodes = [helper.make_node(callee, [f"v{i}"], [f"v{i + 1}"], domain="f" if callee != "Relu" else "") for i, callee in enumerate(calls)]
            return helper.make_function("f", name, ["v0"], [f"v{len(calls)}"], nodes,
                                        [helper.make_opsetid("", 21), helper.make_opsetid("f", 1)])
        def calling(name, functions):
            model = one(name, ["x"], domain="f")
            model.functions.extend(functions)
            model.opset_import.append(helper.make_opsetid("f", 1))
            return model
        self.assertEqual(self.check(calling("A", [function("A", ["Relu"])])).returncode, 0)
        self.refuse(calling("A", [function("A", ["A"])]), "recurs|itself")
        self.refuse(calling("A", [function("A", ["B"]), function("B", ["A"])]), "recurs|itself")
        exponential = [function(f"F{i}", [f"F{i + 1}"] * 10) for i in range(12)] + [function("F12", ["Relu"])]
        self.refuse(calling("F0", exponential), "RESOURCE_EXHAUSTED")

    def test_o21_long_and_wide(self):
        chain = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(50_000)]
        self.assertEqual(self.check(model_of(chain, [value("v0")], [value("v50000")])).returncode, 0)
        wide = model_of([node("Concat", ["x"] * 1_000_000, axis=0)], [value("x")], [value("y", shape=None)])
        self.assertEqual(self.check(wide).returncode, 0)
        # Nodes cost more than their bytes: a million of them are refused before they are all read.
        relu = b"".join(field(1, field(1, b"v%d" % i) + field(2, b"v%d" % (i + 1)) + field(4, b"Relu")) for i in range(1_000_000))
        graph = relu + model_of([], [value("v0")], [value("v1000000")]).graph.SerializeToString()
        self.refuse(b"\x08\x0a" + field(8, b"\x10\x15") + field(7, graph), "RESOURCE_EXHAUSTED")

    def external(self, **entries):
        tensor = TensorProto(name="c", data_type=FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
        for key, text in entries.items():
            tensor.external_data.add(key=key, value=text)
        return one("Add", ["x", "c"], constants=[tensor])

    def test_o22_external_locations(self):
        outside = pathlib.Path(tempfile.gettempdir()) / "onnxd-outside.bin"
        outside.write_bytes(b"\0" * 24)
        for location in ("../onnxd-outside.bin", "a/../../onnxd-outside.bin", str(outside), "C:\\x", "\\\\host\\x", "", ".", "..", "/dev/zero",
                         "/proc/self/mem", "n" * 5000, "*/_ORT_MEM_ADDR_/*", "missing.bin", "a\0b"):
            with self.subTest(location=location[:40]):
                self.refuse(self.external(location=location))
        outside.unlink()

    def test_o22_external_files_that_are_no_files(self):
        for make in (lambda path: os.mkfifo(path), lambda path: path.mkdir()):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder)
                make(path / "w.bin")
                onnx.save(self.external(location="w.bin"), path / "model.onnx")
                self.assertEqual(self.onnxd("check", path / "model.onnx", timeout=20).returncode, 1)

    def test_o23_links(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "real.bin").write_bytes(b"\0" * 24)
            (path / "sub").mkdir()
            (path / "linked").symlink_to(path / "sub")
            (path / "sub" / "w.bin").write_bytes(b"\0" * 24)
            (path / "link.bin").symlink_to("real.bin")
            (path / "loop.bin").symlink_to("loop.bin")
            for location in ("link.bin", "loop.bin", "linked/w.bin"):
                onnx.save(self.external(location=location), path / "model.onnx")
                self.assertEqual(self.onnxd("check", path / "model.onnx").returncode, 1, location)
            onnx.save(self.external(location="sub/w.bin"), path / "model.onnx")
            self.assertEqual(self.onnxd("check", path / "model.onnx").returncode, 0)

    def test_o24_external_ranges(self):
        data = [("w.bin", b"\0" * 64)]
        self.assertEqual(self.check(self.external(location="w.bin", offset="7", length="24"), data).returncode, 0)
        for entries in ({"offset": "-1"}, {"offset": "1e3"}, {"offset": "x"}, {"offset": "60"}, {"offset": str(2**63)}, {"length": "-1"},
                        {"length": "23"}, {"length": "1000"}, {"offset": str(2**64 - 8), "length": "24"}):
            with self.subTest(**entries):
                self.refuse(self.external(location="w.bin", **entries), files=data)

    def test_o25_external_data_in_attributes(self):
        tensor = TensorProto(data_type=FLOAT, dims=[2, 3], data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="../x")
        self.refuse(model_of([node("Constant", [], value=tensor)], [], [value("y")]))

    def test_o26_files_that_change_while_their_model_is_served(self):
        tensor = self.external(location="w.bin").graph.initializer[0]
        model = model_of([node("Add", ["x", "c"])], [value("x", shape=("batch", 3))], [value("y", shape=None)], [tensor])
        model.graph.initializer[0].dims[:] = [1, 3]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "w.bin").write_bytes(numpy.array([1, 2, 3], numpy.float32).tobytes())
            onnx.save(model, path / "model.onnx")

            def predict(rows):
                body = json.dumps({"input": [[0, 0, 0]] * rows}).encode()
                with urllib.request.urlopen(served.url + "/predict", data=body) as answer:
                    return json.load(answer)["prediction"]

            with daemon.Daemon(path / "model.onnx") as served:
                self.assertEqual(predict(1), [[1, 2, 3]])
                os.truncate(path / "w.bin", 0)
                os.truncate(path / "model.onnx", 0)
                self.assertEqual(predict(2), [[1, 2, 3]] * 2)  # another shape, another plan
                (path / "w.bin").unlink()
                self.assertEqual(predict(3), [[1, 2, 3]] * 3)

    def test_o27_sparse_initializers(self):
        def sparse(indices, values, dims):
            model = one("Add", ["x", "s"])
            tensor = model.graph.sparse_initializer.add(dims=dims)
            tensor.values.CopyFrom(numpy_helper.from_array(numpy.array(values, numpy.float32), "s"))
            tensor.indices.CopyFrom(numpy_helper.from_array(numpy.array(indices, numpy.int64), "i"))
            return model
        good = sparse([1, 4], [5, 6], [2, 3])
        self.assertEqual(self.run_model(good, [numpy.zeros((2, 3), numpy.float32)]).tolist(), [[0, 5, 0], [0, 6, 0]])
        pairs = sparse([[0, 1], [1, 1]], [5, 6], [2, 3])
        self.assertEqual(self.run_model(pairs, [numpy.zeros((2, 3), numpy.float32)]).tolist(), [[0, 5, 0], [0, 6, 0]])
        for indices, values, dims in (([1, 9], [5, 6], [2, 3]), ([-1, 2], [5, 6], [2, 3]), ([1], [5, 6], [2, 3]), ([4, 1], [5, 6], [2, 3]),
                                      ([1, 1], [5, 6], [2, 3]), ([1, 2], [5, 6], [HUGE, HUGE]), ([[0, 7]], [5], [2, 3])):
            with self.subTest(indices=indices, dims=dims):
                self.refuse(sparse(indices, values, dims))

    def test_o28_strings(self):
        many = TensorProto(name="c", data_type=STRING, dims=[10**9])
        self.refuse(one("Identity", ["c"], constants=[many], out=STRING))

    def decode(self, data, **attributes):
        model = model_of([node("ImageDecoder", ["x"], **attributes)], [value("x", TensorProto.UINT8, (None,))],
                         [value("y", TensorProto.UINT8, None)])
        return self.run_model(model, [numpy.frombuffer(data, numpy.uint8)])

    def test_images(self):
        pixels = bytes(range(12))
        picture = b"P6 2 # two\n2 255\n" + pixels
        self.assertEqual(self.decode(picture).tolist(), numpy.frombuffer(pixels, numpy.uint8).reshape(2, 2, 3).tolist())
        self.assertEqual(self.decode(picture, pixel_format="BGR")[0, 0].tolist(), [2, 1, 0])
        self.assertEqual(self.decode(b"P1\n2 1\n01", pixel_format="Grayscale").tolist(), [[[255], [0]]])
        jpeg2000 = b"\0\0\0\x0cjP  \r\n\x87\n"
        for broken in (b"", b"x", picture[:-1], b"P6 100000 100000 255\n", b"P6 0 2 255\n", b"P5 1 1 99999\n\0", b"P3 1 1 255 1 2",
                       b"BM" + b"\xff" * 60, b"BM" + b"\0" * 60, b"\xff\xd8\xff\xe0 no picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 40,
                       b"II*\0" + b"\xff" * 40, b"RIFF\x10\0\0\0WEBPVP8 " + b"\xff" * 20, jpeg2000 + b"\xff" * 40, b"\xff\x4f\xff\x51" + b"\0" * 60):
            with self.subTest(data=broken[:20]):
                answer = self.decode(broken)
                self.assertIsInstance(answer, str)
                self.assertIn("does not decode", answer)

    def test_o30_large_sizes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            with open(path / "w.bin", "wb") as file:  # sparse on disk
                file.truncate((3 << 30) + 24)
                file.seek(3 << 30)
                file.write(numpy.arange(6, dtype=numpy.float32).tobytes())
            onnx.save(self.external(location="w.bin", offset=str(3 << 30), length="24"), path / "model.onnx")
            numpy.save(path / "x.npy", numpy.zeros((2, 3), numpy.float32))
            done = self.onnxd("run", path / "model.onnx", "--inputs", path, "--outputs", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(numpy_helper.to_array(onnx.load_tensor(path / "output_0.pb")).ravel().tolist(), list(range(6)))


    def test_o30_a_model_file_of_two_gigabytes(self):
        # W is written by hand, last in the file, so that its zeros are a hole on the disk.
        index = model_of([node("Gather", ["W", "i"])], [value("i", INT64, (1,))], [value("y", shape=None)]).graph
        for size in (2**31 - 1, 2**31 + 4096):
            elements = (size - 2048) // 4

            def head(padding):
                tensor = b"\x08" + varint(elements) + b"\x10\x01" + field(8, b"W") + b"\x4a" + varint(4 * elements)
                graph = index.SerializeToString() + b"\x2a" + varint(len(tensor) + 4 * elements) + tensor
                return (b"\x08\x0a" + field(6, b"d" * padding) + field(8, b"\x10\x15") + b"\x3a" +
                        varint(len(graph) + 4 * elements) + graph)

            padding = 1000
            padding += size - len(head(padding)) - 4 * elements
            with tempfile.TemporaryDirectory() as folder, self.subTest(size=size):
                path = pathlib.Path(folder)
                with open(path / "model.onnx", "wb") as file:
                    file.write(head(padding))
                    file.truncate(size)
                    file.seek(size - 4)
                    file.write(numpy.float32(42).tobytes())
                self.assertEqual((path / "model.onnx").stat().st_size, size)
                numpy.save(path / "i.npy", ints(elements - 1))
                done = self.onnxd("run", path / "model.onnx", "--inputs", path, "--outputs", path)
                if size >= 2**31:  # more than protobuf's own limit
                    self.assertIn("RESOURCE_EXHAUSTED", done.stderr)
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(numpy_helper.to_array(onnx.load_tensor(path / "output_0.pb")).tolist(), [42])


def varint(number):
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, data):
    """A protobuf field of bytes."""
    return varint(number << 3 | 2) + varint(len(data)) + data


if __name__ == "__main__":
    unittest.main()

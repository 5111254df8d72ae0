"""Contrib operators that are expanded into other operators, and experts, tokens and block tables,
give what onnxruntime gives."""

import math
import tempfile
import unittest

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import oracle
from test_contrib import Contrib as Base
from test_contrib import model_of, node

FLOAT, INT32, INT64, STRING, UINT8, INT8 = (
    TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.STRING, TensorProto.UINT8, TensorProto.INT8)


class ContribFunctions(unittest.TestCase):
    setUp = Base.setUp
    floats = Base.floats
    check = Base.check

    def bytes(self, *shape, dtype=numpy.uint8):
        info = numpy.iinfo(dtype)
        return self.random.integers(info.min, info.max, shape, endpoint=True).astype(dtype)

    def weights(self, *shape, dtype=numpy.int8):
        """Bytes whose products onnxruntime sums exactly."""
        if dtype == numpy.int8 and oracle.saturates():
            return self.random.integers(-64, 63, shape, endpoint=True).astype(dtype)
        return self.bytes(*shape, dtype=dtype)

    def run_node(self, op, inputs, outputs, constants=(), names=None, **options):
        """`inputs`: name -> array; `names`: the node's operands, "" for those left out."""
        tolerance = {key: options.pop(key) for key in ("rtol", "atol") if key in options}
        names = names or [*inputs, *dict(constants)]
        self.check(model_of([node(op, names, list(outputs), **options)], inputs, outputs, constants), inputs, **tolerance)

    def test_attention(self):
        batch, sequence, hidden, heads = 2, 5, 12, 3
        base = {"x": self.floats(batch, sequence, hidden), "w": self.floats(hidden, 3 * hidden) * 0.3,
                "b": self.floats(3 * hidden)}
        masks = {"none": None,
                 "keys": numpy.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], numpy.int32),
                 "queries and keys": self.random.integers(0, 2, (batch, sequence, sequence)).astype(numpy.int32),
                 "ends": numpy.array([3, 5], numpy.int32),
                 "ends and begins": numpy.array([5, 4, 1, 0], numpy.int32)}
        for name, mask in masks.items():
            for causal in (0, 1):
                with self.subTest(mask=name, causal=causal):
                    inputs = base if mask is None else {**base, "m": mask}
                    self.run_node("Attention", inputs, {"y": FLOAT}, num_heads=heads, unidirectional=causal)

    def test_attention_with_past_and_uneven_sizes(self):
        batch, sequence, hidden, heads, past = 2, 3, 8, 2, 4
        x, w, b = self.floats(batch, sequence, hidden), self.floats(hidden, 24) * 0.3, self.floats(24)
        inputs = {"x": x, "w": w, "b": b, "p": self.floats(2, batch, heads, past, 4)}
        self.run_node("Attention", inputs, {"y": FLOAT, "present": FLOAT}, names=["x", "w", "b", "", "p"],
                      num_heads=heads, unidirectional=1)
        biased = {"x": x, "w": w, "b": b, "a": self.floats(batch, heads, sequence, sequence)}
        self.run_node("Attention", biased, {"y": FLOAT}, names=["x", "w", "b", "", "", "a"], num_heads=heads, scale=0.3)
        uneven = {"x": x, "w": self.floats(hidden, 8 + 8 + 4) * 0.3, "b": self.floats(20)}
        self.run_node("Attention", uneven, {"y": FLOAT}, num_heads=heads, qkv_hidden_sizes=[8, 8, 4])

    def test_quantized_attention(self):
        for weight_type in (numpy.uint8, numpy.int8):
            inputs = {"x": self.bytes(2, 4, 8)}
            constants = [("w", self.weights(8, 24, dtype=weight_type)), ("b", self.floats(24)),
                         ("xs", numpy.array(0.02, numpy.float32)), ("ws", numpy.array(0.01, numpy.float32)),
                         ("m", numpy.array([3, 4], numpy.int32)), ("xz", numpy.array(120, numpy.uint8)),
                         ("wz", numpy.array(3, weight_type))]
            with self.subTest(weights=weight_type):
                self.run_node("QAttention", inputs, {"y": FLOAT}, constants, num_heads=2)

    def test_embeddings(self):
        ids = self.random.integers(0, 10, (2, 4)).astype(numpy.int32)
        segments = self.random.integers(0, 2, (2, 4)).astype(numpy.int32)
        inputs = {"i": ids, "s": segments}
        constants = [("word", self.floats(10, 8)), ("pos", self.floats(6, 8)), ("seg", self.floats(2, 8)),
                     ("g", self.floats(8)), ("b", self.floats(8))]
        outputs = {"y": FLOAT, "m": INT32}
        self.run_node("EmbedLayerNormalization", inputs, outputs, constants, epsilon=1e-5)
        mask = {**inputs, "mask": numpy.array([[1, 1, 0, 0], [1, 1, 1, 1]], numpy.int32)}
        names = ["i", "s", "word", "pos", "seg", "g", "b", "mask"]
        self.run_node("EmbedLayerNormalization", mask, {**outputs, "sum": FLOAT}, constants, names, epsilon=1e-5)
        self.run_node("EmbedLayerNormalization", {"i": ids}, {**outputs, "sum": FLOAT}, constants[:2] + constants[3:],
                      ["i", "", "word", "pos", "", "g", "b"], epsilon=1e-5)
        positions = {**mask, "at": self.random.integers(0, 6, (2, 4)).astype(numpy.int32)}
        self.run_node("EmbedLayerNormalization", positions, outputs, constants, [*names, "at"], epsilon=1e-5)

    def test_quantized_embeddings(self):
        inputs = {"i": self.random.integers(0, 10, (2, 4)).astype(numpy.int32),
                  "s": self.random.integers(0, 2, (2, 4)).astype(numpy.int32)}
        constants = [("word", self.bytes(10, 8)), ("pos", self.bytes(6, 8)), ("seg", self.bytes(2, 8)),
                     ("g", self.bytes(8)), ("b", self.bytes(8)), ("mask", numpy.ones((2, 4), numpy.int32))]
        constants += [(f"s{k}", numpy.array(0.01 * (k + 1), numpy.float32)) for k in range(5)]
        constants += [(f"z{k}", numpy.array(100 + k, numpy.uint8)) for k in range(5)]
        self.run_node("QEmbedLayerNormalization", inputs, {"y": FLOAT, "m": INT32}, constants, epsilon=1e-5)

    def test_experts(self):
        hidden, inner, experts, rows = 8, 16, 4, 5
        for activation, width, extra in (
                ("relu", inner, {}), ("silu", inner, {"normalize_routing_weights": 1}), ("gelu", inner, {}), ("identity", inner, {}),
                ("swiglu", 2 * inner, {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 7.0})):
            inputs = {"x": self.floats(rows, hidden), "r": self.floats(rows, experts)}
            constants = [("w1", self.floats(experts, width, hidden)), ("b1", self.floats(experts, width)),
                         ("w2", self.floats(experts, hidden, inner)), ("b2", self.floats(experts, hidden))]
            with self.subTest(activation=activation):
                self.run_node("MoE", inputs, {"y": FLOAT}, constants, k=2, activation_type=activation, **extra)

    def test_experts_with_a_gate(self):
        """Against numpy: onnxruntime multiplies by a third layer on GPUs alone."""
        hidden, inner, experts, rows, k = 8, 16, 4, 5, 2
        x, r = self.floats(rows, hidden), self.floats(rows, experts)
        w1, w3 = self.floats(experts, inner, hidden), self.floats(experts, inner, hidden)
        w2, b1, b3 = self.floats(experts, hidden, inner), self.floats(experts, inner), self.floats(experts, inner)
        silu = lambda z: z / (1 + numpy.exp(-z))
        softmax = numpy.exp(r) / numpy.exp(r).sum(1, keepdims=True)
        expected = numpy.zeros_like(x)
        for row in range(rows):
            for e in numpy.argsort(-r[row])[:k]:
                h = silu(w1[e] @ x[row] + b1[e]) * (w3[e] @ x[row] + b3[e])
                expected[row] += softmax[row, e] * (w2[e] @ h)
        inputs = {"x": x, "r": r}
        constants = [("w1", w1), ("b1", b1), ("w2", w2), ("w3", w3), ("b3", b3)]
        names = ["x", "r", "w1", "b1", "w2", "", "w3", "b3"]
        for activation in ("silu", "swiglu"):
            with self.subTest(activation=activation):
                model = model_of([node("MoE", names, ["y"], k=k, activation_type=activation)], inputs, {"y": FLOAT},
                                 constants)
                oracle.assert_same(self, model, inputs, rtol=1e-3, atol=1e-3, outputs=[expected])

    def test_quantized_experts_chosen_by_others_weights(self):
        hidden, inner, experts, rows = 32, 64, 3, 4
        inputs = {"x": self.floats(rows, hidden), "r": self.floats(rows, experts),
                  "rw": numpy.abs(self.floats(rows, experts))}
        constants = [("w1", self.bytes(experts, inner, hidden // 2)), ("s1", self.floats(experts, inner, 2) * 0.02),
                     ("w2", self.bytes(experts, hidden, inner // 2)), ("s2", self.floats(experts, hidden, 4) * 0.02),
                     ("z1", self.bytes(experts, inner, 1)), ("z2", self.bytes(experts, hidden, 2))]
        names = ["x", "r", "w1", "s1", "", "w2", "s2", "", "", "", "", "z1", "z2", "", "rw"]
        self.run_node("QMoE", inputs, {"y": FLOAT}, constants, names, k=2, block_size=16,
                      activation_type="silu", atol=5e-2)

    def test_quantized_experts(self):
        hidden, inner, experts, rows = 32, 64, 3, 4
        for bits in (4, 8):
            inputs = {"x": self.floats(rows, hidden), "r": self.floats(rows, experts)}
            constants = [("w1", self.bytes(experts, inner, hidden * bits // 8)), ("s1", self.floats(experts, inner) * 0.02),
                         ("w2", self.bytes(experts, hidden, inner * bits // 8)), ("s2", self.floats(experts, hidden) * 0.02)]
            with self.subTest(bits=bits):
                self.run_node("QMoE", inputs, {"y": FLOAT}, constants, ["x", "r", "w1", "s1", "", "w2", "s2"],
                              k=2, activation_type="silu", expert_weight_bits=bits, normalize_routing_weights=1, rtol=1e-2, atol=1e-2)

    def test_gather_of_blocks(self):
        indices = {"i": numpy.array([[0, 5], [-1, 9]], numpy.int64)}
        for bits, zeros in ((4, False), (4, True), (8, False), (8, True)):
            constants = [("d", self.bytes(6, 32 * bits // 8)), ("s", self.floats(6, 2))]
            if zeros:
                constants.append(("z", self.bytes(6, 2 * bits // 8)))
            with self.subTest(bits=bits, zeros=zeros):
                self.run_node("GatherBlockQuantized", indices, {"y": FLOAT}, constants,
                              ["d", "i", *[name for name, _ in constants[1:]]],
                              bits=bits, block_size=16, gather_axis=0, quantize_axis=1)

    def test_fused_gemm(self):
        inputs = {"a": self.floats(3, 4), "b": self.floats(5, 4), "c": self.floats(5)}
        for activation, extra in (("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Tanh", {}), ("Sigmoid", {}),
                                  ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4})):
            with self.subTest(activation=activation):
                self.run_node("FusedGemm", inputs, {"y": FLOAT}, activation=activation, transB=1, alpha=0.5, **extra)

    def test_older_names_of_standard_operators(self):
        x = self.floats(2, 3, 4)
        self.run_node("TransposeMatMul", {"a": self.floats(4, 3), "b": self.floats(4, 5)}, {"y": FLOAT}, transA=1, alpha=2.0)
        self.run_node("ExpandDims", {"x": x, "axis": numpy.array(-2, numpy.int32)}, {"y": FLOAT})
        self.run_node("Trilu", {"x": x}, {"y": FLOAT}, upper=0)
        self.run_node("Trilu", {"x": x, "k": numpy.array(1, numpy.int64)}, {"y": FLOAT})
        self.run_node("GatherND", {"x": x, "i": numpy.array([[0, 2], [1, 0]], numpy.int64)}, {"y": FLOAT})
        numbers = {name: numpy.array(value, numpy.float32) for name, value in (("s", 1.0), ("l", 5.0), ("d", 0.5))}
        self.run_node("Range", numbers, {"y": FLOAT})
        self.run_node("Pad", {"x": self.floats(2, 3), "p": numpy.array([1, 0, 0, 2], numpy.int64),
                              "v": numpy.array([3], numpy.float32)}, {"y": FLOAT})
        for metric in ("euclidean", "sqeuclidean"):
            self.run_node("CDist", {"a": self.floats(4, 3), "b": self.floats(5, 3)}, {"y": FLOAT}, metric=metric)
        self.run_node("NhwcMaxPool", {"x": self.bytes(1, 6, 6, 3)}, {"y": UINT8}, kernel_shape=[2, 2], strides=[2, 2])

    def test_quantized_layers(self):
        steps = [("xs", numpy.array(0.05, numpy.float32)), ("xz", numpy.array(100, numpy.uint8)),
                 ("ys", numpy.array(0.04, numpy.float32)), ("yz", numpy.array(90, numpy.uint8))]
        self.run_node("QLinearAveragePool", {"x": self.bytes(1, 2, 6, 6)}, {"y": UINT8}, steps, kernel_shape=[3, 3],
                      pads=[1, 1, 1, 1], atol=1)
        self.run_node("QLinearAveragePool", {"x": self.bytes(1, 6, 6, 2)}, {"y": UINT8}, steps, kernel_shape=[2, 2],
                      channels_last=1, atol=1)
        condition = self.random.random((2, 3)) < 0.5
        inputs = {"c": condition, "x": self.bytes(2, 3), "y": self.bytes(2, 3)}
        constants = [(name, value) for k in "xyz" for name, value in (
            (f"{k}s", numpy.array(0.02 + 0.01 * ord(k) % 0.03, numpy.float32)), (f"{k}z", numpy.array(100, numpy.uint8)))]
        self.run_node("QLinearWhere", inputs, {"o": UINT8}, constants,
                      ["c", "x", "xs", "xz", "y", "ys", "yz", "zs", "zz"], atol=1)

    def test_quantized_convolution(self):
        constants = [("xs", numpy.array(0.05, numpy.float32)), ("xz", numpy.array(100, numpy.uint8)),
                     ("w", self.weights(4, 3, 3, 3)), ("ws", numpy.array([0.01, 0.02, 0.03, 0.04], numpy.float32)),
                     ("wz", numpy.zeros(4, numpy.int8)), ("ys", numpy.array(0.7, numpy.float32)),
                     ("yz", numpy.array(120, numpy.uint8)), ("b", numpy.array([1, -200, 3000, 0], numpy.int32))]
        for last, shape in ((0, (2, 3, 7, 6)), (1, (2, 7, 6, 3))):
            with self.subTest(channels_last=last):
                self.run_node("QLinearConv", {"x": self.bytes(*shape)}, {"y": UINT8}, constants, channels_last=last,
                              pads=[1, 1, 1, 1], strides=[2, 1], atol=1)

    def test_bitsandbytes_codes(self):
        for quant_type in (0, 1):
            for n, k, block in ((5, 32, 16), (3, 7, 16)):
                constants = [("b", self.bytes((n * k + 1) // 2)), ("m", abs(self.floats((n * k + block - 1) // block)))]
                with self.subTest(quant_type=quant_type, n=n, k=k):
                    self.run_node("MatMulBnb4", {"x": self.floats(2, 3, k)}, {"y": FLOAT}, constants,
                                  N=n, K=k, block_size=block, quant_type=quant_type)

    def test_generation_and_images(self):
        self.run_node("Inverse", {"x": self.floats(2, 4, 4)}, {"y": FLOAT})
        ids = numpy.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4], [0, 1, 2, 3, 4]], numpy.int64)
        for size in (1, 2, 3, 6):
            self.run_node("NGramRepeatBlock", {"i": ids, "s": self.floats(3, 6)}, {"y": FLOAT}, ngram_size=size)
        grid = self.random.uniform(-1.2, 1.2, (1, 3, 4, 2)).astype(numpy.float32)
        for mode in ("bilinear", "nearest", "bicubic"):
            for padding in ("zeros", "border", "reflection"):
                self.run_node("GridSample", {"x": self.floats(1, 2, 5, 6), "g": grid}, {"y": FLOAT}, mode=mode,
                              padding_mode=padding, align_corners=1)
        x = numpy.array([2, 1, 1, 3, 4, 3], numpy.float32)
        self.run_node("Unique", {"x": x}, {"y": FLOAT, "i": INT64, "c": INT64})

    def test_what_onnxruntime_has_for_gpus_alone(self):
        def run(op, inputs, expected, outputs=("y",), domain="com.microsoft", opset=1, **options):
            model = model_of([helper.make_node(op, list(inputs), list(outputs), domain=domain, **options)], inputs,
                             {name: FLOAT for name in outputs})
            if domain != "com.microsoft":
                model.opset_import.append(helper.make_opsetid(domain, opset))
            with self.subTest(op, **options):
                oracle.assert_same(self, model, inputs, rtol=1e-4, atol=1e-5, outputs=expected)

        def softmax(x, axes):
            e = numpy.exp(x - x.max(axis=axes, keepdims=True))
            return e / e.sum(axis=axes, keepdims=True)

        def group_norm(x, gamma, beta, groups, silu):  # channels last
            grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
            mean, variance = grouped.mean((1, 3), keepdims=True), grouped.var((1, 3), keepdims=True)
            y = ((grouped - mean) / numpy.sqrt(variance + 1e-5)).reshape(x.shape) * gamma + beta
            return y / (1 + numpy.exp(-y)) if silu else y

        scores, mask = self.floats(2, 3, 4, 5), self.floats(2, 1, 1, 5)
        run("BiasSoftmax", {"x": scores, "m": mask}, [softmax(scores + mask, (3,))], axis=3, is_inner_broadcast=1)
        run("BiasSoftmax", {"x": scores, "m": mask}, [softmax(scores + mask, (2, 3))], axis=2, is_inner_broadcast=1)
        x, bias, skip = self.floats(2, 3, 8), self.floats(8), self.floats(2, 3, 8)
        run("BiasAdd", {"x": x, "b": bias, "s": skip}, [x + bias + skip])
        left, right = numpy.split(x + bias, 2, axis=-1)
        erf = numpy.vectorize(math.erf, otypes=[numpy.float32])
        run("BiasSplitGelu", {"x": x, "b": bias}, [left * 0.5 * right * (1 + erf(right / numpy.float32(math.sqrt(2))))])

        image, gamma, beta = self.floats(2, 3, 4, 8), self.floats(8), self.floats(8)
        for silu in (0, 1):
            expected = group_norm(image, gamma, beta, 4, silu)
            run("GroupNorm", {"x": image, "g": gamma, "b": beta}, [expected], activation=silu, groups=4)
            run("GroupNorm", {"x": numpy.moveaxis(image, 3, 1).copy(), "g": gamma, "b": beta},
                [numpy.moveaxis(expected, 3, 1)], activation=silu, groups=4, channels_last=0)
        for extra in (self.floats(2, 3, 4, 8), self.floats(2, 8), self.floats(2, 1, 1, 8)):
            total = image + (extra.reshape(2, 1, 1, 8) if extra.ndim == 2 else extra) + bias
            inputs = {"x": image, "g": gamma, "b": beta, "s": extra, "a": bias}
            run("SkipGroupNorm", inputs, [group_norm(total, gamma, beta, 2, 0), total], ("y", "t"), activation=0, groups=2)

        def last(y):
            return numpy.moveaxis(y, 1, 3)

        first = numpy.moveaxis(image, 3, 1).copy()
        weights = self.floats(4, 8, 2, 2)
        for op, more, options in (("Conv", {"w": weights}, {"strides": [1, 2]}), ("MaxPool", {}, {"kernel_shape": [2, 2]}),
                                  ("AveragePool", {}, {"kernel_shape": [2, 3]}), ("GlobalAveragePool", {}, {}),
                                  ("GlobalMaxPool", {}, {})):
            plain = model_of([helper.make_node(op, ["x", *more], ["y"], **options)], {"x": first, **more}, {"y": FLOAT})
            expected = oracle.expected_outputs(plain, {"x": first, **more})
            run(op, {"x": image, **more}, [last(expected[0])], domain="com.ms.internal.nhwc", opset=11, **options)

    def test_quantized_lstm(self):
        steps, size, hidden = 5, 6, 4
        for batch, directions, dtype, zero, per_column in ((2, 1, numpy.int8, 0, False), (1, 2, numpy.int8, 0, True),
                                                           (2, 2, numpy.uint8, 120, True), (1, 1, numpy.uint8, 131, False)):
            inputs = {"x": self.floats(steps, batch, size)}
            shape = (directions, 4 * hidden) if per_column else (directions,)
            scales, zeros = numpy.full(shape, 0.005, numpy.float32), numpy.full(shape, zero, dtype)
            constants = [("w", self.weights(directions, size, 4 * hidden, dtype=dtype)),
                         ("r", self.weights(directions, hidden, 4 * hidden, dtype=dtype)),
                         ("b", self.floats(directions, 8 * hidden) * 0.1),
                         ("ws", scales), ("wz", zeros), ("rs", scales), ("rz", zeros)]
            names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
            with self.subTest(batch=batch, directions=directions, dtype=dtype, per_column=per_column):
                self.run_node("DynamicQuantizeLSTM", inputs, {"y": FLOAT, "h": FLOAT, "c": FLOAT}, constants, names,
                              hidden_size=hidden, direction="bidirectional" if directions == 2 else "forward",
                              rtol=1e-2, atol=5e-3)

    def test_tokenizer(self):
        for texts, options in (
                (["a b  c", "de f"], {"separators": [" "]}),
                (["a b  c", "de f"], {"separators": [" "], "mark": 1}),
                ([["ab", ""], ["h\u00e9\u00e9", "x"]], {"separators": [""], "mark": 1}),
                (["aXbYYc,d", "q"], {"separators": ["X|Y+", ","]}),
                (["a1b22c", "--"], {"tokenexp": "[a-z]+"}),
                (["abcabc"], {"tokenexp": "a|ab"}),
                (["a1bb22c", "--"], {"tokenexp": "[a-z0-9]+", "mincharnum": 2}),
                (["ein zwei d", "x"], {"separators": [" "], "mincharnum": 2})):
            with self.subTest(texts=texts, **options):
                self.run_node("Tokenizer", {"x": numpy.array(texts, object)}, {"y": STRING},
                              **{"mark": 0, "mincharnum": 1, "pad_value": "#", **options})

    def test_hashes(self):
        for x in (numpy.array([1, -5, 2**31 - 1], numpy.int32), numpy.array([1.5, -2], numpy.float32),
                  numpy.array([2**40, 7], numpy.int64), numpy.array(["", "a", "hello", "hello!", "\u00fcber"], object)):
            for positive in (0, 1):
                with self.subTest(x=x, positive=positive):
                    self.run_node("MurmurHash3", {"x": x}, {"y": TensorProto.UINT32 if positive else INT32},
                                  seed=3, positive=positive)

    def test_doubles_where_no_kernel_takes_them(self):
        def doubles(*shape):
            return self.random.standard_normal(shape)
        for op, inputs, options in (
                ("LayerNormalization", (doubles(2, 3, 4), doubles(4), doubles(4)), {}),
                ("Gemm", (doubles(4, 3), doubles(5, 4), doubles(5)), {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
                ("Elu", (doubles(7),), {}), ("Softplus", (doubles(7),), {}),
                ("ThresholdedRelu", (doubles(7),), {})):
            names = [f"x{i}" for i in range(len(inputs))]
            graph = helper.make_graph(
                [helper.make_node(op, names, ["y"], **options)], "g",
                [helper.make_tensor_value_info(n, TensorProto.DOUBLE, x.shape) for n, x in zip(names, inputs)],
                [helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)])
            model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
            expected = ReferenceEvaluator(model).run(None, dict(zip(names, inputs)))
            with self.subTest(op):
                oracle.assert_same(self, model, dict(zip(names, inputs)), rtol=1e-9, atol=1e-12, outputs=expected)

    def saved_by_onnxruntime(self, model):
        """The model as onnxruntime saves it, optimized for this processor."""
        with tempfile.TemporaryDirectory() as folder:
            options = onnxruntime.SessionOptions()
            options.optimized_model_filepath = f"{folder}/optimized.onnx"
            options.log_severity_level = 4
            onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return onnx.load(options.optimized_model_filepath)

    def test_images_in_blocks_of_channels(self):
        x = {"x": self.floats(2, 3, 20, 22)}
        constants = [("w1", self.floats(32, 3, 3, 3)), ("b1", self.floats(32)), ("w2", self.floats(32, 1, 3, 3)),
                     ("w3", self.floats(64, 32, 1, 1)), ("w4", self.floats(64, 32, 3, 3)), ("w5", self.floats(32, 64, 1, 1)),
                     ("w6", self.floats(24, 32, 1, 1)), ("scales", numpy.array([1, 1, 2, 2], numpy.float32))]
        nodes = [helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1] * 4), helper.make_node("Relu", ["c1"], ["r1"]),
                 helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
                 helper.make_node("Conv", ["p1", "w2"], ["c2"], group=32, pads=[1] * 4),
                 helper.make_node("Conv", ["c2", "w3"], ["c3"]), helper.make_node("Clip", ["c3", "zero", "six"], ["k3"]),
                 helper.make_node("Conv", ["k3", "w4"], ["c4"], group=2, pads=[1] * 4),
                 helper.make_node("Conv", ["c4", "w5"], ["c5"]), helper.make_node("Add", ["c5", "p1"], ["s5"]),
                 helper.make_node("Relu", ["s5"], ["r5"]),
                 helper.make_node("AveragePool", ["r5"], ["p5"], kernel_shape=[3, 3], pads=[1] * 4),
                 helper.make_node("Resize", ["p5", "", "scales"], ["u5"], coordinate_transformation_mode="asymmetric",
                                  nearest_mode="floor"),
                 helper.make_node("Conv", ["u5", "w6"], ["c6"]), helper.make_node("GlobalAveragePool", ["c6"], ["y"]),
                 helper.make_node("GlobalMaxPool", ["c6"], ["z"])]
        constants += [("zero", numpy.array(0, numpy.float32)), ("six", numpy.array(6, numpy.float32))]
        saved = self.saved_by_onnxruntime(model_of(nodes, x, {"y": FLOAT, "z": FLOAT}, constants))
        blocked = {node.op_type for node in saved.graph.node if node.domain == "com.microsoft.nchwc"}
        self.assertLessEqual({"Conv", "MaxPool", "AveragePool", "Upsample", "ReorderOutput"}, blocked)
        self.check(saved, x)


if __name__ == "__main__":
    unittest.main()

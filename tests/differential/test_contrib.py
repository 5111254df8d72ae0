"""Contrib operators (com.microsoft) give what onnxruntime gives."""

import unittest

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

import oracle


def model_of(nodes, inputs, outputs, constants=(), opset=17):
    """`inputs`: name -> array (its type and shape are declared); `outputs`: name -> type."""
    graph = helper.make_graph(
        nodes, "contrib",
        [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
         for name, value in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants])
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, domain="com.microsoft", **attributes)


class Contrib(unittest.TestCase):
    def setUp(self):
        self.random = numpy.random.default_rng(7)

    def floats(self, *shape):
        return self.random.standard_normal(shape).astype(numpy.float32)

    def check(self, model, feeds, **tolerance):
        oracle.assert_same(self, model, feeds, **{"rtol": 1e-3, "atol": 1e-4, **tolerance})

    def test_matmul_nbits(self):
        for bits, block, zeros in ((4, 32, False), (4, 16, True), (8, 32, True)):
            n, k = 24, 96
            blocks = k // block
            constants = [("b", self.random.integers(0, 256, (n, blocks, block * bits // 8), numpy.uint8)),
                         ("s", self.floats(n * blocks) * 0.1)]
            names = ["x", "b", "s"]
            if zeros:
                width = (blocks * bits + 7) // 8
                constants.append(("z", self.random.integers(0, 256, n * width, numpy.uint8)))
                names.append("z")
            feeds = {"x": self.floats(2, 3, k)}
            model = model_of([node("MatMulNBits", names, ["y"], N=n, K=k, bits=bits, block_size=block)],
                             feeds, {"y": TensorProto.FLOAT}, constants)
            with self.subTest(bits=bits, block=block, zeros=zeros):
                self.check(model, feeds)

    def test_matmul_nbits_with_columns_in_another_order(self):
        n, k, block = 8, 64, 16
        constants = [("b", self.random.integers(0, 256, (n, k // block, block // 2), numpy.uint8)),
                     ("s", self.floats(n * k // block) * 0.1),
                     ("g", self.random.permutation(numpy.arange(k, dtype=numpy.int32) // block))]
        feeds = {"x": self.floats(3, k)}
        model = model_of([node("MatMulNBits", ["x", "b", "s", "", "g"], ["y"], N=n, K=k, bits=4, block_size=block)],
                         feeds, {"y": TensorProto.FLOAT}, constants)
        self.check(model, feeds)

    def test_integer_products_with_float_results(self):
        b = self.random.integers(0, 255, (16, 5), numpy.uint8)
        constants = [("b", b), ("bs", numpy.array([0.02], numpy.float32)), ("bz", numpy.array([120], numpy.uint8)),
                     ("bias", self.floats(5))]
        feeds = {"x": self.floats(4, 16)}
        self.check(model_of([node("DynamicQuantizeMatMul", ["x", "b", "bs", "bz", "bias"], ["y"])], feeds,
                            {"y": TensorProto.FLOAT}, constants), feeds)
        feeds = {"a": self.random.integers(0, 255, (4, 16), numpy.uint8)}
        constants += [("as", numpy.array([0.1], numpy.float32)), ("az", numpy.array([7], numpy.uint8))]
        self.check(model_of([node("MatMulIntegerToFloat", ["a", "b", "as", "bs", "az", "bz", "bias"], ["y"])],
                            feeds, {"y": TensorProto.FLOAT}, constants), feeds)

    def test_quantized_elementwise(self):
        for op in ("QLinearAdd", "QLinearMul"):
            for dtype in (numpy.uint8, numpy.int8):
                limits = numpy.iinfo(dtype)
                feeds = {"a": self.random.integers(limits.min, limits.max, (3, 1, 5), dtype),
                         "b": self.random.integers(limits.min, limits.max, (4, 5), dtype)}
                constants = [(name, numpy.array(value, numpy.float32))
                             for name, value in (("as", 0.1), ("bs", 0.05), ("cs", 0.2))]
                constants += [(name, numpy.array(value, dtype)) for name, value in (("az", 3), ("bz", 5), ("cz", 9))]
                kind = TensorProto.UINT8 if dtype is numpy.uint8 else TensorProto.INT8
                model = model_of([node(op, ["a", "as", "az", "b", "bs", "bz", "cs", "cz"], ["c"])], feeds,
                                 {"c": kind}, constants)
                with self.subTest(op=op, dtype=dtype):
                    self.check(model, feeds, atol=1.01)  # onnxruntime fuses the scales: ties may differ by one

    def test_quantized_concatenation(self):
        for dtype in (numpy.uint8, numpy.int8):
            limits = numpy.iinfo(dtype)
            feeds = {"a": self.random.integers(limits.min, limits.max, (2, 3, 4), dtype),
                     "b": self.random.integers(limits.min, limits.max, (2, 5, 4), dtype)}
            constants = [(name, numpy.array(value, numpy.float32))
                         for name, value in (("as", 0.1), ("bs", 0.05), ("cs", 0.2))]
            constants += [(name, numpy.array(value, dtype)) for name, value in (("az", 3), ("bz", 5), ("cz", 9))]
            kind = TensorProto.UINT8 if dtype is numpy.uint8 else TensorProto.INT8
            model = model_of([node("QLinearConcat", ["cs", "cz", "a", "as", "az", "b", "bs", "bz"], ["c"], axis=1)],
                             feeds, {"c": kind}, constants)
            with self.subTest(dtype=dtype):
                self.check(model, feeds, atol=1.01)  # ties may differ by one

    def test_skip_simplified_layer_normalization(self):
        feeds = {"x": self.floats(2, 3, 8), "skip": self.floats(2, 3, 8)}
        constants = [("gamma", self.floats(8)), ("bias", self.floats(8))]
        self.check(model_of([node("SkipSimplifiedLayerNormalization", ["x", "skip", "gamma", "bias"],
                                  ["y", "", "", "sum"], epsilon=1e-5)], feeds,
                            {"y": TensorProto.FLOAT, "sum": TensorProto.FLOAT}, constants), feeds)

    def test_rotary_embedding(self):
        angles = self.floats(32, 4)
        constants = [("cos", numpy.cos(angles)), ("sin", numpy.sin(angles))]
        for interleaved in (0, 1):
            for positions in (numpy.array([3]), self.random.integers(0, 32, (2, 5))):
                for x in (self.floats(2, 5, 24), self.floats(2, 3, 5, 8)):
                    feeds = {"x": x, "p": positions.astype(numpy.int64)}
                    model = model_of([node("RotaryEmbedding", ["x", "p", "cos", "sin"], ["y"],
                                           interleaved=interleaved)], feeds, {"y": TensorProto.FLOAT}, constants)
                    with self.subTest(interleaved=interleaved, positions=positions.shape, x=x.shape):
                        self.check(model, feeds)

    def test_multi_head_attention(self):
        batch, heads, size, queries, keys = 2, 3, 8, 4, 6
        hidden = heads * size
        base = {"q": self.floats(batch, queries, hidden), "k": self.floats(batch, keys, hidden),
                "v": self.floats(batch, keys, hidden)}
        bias = [("bias", self.floats(3 * hidden))]
        mask = (self.random.random((batch, keys)) < 0.7).astype(numpy.int32)
        mask[:, 0] = 1
        cases = {
            "plain": (["q", "k", "v"], {}, [], {}),
            "bias": (["q", "k", "v", "bias"], {}, bias, {}),
            "mask": (["q", "k", "v", "", "mask"], {"mask": mask}, [], {}),
            "scores": (["q", "k", "v", "", "", "s"], {"s": self.floats(1, heads, queries, keys)}, [], {}),
            "scale": (["q", "k", "v"], {}, [], {"scale": 0.3}),
        }
        for name, (names, more, constants, attributes) in cases.items():
            feeds = {**base, **more}
            model = model_of([node("MultiHeadAttention", names, ["y"], num_heads=heads, **attributes)], feeds,
                             {"y": TensorProto.FLOAT}, constants)
            with self.subTest(case=name):
                self.check(model, feeds)
        feeds = {"q": self.floats(batch, 1, hidden), "k": self.floats(batch, 1, hidden),
                 "v": self.floats(batch, 1, hidden), "pk": self.floats(batch, heads, 5, size),
                 "pv": self.floats(batch, heads, 5, size)}
        model = model_of([node("MultiHeadAttention", ["q", "k", "v", "", "", "", "pk", "pv"], ["y", "nk", "nv"],
                               num_heads=heads)], feeds,
                         {name: TensorProto.FLOAT for name in ("y", "nk", "nv")})
        self.check(model, feeds)

    def test_multi_head_attention_of_many_tokens(self):
        """More queries than are taken at a time, more heads than threads."""
        batch, heads, size = 2, 5, 16
        for queries, keys, past in ((130, 130, 0), (70, 70, 9), (1, 1, 200), (1, 37, 0)):
            value_size = size if past else 24  # onnxruntime has past values of the same size alone
            feeds = {"q": self.floats(batch, queries, heads * size), "k": self.floats(batch, keys, heads * size),
                     "v": self.floats(batch, keys, heads * value_size)}
            constants = [("bias", self.floats(heads * (2 * size + value_size)))]
            names, outputs = ["q", "k", "v", "bias"], ["y"]
            if past:
                feeds.update(pk=self.floats(batch, heads, past, size), pv=self.floats(batch, heads, past, value_size))
                names += ["", "", "pk", "pv"]
                outputs += ["nk", "nv"]
            for attributes in ({}, {"unidirectional": 1}) if queries == keys else ({},):
                model = model_of([node("MultiHeadAttention", names, outputs, num_heads=heads, **attributes)], feeds,
                                 {name: TensorProto.FLOAT for name in outputs}, constants)
                with self.subTest(queries=queries, keys=keys, past=past, **attributes):
                    self.check(model, feeds)

    def test_attention_of_the_standard(self):
        batch, heads, key_heads, size = 2, 6, 3, 16
        for queries, keys, past in ((70, 70, 0), (1, 1, 150), (5, 5, 60), (1, 33, 0)):
            feeds = {"q": self.floats(batch, queries, heads * size), "k": self.floats(batch, keys, key_heads * size),
                     "v": self.floats(batch, keys, key_heads * size)}
            all_keys, outputs = past + keys, ["y"]
            if past:
                feeds.update(pk=self.floats(batch, key_heads, past, size), pv=self.floats(batch, key_heads, past, size))
                outputs += ["nk", "nv"]
            flags = self.random.random((batch, 1, queries, all_keys)) < 0.7
            flags[..., 0] = True
            for mask in (None, flags, self.floats(queries, all_keys)):
                for causal in (0, 1) if keys == queries else (0,):
                    names = ["q", "k", "v", "" if mask is None else "mask", *(["pk", "pv"] if past else [])]
                    given = feeds if mask is None else {**feeds, "mask": mask}
                    attention = helper.make_node("Attention", names, outputs, q_num_heads=heads, kv_num_heads=key_heads,
                                                 is_causal=causal)
                    model = model_of([attention], given, {name: TensorProto.FLOAT for name in outputs}, opset=23)
                    with self.subTest(queries=queries, keys=keys, past=past, causal=causal,
                                      mask=None if mask is None else str(mask.dtype)):
                        self.check(model, given)

    def group_query(self, sequence, past, capacity, **attributes):
        batch, heads, key_heads, size = 2, 4, 2, 16
        total = past + sequence
        feeds = {"q": self.floats(batch, sequence, heads * size),
                 "k": self.floats(batch, sequence, key_heads * size),
                 "v": self.floats(batch, sequence, key_heads * size),
                 "pk": self.floats(batch, key_heads, capacity, size),
                 "pv": self.floats(batch, key_heads, capacity, size),
                 "len": numpy.full(batch, total - 1, numpy.int32), "total": numpy.array(total, numpy.int32)}
        names = ["q", "k", "v", "pk", "pv", "len", "total"]
        constants = []
        if attributes.get("do_rotary"):
            angles = self.floats(64, size // 2)
            constants = [("cos", numpy.cos(angles)), ("sin", numpy.sin(angles))]
            names += ["cos", "sin"]
        model = model_of([node("GroupQueryAttention", names, ["y", "nk", "nv"], num_heads=heads,
                               kv_num_heads=key_heads, **attributes)], feeds,
                         {name: TensorProto.FLOAT for name in ("y", "nk", "nv")}, constants)
        self.check(model, feeds)

    def test_group_query_attention(self):
        for case in ({"sequence": 1, "past": 5, "capacity": 5},
                     {"sequence": 1, "past": 5, "capacity": 5, "do_rotary": 1},
                     {"sequence": 1, "past": 5, "capacity": 5, "do_rotary": 1, "rotary_interleaved": 1},
                     {"sequence": 1, "past": 7, "capacity": 7, "local_window_size": 3},
                     {"sequence": 1, "past": 7, "capacity": 7, "softcap": 5.0},
                     {"sequence": 1, "past": 7, "capacity": 7, "scale": 0.2, "smooth_softmax": 1},
                     {"sequence": 1, "past": 300, "capacity": 300},
                     {"sequence": 130, "past": 0, "capacity": 130},
                     {"sequence": 130, "past": 0, "capacity": 130, "local_window_size": 50}):
            with self.subTest(**case):
                self.group_query(**case)

    def test_group_query_attention_normalizes_its_heads(self):
        """As with heads that were normalized before: onnxruntime does it on GPUs alone."""
        batch, sequence, heads, key_heads, size = 2, 3, 4, 2, 16
        weights = {"qn": self.floats(size), "kn": self.floats(size)}
        feeds = {"q": self.floats(batch, sequence, heads * size), "k": self.floats(batch, sequence, key_heads * size),
                 "v": self.floats(batch, sequence, key_heads * size), "len": numpy.full(batch, sequence - 1, numpy.int32),
                 "total": numpy.array(sequence, numpy.int32)}
        angles = self.floats(64, size // 2)
        constants = [("cos", numpy.cos(angles)), ("sin", numpy.sin(angles)), *weights.items()]
        names = ["q", "k", "v", "", "", "len", "total", "cos", "sin"]
        attributes = {"num_heads": heads, "kv_num_heads": key_heads, "do_rotary": 1}
        outputs = {name: TensorProto.FLOAT for name in ("y", "nk", "nv")}

        def normalized(x, weight):
            x = x.reshape(batch, sequence, -1, size)
            return (x / numpy.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight).reshape(batch, sequence, -1)

        plain = model_of([node("GroupQueryAttention", names, list(outputs), **attributes)], feeds, outputs, constants)
        before = {**feeds, "q": normalized(feeds["q"], weights["qn"]), "k": normalized(feeds["k"], weights["kn"])}
        expected = oracle.expected_outputs(plain, before)
        normalizing = model_of([node("GroupQueryAttention", [*names, "", "", "", "", "", "qn", "kn"], list(outputs),
                                     **attributes)], feeds, outputs, constants)
        self.check(normalizing, feeds, outputs=expected)


if __name__ == "__main__":
    unittest.main()

"""Contrib operators of sequences, signals and regions give what onnxruntime gives, or, where onnxruntime
has them on GPUs alone, what their definition in numpy gives."""

import math
import unittest

import numpy
import onnxruntime
from onnx import TensorProto

import oracle
from test_contrib import Contrib as Base
from test_contrib import model_of, node

FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def outputs_in_place(model, feeds, shared):
    """What onnxruntime computes when outputs lie where inputs lie; `shared`: output -> input."""
    session = onnxruntime.InferenceSession(model.SerializeToString())
    binding = session.io_binding()
    values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value.copy()) for name, value in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        if output.name in shared:
            binding.bind_ortvalue_output(output.name, values[shared[output.name]])
        else:
            binding.bind_output(output.name)
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


class ContribSequences(unittest.TestCase):
    setUp = Base.setUp
    floats = Base.floats

    def check(self, op, inputs, outputs, names=None, expected=None, **attributes):
        """`inputs`: name -> array; `outputs`: name -> type; `expected`: the outputs, else onnxruntime's."""
        model = model_of([node(op, names or list(inputs), list(outputs), **attributes)], inputs, outputs)
        oracle.assert_same(self, model, inputs, rtol=1e-3, atol=1e-4, outputs=expected)

    def test_linear_attention(self):
        batch, steps, key, value = 2, 4, 8, 6
        for query_heads, key_heads in ((2, 2), (4, 2), (2, 4)):
            for rule in ("linear", "gated", "delta", "gated_delta"):
                inputs = {"q": self.floats(batch, steps, query_heads * key),
                          "k": self.floats(batch, steps, key_heads * key) * 0.3,
                          "v": self.floats(batch, steps, key_heads * value),
                          "s": self.floats(batch, key_heads, key, value)}
                names = ["q", "k", "v", "s", "", ""]
                if "gated" in rule:
                    inputs["d"] = -numpy.abs(self.floats(batch, steps, key_heads))
                    names[4] = "d"
                if "delta" in rule:
                    inputs["b"] = sigmoid(self.floats(batch, steps, key_heads))
                    names[5] = "b"
                while not names[-1]:
                    names.pop()
                with self.subTest(rule=rule, heads=(query_heads, key_heads)):
                    self.check("LinearAttention", inputs, {"y": FLOAT, "present": FLOAT}, names, update_rule=rule,
                               q_num_heads=query_heads, kv_num_heads=key_heads)

    def check_window(self, op, x, axis, start, rest, **call):
        """state_window, which onnxruntime has on GPUs alone: its states after each step, one behind the other.
        `x`: inputs along `axis`; `start`: the state before; `rest`: inputs between those and the state."""
        steps, outputs, states = next(iter(x.values())).shape[axis], {"y": FLOAT, "present": FLOAT}, []
        for end in range(1, steps + 1):
            part = {name: value.take(range(end), axis) for name, value in x.items()}
            inputs = {**part, **rest, "s": start}
            y, state = oracle.expected_outputs(model_of([node(op, list(inputs), list(outputs), **call)], inputs, outputs),
                                               inputs)
            states.append(state)
        for window in (2, steps + 2):
            past = self.floats(window, *start.shape)
            past[-1] = start
            kept = numpy.stack([numpy.zeros_like(start)] * max(window - steps, 0) + states[-window:])
            with self.subTest(window=window):
                self.check(op, {**x, **rest, "s": past}, outputs, expected=[y, kept], state_window=window, **call)

    def test_linear_attention_returns_its_last_states(self):
        x = {name: self.floats(1, 4, 8) for name in "qkv"}
        self.check_window("LinearAttention", x, 1, self.floats(1, 2, 4, 4), {}, update_rule="linear", q_num_heads=2,
                          kv_num_heads=2)

    def test_causal_convolution(self):
        taps, channels, length = 3, 4, 5
        for activation in ("none", "silu"):
            for dilation in (1, 2):
                for last in (0, 1):
                    held = (taps - 1) * dilation
                    turn = (lambda x: x.transpose(0, 2, 1).copy()) if last else (lambda x: x)
                    inputs = {"x": turn(self.floats(2, channels, length)), "w": self.floats(channels, 1, taps),
                              "b": self.floats(channels), "s": turn(self.floats(2, channels, held))}
                    with self.subTest(activation=activation, dilation=dilation, channels_last=last):
                        self.check("CausalConvWithState", inputs, {"y": FLOAT, "present": FLOAT},
                                   activation=activation, dilation=dilation, channels_last=last)

    def test_causal_convolution_returns_its_last_states(self):
        self.check_window("CausalConvWithState", {"x": self.floats(2, 4, 5)}, 2, self.floats(2, 4, 2),
                          {"w": self.floats(4, 1, 3), "b": self.floats(4)})

    def test_sparse_attention(self):
        batch, heads, key_heads, size, block, blocks = 2, 4, 2, 16, 16, 4
        longest = block * blocks
        rows = numpy.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], numpy.int32)
        columns = numpy.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], numpy.int32)
        angles = self.floats(longest, size // 2)
        for sequence, past in ((40, 0), (1, 37)):
            for rotary in (0, 1):
                inputs = {"q": self.floats(batch, sequence, heads * size),
                          "k": self.floats(batch, sequence, key_heads * size),
                          "v": self.floats(batch, sequence, key_heads * size),
                          "pk": self.floats(batch, key_heads, longest, size),
                          "pv": self.floats(batch, key_heads, longest, size), "rows": rows, "columns": columns,
                          "total": numpy.array(past + sequence, numpy.int32),
                          "lengths": numpy.full(batch, past + sequence, numpy.int32)}
                if rotary:
                    inputs |= {"cos": numpy.cos(angles), "sin": numpy.sin(angles)}
                with self.subTest(sequence=sequence, rotary=rotary):
                    call = node("SparseAttention", list(inputs), ["y", "k_out", "v_out"], num_heads=heads,
                                kv_num_heads=key_heads, sparse_block_size=block, do_rotary=rotary)
                    model = model_of([call], inputs, {"y": FLOAT, "k_out": FLOAT, "v_out": FLOAT})
                    expected = outputs_in_place(model, inputs, {"k_out": "pk", "v_out": "pv"})
                    oracle.assert_same(self, model, inputs, rtol=1e-3, atol=1e-4, outputs=expected)

    def test_crop_and_resize(self):
        inputs = {"x": self.floats(2, 3, 7, 9),
                  "rois": numpy.array([[0, 0, 1, 1], [0.1, 0.3, 0.8, 0.9], [0.9, 0.2, 0.1, 0.4], [-0.2, 0, 1.3, 1]],
                                      numpy.float32),
                  "batch": numpy.array([0, 1, 1, 0], numpy.int32), "size": numpy.array([4, 5], numpy.int32)}
        for mode in ("bilinear", "nearest"):
            for size in ((4, 5), (1, 1)):
                inputs["size"] = numpy.array(size, numpy.int32)
                with self.subTest(mode=mode, size=size):
                    self.check("CropAndResize", inputs, {"y": FLOAT}, mode=mode, extrapolation_value=0.5)

    def test_word_embedding(self):
        words = self.random.integers(1, 10, (4, 6)).astype(numpy.int32)
        words[0, 4:] = 0
        words[1, 1:] = 0
        inputs = {"s": words, "w": self.floats(5, 1, 3, 4), "b": self.floats(5), "c": self.floats(10, 4)}
        self.check("WordConvEmbedding", inputs, {"y": FLOAT}, embedding_size=5, conv_window_size=3, char_embedding_size=4)

    def test_dynamic_time_warping(self):
        for shape in ((1, 6, 9), (5, 5), (1, 1, 4), (7, 1)):
            with self.subTest(shape=shape):
                self.check("DynamicTimeWarping", {"x": self.floats(*shape)}, {"y": INT32})

    def test_convolution_whose_pads_are_an_input(self):
        inputs = {"x": self.floats(1, 2, 4, 5), "w": self.floats(2, 3, 3, 3),
                  "p": numpy.array([1, 0, 1, 2], numpy.int64), "b": self.floats(3)}
        self.check("ConvTransposeWithDynamicPads", inputs, {"y": FLOAT}, strides=[2, 2], kernel_shape=[3, 3],
                   output_padding=[1, 0])

    def test_rotary_embedding_in_three_dimensions(self):
        angles = self.floats(32, 4)
        for layout in (0, 1):
            for x in (self.floats(2, 5, 24), self.floats(2, 3, 5, 8)):
                inputs = {"x": x, "p": self.random.integers(0, 32, (3, 2, 5)), "cos": numpy.cos(angles),
                          "sin": numpy.sin(angles)}
                with self.subTest(layout=layout, shape=x.shape):
                    self.check("MRotaryEmbedding", inputs, {"y": FLOAT}, mrope_section=[2, 1, 1], mrope_layout=layout,
                               num_heads=3, rotary_embedding_dim=8)

    def test_gates(self):
        x, y = self.floats(2, 3, 8), self.floats(2, 3, 8)
        self.check("GatedAdd", {"x": x, "y": y, "g": self.floats(2, 3, 1)}, {"z": FLOAT})
        self.check("ScaledSiLU", {"x": x}, {"z": FLOAT}, alpha=1.7)
        self.check("ScaledSiLU", {"x": x, "s": numpy.array(0.6, numpy.float32)}, {"z": FLOAT})
        for activation in ("silu", "sigmoid"):
            self.check("GatedRMSNorm", {"x": x, "s": self.floats(4), "g": y}, {"z": FLOAT}, activation=activation)

    def test_windows(self):
        for dim, size, step in ((-1, 3, 2), (1, 2, 1), (0, 2, 1)):
            with self.subTest(dim=dim, size=size, step=step):
                self.check("UnfoldTensor", {"x": self.floats(2, 4, 7)}, {"y": FLOAT}, dim=dim, size=size, step=step)

    def test_spectra(self):
        x = self.floats(2, 4, 6)
        spectrum = numpy.fft.rfft(x)
        parts = numpy.stack([spectrum.real, spectrum.imag], -1).astype(numpy.float32)
        self.check("Rfft", {"x": x}, {"y": FLOAT}, expected=[parts], signal_ndim=1, onesided=1, normalized=0)
        self.check("Irfft", {"x": parts}, {"y": FLOAT}, expected=[x], signal_ndim=1, onesided=1, normalized=0)
        plane = numpy.fft.rfft2(x)
        parts = numpy.stack([plane.real, plane.imag], -1).astype(numpy.float32)
        self.check("Rfft", {"x": x}, {"y": FLOAT}, expected=[parts], signal_ndim=2)
        self.check("Irfft", {"x": parts}, {"y": FLOAT}, expected=[x], signal_ndim=2)

    def test_complex_products(self):
        a, b = self.floats(3, 4, 2), self.floats(4, 2)
        number = lambda x: x[..., 0] + 1j * x[..., 1]
        for op, product in (("ComplexMul", number(a) * number(b)),
                            ("ComplexMulConj", number(a) * numpy.conj(number(b)))):
            expected = numpy.stack([product.real, product.imag], -1).astype(numpy.float32)
            self.check(op, {"a": a, "b": b}, {"c": FLOAT}, expected=[expected])

    def test_dropout_with_bias_at_inference(self):
        x, bias, residual = self.floats(2, 3, 4), self.floats(4), self.floats(2, 3, 4)
        self.check("BiasDropout", {"x": x, "b": bias, "r": residual}, {"y": FLOAT}, expected=[x + bias + residual])

    def test_product_with_gelu(self):
        x, w, bias = self.floats(2, 3, 4), self.floats(4, 5), self.floats(5)
        z = x @ w + bias
        gelu = 0.5 * z * (1 + numpy.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))
        self.check("GemmFastGelu", {"x": x, "w": w, "b": bias}, {"y": FLOAT}, expected=[gelu])

    def test_relative_position_bias(self):
        """Against the T5 of transformers, written again here: its table has the buckets in front."""
        buckets, heads, farthest, queries, keys = 8, 3, 20, 30, 30
        table = self.floats(buckets, heads)
        for both_ways in (0, 1):
            expected = numpy.zeros((1, heads, queries, keys), numpy.float32)
            for q in range(queries):
                for k in range(keys):
                    first, distance, own = 0, k - q, buckets
                    if both_ways:
                        own //= 2
                        first, distance = (own if distance > 0 else 0), abs(distance)
                    else:
                        distance = max(-distance, 0)
                    exact = own // 2
                    if distance >= exact:
                        far = math.log(distance / exact) / math.log(farthest / exact) * (own - exact)
                        distance = min(exact + int(far), own - 1)
                    expected[0, :, q, k] = table[first + distance]
            inputs = {"t": numpy.ascontiguousarray(table.T).reshape(buckets, heads),
                      "q": numpy.array([queries], numpy.int64), "k": numpy.array([keys], numpy.int64)}
            with self.subTest(both_ways=both_ways):
                self.check("RelativePositionBias", inputs, {"y": FLOAT}, expected=[expected], max_distance=farthest,
                           is_bidirectional=both_ways)

    def test_gated_relative_position_bias(self):
        batch, sequence, heads, size, depth = 2, 4, 3, 8, 6
        inputs = {"q": self.floats(batch, sequence, heads * size), "qb": self.floats(heads * size),
                  "r": self.floats(1, heads, sequence, sequence), "w": self.floats(size, depth), "b": self.floats(depth),
                  "e": self.floats(1, heads, 1, 1)}
        q = (inputs["q"] + inputs["qb"]).reshape(batch, sequence, heads, size).transpose(0, 2, 1, 3)
        gates = sigmoid((q @ inputs["w"] + inputs["b"]).reshape(batch, heads, sequence, 2, depth // 2).sum(-1))
        u, r = gates[..., :1], gates[..., 1:]
        expected = (u * (r * inputs["e"] - 1) + 2) * inputs["r"]
        self.check("GatedRelativePositionBias", inputs, {"y": FLOAT}, expected=[expected], num_heads=heads)

    # Three sequences of 1, 2 and 4 tokens in places for 4 each.
    counts = numpy.array([1, 2, 4], numpy.int32)
    offsets = numpy.array([[0, 4, 5, 8], [9, 10, 11, 1], [2, 3, 6, 7]], numpy.int32)
    sums = numpy.array([0, 1, 3, 7], numpy.int32)

    def test_padding(self):
        x = self.floats(3, 4, 5)
        tokens = x.reshape(12, 5)[self.offsets.flatten()[:7]]
        self.check("RemovePadding", {"x": x, "n": self.counts},
                   {"y": FLOAT, "offsets": INT32, "sums": INT32, "longest": INT32},
                   expected=[tokens, self.offsets, self.sums, numpy.array([4], numpy.int32)])
        padded = numpy.where(numpy.arange(4)[None, :, None] < self.counts[:, None, None], x, 0)
        self.check("RestorePadding", {"x": tokens, "o": self.offsets}, {"y": FLOAT}, expected=[padded])

    def test_packed_attention(self):
        """As attention over the sequences with their padding, which a mask hides."""
        hidden, heads = 8, 2
        x, w, b = self.floats(3, 4, hidden), self.floats(hidden, 3 * hidden), self.floats(3 * hidden)
        model = model_of([node("Attention", ["x", "w", "b", "n"], ["y"], num_heads=heads)],
                         {"x": x, "w": w, "b": b, "n": self.counts}, {"y": FLOAT})
        padded, = oracle.expected_outputs(model, {"x": x, "w": w, "b": b, "n": self.counts})
        kept = self.offsets.flatten()[:7]
        expected = padded.reshape(12, hidden)[kept]
        tokens = x.reshape(12, hidden)[kept]
        self.check("PackedAttention", {"x": tokens, "w": w, "b": b, "o": self.offsets, "s": self.sums}, {"y": FLOAT},
                   expected=[expected], num_heads=heads)
        q, k, v = numpy.split(tokens @ w, 3, axis=1)
        inputs = {"q": q, "k": k, "v": v, "b": b, "o": self.offsets, "s": self.sums}
        self.check("PackedMultiHeadAttention", inputs, {"y": FLOAT}, expected=[expected], num_heads=heads)
        lanes = numpy.stack([part.reshape(7, heads, hidden // heads) for part in (q, k, v)], 2)
        inputs = {"q": lanes, "b": b, "o": self.offsets, "s": self.sums}
        self.check("PackedMultiHeadAttention", inputs, {"y": FLOAT}, ["q", "", "", "b", "o", "s"], expected=[expected],
                   num_heads=heads)


if __name__ == "__main__":
    unittest.main()

"""GreedySearch, Sampling and BeamSearch give onnxruntime's tokens, with small decoders whose state matters."""

import unittest

import numpy
from onnx import TensorProto, helper, numpy_helper

import oracle

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
VOCABULARY, HEADS, SIZE, HIDDEN = 12, 2, 3, 6


def value(name, kind, *shape):
    return helper.make_tensor_value_info(name, kind, shape)


def ints(*values):
    return numpy.array(values, numpy.int32)


class Graphs:
    """Decoders that average what they remember: enough to tell rows, positions and masks apart."""

    def __init__(self, seed=5):
        random = numpy.random.default_rng(seed)
        floats = lambda *shape: (random.standard_normal(shape) * 1.5).astype(numpy.float32)
        self.weights = {"words": floats(VOCABULARY, HIDDEN), "places": floats(40, HIDDEN) * 0.3,
                        "out": floats(HIDDEN, VOCABULARY), "mix": floats(HIDDEN, HIDDEN), "enc": floats(VOCABULARY, HIDDEN)}
        self.weights |= {"heads": numpy.array([0, 0, HEADS, SIZE]), "merged": numpy.array([0, 0, HIDDEN]),
                         "two": numpy.array([2]), "zero": numpy.array([0]), "one": numpy.array([1]),
                         "axis1": numpy.array([1]), "axis3": numpy.array([3]),
                         "tiny": numpy.array(1e-6, numpy.float32)}

    def initializers(self, nodes):
        used = {name for node in nodes for name in node.input}
        return [numpy_helper.from_array(array, name) for name, array in self.weights.items() if name in used]

    def masked_mean(self, remembered, mask, result):
        """Of `remembered` [rows, heads, length, size] where mask [rows, length] is 1, as [rows, 1, hidden]."""
        make = helper.make_node
        return [make("Cast", [mask], ["mf"], to=FLOAT), make("Unsqueeze", ["mf", "axis13"], ["m4"]),
                make("Mul", [remembered, "m4"], ["kept"]), make("ReduceSum", ["kept", "axis2"], ["summed"], keepdims=1),
                make("ReduceSum", ["m4", "axis2"], ["count"], keepdims=1), make("Add", ["count", "tiny"], ["count1"]),
                make("Div", ["summed", "count1"], ["mean4"]), make("Transpose", ["mean4"], ["mean_t"], perm=[0, 2, 1, 3]),
                make("Reshape", ["mean_t", "merged"], [result])]

    def gpt(self):
        make = helper.make_node
        self.weights |= {"axis13": numpy.array([1, 3]), "axis2": numpy.array([2])}
        nodes = [make("Gather", ["words", "input_ids"], ["w"]), make("Gather", ["places", "position_ids"], ["p"]),
                 make("Add", ["w", "p"], ["x"]), make("Reshape", ["x", "heads"], ["x4"]),
                 make("Transpose", ["x4"], ["fresh"], perm=[0, 2, 1, 3]),
                 make("Unsqueeze", ["fresh", "zero"], ["f5"]), make("Concat", ["f5", "f5"], ["f52"], axis=0),
                 make("Concat", ["past_0", "f52"], ["present_0"], axis=3),
                 make("Gather", ["present_0", "zero"], ["keys5"], axis=0), make("Squeeze", ["keys5", "zero"], ["keys"]),
                 *self.masked_mean("keys", "attention_mask", "mean"), make("Add", ["x", "mean"], ["h"]),
                 make("MatMul", ["h", "mix"], ["hm"]), make("Tanh", ["hm"], ["ht"]),
                 make("MatMul", ["ht", "out"], ["logits"])]
        inputs = [value("input_ids", INT32, "rows", "length"), value("position_ids", INT32, "rows", "length"),
                  value("attention_mask", INT32, "rows", "total"), value("past_0", FLOAT, 2, "rows", HEADS, "past", SIZE)]
        outputs = [value("logits", FLOAT, "rows", "length", VOCABULARY),
                   value("present_0", FLOAT, 2, "rows", HEADS, "total", SIZE)]
        return helper.make_graph(nodes, "decoder", inputs, outputs, self.initializers(nodes))

    def t5(self):
        """Encoder and decoder; the encoder gives the first logits too."""
        make = helper.make_node
        self.weights |= {"axis13": numpy.array([1, 3]), "axis2": numpy.array([2])}
        self.weights["axis1s"] = numpy.array([1])
        split = lambda source, target: [make("Reshape", [source, "heads"], [f"{target}_r"]),
                                        make("Transpose", [f"{target}_r"], [target], perm=[0, 2, 1, 3])]
        head = [make("Add", ["x", "mean"], ["h0"]), make("Add", ["h0", "own"], ["h"]), make("MatMul", ["h", "mix"], ["hm"]),
                make("Tanh", ["hm"], ["ht"]), make("MatMul", ["ht", "out"], ["logits"])]
        own = lambda keys: [make("ReduceMean", [keys], ["own4"], axes=[2], keepdims=1),
                            make("Transpose", ["own4"], ["own_t"], perm=[0, 2, 1, 3]),
                            make("Reshape", ["own_t", "merged"], ["own"])]
        cross = [value("present_key_cross_0", FLOAT, "rows", HEADS, "source", SIZE),
                 value("present_value_cross_0", FLOAT, "rows", HEADS, "source", SIZE)]
        present = [value("present_key_self_0", FLOAT, "rows", HEADS, "total", SIZE),
                   value("present_value_self_0", FLOAT, "rows", HEADS, "total", SIZE)]
        logits = value("logits", FLOAT, "rows", "length", VOCABULARY)
        nodes = [make("Gather", ["enc", "encoder_input_ids"], ["encoder_hidden_states"]),
                 *split("encoder_hidden_states", "present_key_cross_0"),
                 make("Identity", ["present_key_cross_0"], ["present_value_cross_0"]),
                 *self.masked_mean("present_key_cross_0", "encoder_attention_mask", "mean"),
                 make("Gather", ["words", "decoder_input_ids"], ["x"]), *split("x", "present_key_self_0"),
                 make("Identity", ["present_key_self_0"], ["present_value_self_0"]), *own("present_key_self_0"), *head]
        encoder = helper.make_graph(
            nodes, "encoder",
            [value("encoder_input_ids", INT32, "rows", "source"), value("encoder_attention_mask", INT32, "rows", "source"),
             value("decoder_input_ids", INT32, "rows", "length")],
            [logits, value("encoder_hidden_states", FLOAT, "rows", "source", HIDDEN), *present, *cross],
            self.initializers(nodes))
        nodes = [make("Gather", ["words", "input_ids"], ["x"]), *split("x", "fresh"),
                 make("Concat", ["past_key_self_0", "fresh"], ["present_key_self_0"], axis=2),
                 make("Concat", ["past_value_self_0", "fresh"], ["present_value_self_0"], axis=2),
                 *own("present_key_self_0"), *self.masked_mean("past_key_cross_0", "encoder_attention_mask", "mean"), *head]
        past = [value(entry.name.replace("present", "past"), FLOAT, "rows", HEADS, "past", SIZE)
                for entry in (*present, *cross)]
        decoder = helper.make_graph(
            nodes, "decoder",
            [value("input_ids", INT32, "rows", 1), value("encoder_attention_mask", INT32, "rows", "source"), *past],
            [logits, *present], self.initializers(nodes))
        return encoder, decoder


def model_of(op, inputs, outputs, names, **attributes):
    node = helper.make_node(op, names, list(outputs), domain="com.microsoft", **attributes)
    graph = helper.make_graph(
        [node], "generation",
        [value(name, helper.np_dtype_to_tensor_dtype(array.dtype), *array.shape) for name, array in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()])
    imports = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


class Generation(unittest.TestCase):
    prompts = numpy.array([[0, 0, 3, 4], [5, 6, 7, 8], [0, 9, 2, 2]], numpy.int32)  # 0 is padding

    def check(self, op, inputs, outputs, names=None, **attributes):
        model = model_of(op, inputs, outputs, names or list(inputs), **attributes)
        expected = oracle.expected_outputs(model, inputs)
        oracle.assert_same(self, model, inputs, rtol=1e-4, atol=1e-4, outputs=expected)
        return expected

    def test_greedy_search(self):
        """Some row goes on to the end: behind what has ended everywhere onnxruntime leaves memory as it is."""
        for seed, eos in ((0, 1), (0, 7), (1, 2), (1, 11), (2, 1), (3, 2), (3, 8)):
            with self.subTest(seed=seed, eos=eos):
                tokens, = self.check("GreedySearch", {"ids": self.prompts, "longest": ints(12)}, {"tokens": INT32},
                                     decoder=Graphs(seed).gpt(), eos_token_id=eos, pad_token_id=0, model_type=0)
                self.assertTrue(tokens[:, -1].any(), "every row has ended")

    def test_rules_of_scores(self):
        inputs = {"ids": self.prompts, "longest": ints(14), "shortest": ints(9),
                  "repetition": numpy.array([1.8], numpy.float32), "vocabulary": ints(*([1] * 10 + [0, 1])),
                  "prefix": numpy.array([[1] * 12, [1, 1, 0] * 4, [0, 1, 1] * 4], numpy.int32)}
        names = list(inputs)
        cases = {"shortest": names[:3], "repetition": [*names[:2], "", "repetition"],
                 "vocabulary": [*names[:2], "", "", "vocabulary"], "all": names}
        for name, used in cases.items():
            with self.subTest(rules=name):
                given = {key: inputs[key] for key in used if key}
                self.check("GreedySearch", given, {"tokens": INT32}, used, decoder=Graphs(1).gpt(), eos_token_id=2,
                           pad_token_id=0, no_repeat_ngram_size=2 if name == "all" else 0)

    def test_given_mask(self):
        mask = numpy.array([[0, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]], numpy.int32)
        self.check("GreedySearch", {"ids": self.prompts, "longest": ints(10), "mask": mask}, {"tokens": INT32},
                   ["ids", "longest", "", "", "", "", "mask"], decoder=Graphs(2).gpt(), eos_token_id=1, pad_token_id=0)

    def test_sampling_from_one_token_is_greedy(self):
        graph = Graphs(3).gpt()
        inputs = {"ids": self.prompts, "longest": ints(10)}
        greedy, = oracle.expected_outputs(
            model_of("GreedySearch", inputs, {"tokens": INT32}, list(inputs), decoder=graph, eos_token_id=1,
                     pad_token_id=0), inputs)
        model = model_of("Sampling", inputs, {"tokens": INT32}, list(inputs), decoder=graph, eos_token_id=1,
                         pad_token_id=0, top_p=1e-6, min_tokens_to_keep=1, model_type=0)
        oracle.assert_same(self, model, inputs, outputs=[greedy])

    def check_beams(self, prompts, beams, returned, penalty, **attributes):
        inputs = {"ids": prompts, "longest": ints(11), "shortest": ints(1), "beams": ints(beams),
                  "returned": ints(returned), "penalty": numpy.array([penalty], numpy.float32)}
        self.check("BeamSearch", inputs, {"tokens": INT32, "scores": FLOAT}, eos_token_id=1, pad_token_id=0, **attributes)

    def check_every_way_of_beams(self, model):
        """Whether an entry may still improve onnxruntime asks the scores of another one, so without early
        stopping it sees one prompt at a time."""
        for beams, returned, penalty in ((1, 1, 1.0), (3, 1, 1.0), (4, 4, 0.6), (4, 2, 2.0)):
            with self.subTest(beams=beams, penalty=penalty):
                self.check_beams(self.prompts, beams, returned, penalty, early_stopping=1, **model)
                for prompt in self.prompts:
                    self.check_beams(prompt[None], beams, returned, penalty, early_stopping=0, **model)

    def test_beam_search(self):
        for seed in range(3):
            self.check_every_way_of_beams({"decoder": Graphs(seed).gpt(), "model_type": 0})

    def test_beam_search_behind_an_encoder(self):
        for seed in range(3):
            encoder, decoder = Graphs(seed).t5()
            self.check_every_way_of_beams({"encoder": encoder, "decoder": decoder, "model_type": 1,
                                           "decoder_start_token_id": 2})

    def refusal(self, op, inputs, **attributes):
        model = model_of(op, inputs, {"tokens": INT32}, list(inputs), eos_token_id=1, pad_token_id=0, **attributes)
        return oracle.refusal(model, inputs)

    def test_what_cannot_be_searched_is_refused(self):
        gpt = Graphs().gpt()
        encoder, _ = Graphs().t5()
        beams = {"ids": self.prompts, "longest": ints(9), "shortest": ints(1), "beams": ints(2), "returned": ints(3)}
        self.assertIn("max_length 3 for 4 tokens", self.refusal(
            "GreedySearch", {"ids": self.prompts, "longest": ints(3)}, decoder=gpt))
        self.assertIn("num_beams 2, num_return_sequences 3", self.refusal("BeamSearch", beams, decoder=gpt))
        self.assertIn("model_type and encoder do not fit", self.refusal("BeamSearch", beams, decoder=gpt, model_type=1))
        greedy = {"ids": self.prompts, "longest": ints(9)}
        self.assertIn("the decoder's input 'encoder_input_ids' is not supported",
                      self.refusal("GreedySearch", greedy, decoder=encoder))
        silent = helper.make_graph([], "decoder", [value("input_ids", INT32, "rows", "length")], [])
        self.assertIn("has no outputs", self.refusal("GreedySearch", greedy, decoder=silent))
        nodes = [helper.make_node("Cast", ["input_ids"], ["c"], to=FLOAT),
                 helper.make_node("Unsqueeze", ["c", "axis"], ["logits"])]
        flat = helper.make_graph(nodes, "decoder", [value("input_ids", INT32, "rows", "length")],
                                 [value("logits", FLOAT, 1, "rows", "length")],
                                 [numpy_helper.from_array(numpy.array([0]), "axis")])
        self.assertIn("the decoder gives no logits for 3 rows", self.refusal("GreedySearch", greedy, decoder=flat))


if __name__ == "__main__":
    unittest.main()

"""The section `texts` of a model.yaml: clients send texts, a tokenizer.json beside the model makes its tokens."""

import base64
import concurrent.futures
import json
import pathlib
import re
import shutil
import tempfile
import unittest

import grpc
import numpy
from onnx import TensorProto, helper

import daemon
import protos
from repositories import RepositoryCase
from test_devices import HAS_OPENCL
from test_tokenizer import TOKENIZER, WORDS, encoder

VECTORS = numpy.random.default_rng(1).standard_normal((len(WORDS), 3)).astype(numpy.float32)
TEXTS = ["Good!", "bad, very BAD", "goodly unheard of", ""]
TOKENS = [[2, 4, 8, 3], [2, 5, 1, 7, 5, 3], [2, 4, 6, 1, 1, 3], [2, 3]]


def token_vectors(ids_type=TensorProto.INT64, shape=("batch", "tokens"), megabytes=0):
    """last_hidden_state = a vector for each token, moved by its token_type; and the number of tokens that the mask keeps."""
    nodes = [helper.make_node("Gather", ["vectors", "input_ids"], ["rows"]),
             helper.make_node("Cast", ["token_type_ids"], ["types"], to=TensorProto.FLOAT),
             helper.make_node("Unsqueeze", ["types", "last"], ["column"]),
             helper.make_node("Add", ["rows", "column"], ["last_hidden_state"]),
             helper.make_node("ReduceSum", ["attention_mask", "tokens"], ["count"], keepdims=0)]
    constants = [("vectors", VECTORS), ("last", numpy.array([2])), ("tokens", numpy.array([1]))]
    if megabytes:  # that nothing else has
        constants.append(("weights", numpy.random.default_rng(megabytes).standard_normal((megabytes << 18, 1)).astype(numpy.float32)))
        nodes[0] = helper.make_node("Gather", ["vectors", "input_ids"], ["small"])
        nodes[1:1] = [helper.make_node("Gather", ["weights", "input_ids"], ["large"]),
                      helper.make_node("Mul", ["large", "nothing"], ["zeros"]), helper.make_node("Add", ["small", "zeros"], ["rows"])]
        constants.append(("nothing", numpy.array(0, numpy.float32)))
    return daemon.model_of(
        nodes, [(name, ids_type, shape) for name in ("input_ids", "attention_mask", "token_type_ids")],
        [("last_hidden_state", TensorProto.FLOAT, [*shape, 3]), ("count", ids_type, shape[:1])], constants)


class TextCase(RepositoryCase):
    first = encoder()

    def texts(self, settings="", name="m", version=1, tokenizer=TOKENIZER, config={"pad_token": "[PAD]"}):
        """Beside the model: its tokenizer, and above it what says so."""
        folder = self.folder / name / str(version)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        self.settings("texts:\n  tokenizer: tokenizer.json\n" + settings, name)

    def predictions(self, served, document, path="/predict/m"):
        status, answer = self.post(served, path, document)
        self.assertEqual(status, 200, answer)
        return answer.get("prediction", answer.get("predictions"))


class Scores(TextCase):
    def test_a_tokenizer_without_a_limit(self):
        """As transformers says that there is none."""
        self.texts(config={"pad_token": "[PAD]", "model_max_length": 1000000000000000019884624838656})
        served = self.serve()
        self.assertEqual(self.predictions(served, {"input": TEXTS}), [[1.5], [-2], [1], [0]])

    def test_texts_are_scored(self):
        self.texts()
        served = self.serve()
        self.assertEqual(self.predictions(served, {"input": TEXTS}), [[1.5], [-2], [1], [0]])
        self.assertEqual(self.predictions(served, {"input": "very good"}), [[1]])
        self.assertEqual(self.predictions(served, {"input": []}), [])
        metadata = self.get(served, "/v2/models/m")[1]
        self.assertEqual(metadata["inputs"], [{"name": "text", "datatype": "BYTES", "shape": [-1]}])
        with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            ask = protos.unary(channel, "inference.GRPCInferenceService", "ModelInfer")
            request = protos.message("inference.ModelInferRequest")(model_name="m")
            tensor = request.inputs.add(name="text", datatype="BYTES", shape=[len(TEXTS)])
            tensor.contents.bytes_contents.extend(text.encode() for text in TEXTS)
            output = ask(request, timeout=10)
        self.assertEqual(numpy.frombuffer(output.raw_output_contents[0], numpy.float32).tolist(), [1.5, -2, 1, 0])
        self.assertGreater(self.metric(served, 'onnxd_batch_size_count{model="m/tokenizer",version="1"}'), 2)

    def test_tokens_are_no_input(self):
        self.texts()
        served = self.serve()
        status, answer = self.post(served, "/predict/m", {"inputs": {"input_ids": [[2, 3]], "attention_mask": [[1, 1]]}})
        self.assertEqual((status, answer["error"]), (400, "model 'm' has no input 'input_ids'; it takes: text"))

    def test_many_clients(self):
        self.texts()
        served = self.serve()
        scores = dict(zip(TEXTS, (1.5, -2, 1, 0)))

        def ask(i):
            text = TEXTS[i % 4]
            return self.predictions(served, {"input": [text]}) == [[scores[text]]]

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            self.assertEqual(set(pool.map(ask, range(400))), {True})

    def test_padding_lets_texts_of_any_length_share_runs(self):
        self.texts("padding:\n- {dimension: tokens, sizes: [8, 16], values: {input_ids: 0, attention_mask: 0}}\n")
        served = self.serve()
        self.assertEqual(self.predictions(served, {"input": TEXTS}), [[1.5], [-2], [1], [0]])
        self.assertEqual(self.metric(served, 'onnxd_padding_elements_total{model="m"}'), 2 * 4 * 2)

    def test_a_text_is_cut_to_what_is_wanted(self):
        self.texts("  max_length: 4\n")
        served = self.serve()
        self.assertEqual(self.predictions(served, {"input": "good good bad bad bad"}), [[2]])

    def test_equal_texts_are_computed_once(self):
        self.texts("response_cache:\n  enabled: true\n")
        served = self.serve()
        for _ in range(3):
            self.assertEqual(self.predictions(served, {"input": TEXTS}), [[1.5], [-2], [1], [0]])
        self.assertEqual(self.metric(served, 'onnxd_batch_size_count{model="m",version="1"}'), 1)
        self.assertEqual(self.metric(served, 'onnxd_batch_size_count{model="m/tokenizer",version="1"}'), 1)

    def test_another_tokenizer_is_another_model(self):
        self.texts()
        served = self.serve()
        self.assertEqual(self.predictions(served, {"input": "bad"}), [[-1]])
        vocabulary = TOKENIZER["model"]["vocab"] | {"good": 5, "bad": 4}
        self.texts(tokenizer={**TOKENIZER, "model": {**TOKENIZER["model"], "vocab": vocabulary}})
        self.assertTrue(self.eventually(lambda: self.predictions(served, {"input": "bad"}) == [[1]]))

    def test_a_shadow_has_its_own_tokenizer(self):
        self.put(2, encoder())
        self.texts(version=2)
        self.texts("versions: 1\nlabels:\n  next: 2\nshadow:\n  version: next\n")
        served = self.serve()
        for _ in range(5):
            self.predictions(served, {"input": TEXTS})
        copies = lambda: re.findall(r'^onnxd_shadow_requests_total{model="m",outcome="(\w+)",version="2"} (\d+)',
                                    self.get(served, "/metrics")[1], re.M)
        self.assertTrue(self.eventually(lambda: copies() == [("same", "5")], 90), copies())

    def test_what_cannot_be_served_says_why(self):
        sequence = "sequence:\n  enabled: true\n"
        for settings, said in (("  tokenizer: ../tokenizer.json\n", "must be the name of a file beside the model's"),
                               ("  tokenizer: other.json\n", "other.json"),
                               ("  max_length: 4\n", "texts: they need a tokenizer"),
                               ("  tokenizer: tokenizer.json\n  normalize: true\n", "'normalize' needs 'pooling'"),
                               ("  tokenizer: tokenizer.json\n  pooling: mean\n", "an output of a vector for each token"),
                               ("  tokenizer: tokenizer.json\n  pooling: most\n", "is not one of , cls, last, mean"),
                               ("  tokenizer: tokenizer.json\n" + sequence, "'texts' does not go with 'sequence'"),
                               ("  tokenizer: bad.json\n", "is no JSON object")):
            with self.subTest(settings=settings):
                self.texts()
                (self.folder / "m" / "1" / "bad.json").write_text("[]")
                self.settings("texts:\n" + settings)
                served = self.serve()
                index = self.post(served, "/v2/repository/index")[1]
                self.assertEqual([m["state"] for m in index], ["UNAVAILABLE"], index)
                self.assertIn(said, index[0]["reason"])


class Embeddings(TextCase):
    first = token_vectors()

    def expected(self, pooling, normalize=False, types=None):
        rows = []
        for tokens in TOKENS:
            vectors = VECTORS[tokens]
            row = {"mean": vectors.mean(axis=0), "cls": vectors[0], "last": vectors[-1]}[pooling]
            rows.append(row / numpy.linalg.norm(row) if normalize else row)
        return numpy.array(rows)

    def test_the_vectors_of_tokens_become_one(self):
        for pooling in ("mean", "cls", "last"):
            for normalize in (False, True):
                with self.subTest(pooling=pooling, normalize=normalize):
                    self.texts(f"  pooling: {pooling}\n  normalize: {str(normalize).lower()}\n")
                    served = self.serve()
                    answer = self.predictions(served, {"input": TEXTS})
                    numpy.testing.assert_allclose(answer["embedding"], self.expected(pooling, normalize), rtol=2e-5, atol=1e-6)
                    self.assertEqual(answer["count"], [len(tokens) for tokens in TOKENS])
                    outputs = self.get(served, "/v2/models/m")[1]["outputs"]
                    self.assertEqual(outputs[0], {"name": "embedding", "datatype": "FP32", "shape": [-1, 3]})
                    served.close()

    def test_padding_on_the_left_and_of_requests_does_not_count(self):
        padding = {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
                   "pad_token": "[PAD]"}
        zeros = "values: {input_ids: 0, attention_mask: 0, token_type_ids: 0}"
        for pooling in ("mean", "cls", "last"):
            self.texts(f"  pooling: {pooling}\npadding:\n- {{dimension: tokens, sizes: [16], {zeros}}}\n",
                       tokenizer={**TOKENIZER, "padding": padding})
            served = self.serve()
            answer = self.predictions(served, {"input": TEXTS})
            numpy.testing.assert_allclose(answer["embedding"], self.expected(pooling), rtol=2e-5, atol=1e-6)
            served.close()

    def test_numbers_of_other_types(self):
        self.put(1, token_vectors(TensorProto.INT32))
        self.texts("  pooling: mean\n")
        served = self.serve()
        numpy.testing.assert_allclose(self.predictions(served, {"input": TEXTS})["embedding"], self.expected("mean"), rtol=2e-5)

    def test_a_model_of_one_length_gets_that(self):
        self.put(1, token_vectors(shape=("batch", 5)))
        self.texts()
        served = self.serve()
        answer = self.predictions(served, {"input": TEXTS})
        expected = [(tokens if len(tokens) <= 5 else tokens[:4] + [3]) + [0] * (5 - len(tokens)) for tokens in TOKENS]
        numpy.testing.assert_allclose(answer["last_hidden_state"], VECTORS[numpy.array(expected)], rtol=1e-6)
        self.assertEqual(answer["count"], [4, 5, 5, 2])

    def test_pairs_of_texts(self):
        self.texts("  pairs: true\n  pooling: mean\n")
        served = self.serve()
        answer = self.predictions(served, {"inputs": {"text": ["good"], "text_pair": ["bad"]}})
        self.assertEqual(answer["count"], [5])
        expected = VECTORS[[2, 4, 3, 5, 3]].mean(axis=0) + 2 / 5
        numpy.testing.assert_allclose(answer["embedding"], [expected], rtol=2e-5)
        status, answer = self.post(served, "/predict/m", {"inputs": {"text": ["good"]}})
        self.assertEqual((status, "needs input 'text_pair'" in answer["error"]), (400, True), answer)

    def test_texts_of_models_that_take_turns_in_memory(self):
        for name, megabytes in (("a", 31), ("b", 32), ("c", 33)):
            self.put(1, token_vectors(megabytes=megabytes), name)
            self.texts("  pooling: mean\n", name)
        served = self.serve(ONNXD_LIMITS_MEMORY_BYTES=str(90 << 20), ONNXD_LIMITS_BODY_BYTES=str(1 << 20), ONNXD_MODELS_MIN_RESIDENT_S="0")
        for _ in range(2):
            for name in "abc":
                answer = self.predictions(served, {"input": TEXTS}, f"/predict/{name}")
                numpy.testing.assert_allclose(answer["embedding"], self.expected("mean"), rtol=2e-5)
        self.assertGreater(sum(self.metric(served, f'onnxd_model_evictions_total{{model="{name}"}}') for name in "abc"), 0)


@unittest.skipUnless(HAS_OPENCL, "no OpenCL device")
class OnADevice(TextCase):
    first = token_vectors()

    def test_texts_come_to_few_lengths(self):
        """Each length costs a device much when it comes first."""
        self.texts("  pooling: mean\nproviders: [fused, opencl, cpu]\n")
        served = self.serve()
        for texts, tokens in ((TEXTS, TOKENS), (["good " * 20], [[2, *[4] * 20, 3]])):
            answer = self.predictions(served, {"input": texts})
            numpy.testing.assert_allclose(answer["embedding"], [VECTORS[row].mean(axis=0) for row in tokens], rtol=2e-5, atol=1e-6)
            self.assertEqual(answer["count"], [len(row) for row in tokens])
        self.assertEqual(self.metric(served, 'onnxd_padding_elements_total{model="m"}'), 3 * 4 * 10 + 3 * 10)


class OpenAi(TextCase):
    """POST /v1/embeddings."""

    first = token_vectors()

    def setUp(self):
        super().setUp()
        self.texts("  pooling: mean\n")
        self.put(1, encoder(), "tokens")
        self.put(1, encoder(), "scores")
        self.texts(name="scores")
        self.served = self.serve()

    def ask(self, code=200, **body):
        status, answer, _ = self.status(self.served, "/v1/embeddings", json.dumps(body).encode())
        self.assertEqual(status, code, answer)
        return answer

    def test_vectors_of_texts(self):
        answer = self.ask(model="m", input=TEXTS)
        expected = [VECTORS[row].mean(axis=0) for row in TOKENS]
        tokens = sum(map(len, TOKENS))
        self.assertEqual({key: answer[key] for key in ("object", "model", "usage")},
                         {"object": "list", "model": "m", "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})
        self.assertEqual([(e["object"], e["index"]) for e in answer["data"]], [("embedding", i) for i in range(4)])
        numpy.testing.assert_allclose([e["embedding"] for e in answer["data"]], expected, rtol=2e-5, atol=1e-6)
        coded = self.ask(model="m", input=TEXTS, encoding_format="base64", dimensions=3, user="me")["data"]
        decoded = [numpy.frombuffer(base64.b64decode(e["embedding"]), "<f4") for e in coded]
        numpy.testing.assert_array_equal(decoded, numpy.array([e["embedding"] for e in answer["data"]], "<f4"))
        one = self.ask(model="m", input="Good!", encoding_format="float", dimensions=None)
        self.assertEqual([e["embedding"] for e in one["data"]], [answer["data"][0]["embedding"]])
        self.assertEqual([e["embedding"] for e in self.ask(model="scores", input=["good", "bad"])["data"]], [[1], [-1]])

    def test_what_is_wrong_is_said(self):
        for body, code, said in (({"model": "m"}, 400, 'the body needs "input": texts'),
                                 ({"model": "m", "input": []}, 400, '"input" is empty'),
                                 ({"model": "m", "input": [1, 2]}, 400, "input 'input' element 0 is a number, expected string"),
                                 ({"model": "m", "input": [["a"]]}, 400, "levels of nesting"),
                                 ({"model": "m", "input": "a", "encoding_format": "int8"}, 400, '"float" or "base64"'),
                                 ({"model": "m", "input": "a", "dimensions": 2}, 400, '"dimensions" is 2, the model\'s vectors have 3'),
                                 ({"model": "m", "input": "a", "dimensions": "x"}, 400, '"dimensions" must be a whole number'),
                                 ({"model": 7, "input": "a"}, 400, '"model" must be a string'),
                                 ({"model": "none", "input": "a"}, 404, "none"),
                                 ({"input": "a"}, 400, "several models are served"),
                                 ({"model": "tokens", "input": "a"}, 400, "model 'tokens' makes no embeddings")):
            error = self.ask(code, **body)["error"]
            self.assertIn(said, error["message"], body)
            self.assertEqual(error["type"], "invalid_request_error")
        self.assertEqual(self.get(self.served, "/v1/embeddings")[0], 405)
        self.assertEqual(self.status(self.served, "/v1/embeddings", b'{"input": "a"')[0], 400)


class Found(TextCase):
    """`models.texts`: what the files beside a model say, as sentence-transformers saves them."""

    first = token_vectors()
    TYPES = "sentence_transformers.models."

    def files(self, name="m", modules=("Transformer", "Pooling", "Normalize"), mode="mean_tokens", length=None, flat=False):
        folder = self.folder / name / "1"
        (folder / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]"}))
        (folder / "modules.json").write_text(json.dumps(
            [{"idx": i, "path": f"{i}_{kind}" if i else "", "type": self.TYPES + kind} for i, kind in enumerate(modules)]))
        modes = {f"pooling_mode_{other}": other == mode for other in ("cls_token", "mean_tokens", "max_tokens", "lasttoken")}
        config = folder / "1_Pooling_config.json" if flat else folder / "1_Pooling" / "config.json"
        config.parent.mkdir(exist_ok=True)
        config.write_text(json.dumps({"word_embedding_dimension": 3, **modes}))
        if length:
            (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": length}))

    def served_with_texts(self):
        return self.serve(self.folder, "--texts")

    def vectors(self, pooling="mean", tokens=TOKENS):
        rows = numpy.array([VECTORS[row].mean(axis=0) if pooling == "mean" else VECTORS[row][0 if pooling == "cls" else -1]
                            for row in tokens])
        return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)

    def test_embeddings_as_the_library_makes_them(self):
        for mode, pooling, flat in (("mean_tokens", "mean", False), ("cls_token", "cls", True), ("lasttoken", "last", False)):
            self.files(mode=mode, flat=flat)
            served = self.served_with_texts()
            embeddings = self.predictions(served, {"input": TEXTS})["embedding"]
            numpy.testing.assert_allclose(embeddings, self.vectors(pooling), rtol=2e-5, atol=1e-6)
            served.close()
            if not flat:
                (self.folder / "m" / "1" / "1_Pooling" / "config.json").unlink()

    def test_files_of_later_versions_of_the_library(self):
        self.files()
        folder = self.folder / "m" / "1"
        types = ("base.modules.transformer.Transformer", "sentence_transformer.modules.pooling.Pooling")
        (folder / "modules.json").write_text(json.dumps(
            [{"idx": i, "path": ("", "1_Pooling")[i], "type": f"sentence_transformers.{kind}"} for i, kind in enumerate(types)]))
        (folder / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 3, "pooling_mode": "lasttoken"}')
        embeddings = self.predictions(self.served_with_texts(), {"input": TEXTS})["embedding"]
        numpy.testing.assert_allclose(embeddings, VECTORS[[row[-1] for row in TOKENS]], rtol=2e-5)

    def test_lengths_that_the_tokenizer_was_saved_with_do_not_count(self):
        """As in transformers: they are those of its last use."""
        self.files()
        padding = {"strategy": {"Fixed": 12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
                   "pad_token": "[PAD]"}
        truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
        folder = self.folder / "m" / "1"
        (folder / "tokenizer.json").write_text(json.dumps({**TOKENIZER, "padding": padding, "truncation": truncation}))
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 5}))
        (folder / "modules.json").unlink()
        served = self.served_with_texts()
        answer = self.predictions(served, {"input": TEXTS})
        self.assertEqual((numpy.shape(answer["last_hidden_state"]), answer["count"]), ((4, 5, 3), [4, 5, 5, 2]))
        answer = self.predictions(served, {"input": "good"})
        self.assertEqual((numpy.shape(answer["last_hidden_state"]), answer["count"]), ((1, 3, 3), [3]))
        served.close()
        (folder / "tokenizer_config.json").unlink()
        self.assertEqual(self.predictions(self.served_with_texts(), {"input": TEXTS})["count"], [3, 3, 3, 2])

    def test_texts_are_cut_as_the_library_cuts_them(self):
        self.files(length=4)
        embeddings = self.predictions(self.served_with_texts(), {"input": TEXTS})["embedding"]
        cut = [tokens if len(tokens) <= 4 else tokens[:3] + [3] for tokens in TOKENS]
        numpy.testing.assert_allclose(embeddings, self.vectors(tokens=cut), rtol=2e-5, atol=1e-6)

    def test_a_clone_from_the_hub(self):
        self.files()
        with tempfile.TemporaryDirectory() as clone:
            shutil.copytree(self.folder / "m" / "1", clone, dirs_exist_ok=True)
            path = pathlib.Path(clone)
            (path / "onnx").mkdir()
            (path / "model.onnx").rename(path / "onnx" / "model.onnx")
            served = self.serve(path, "--texts")
            answer = self.predictions(served, {"input": TEXTS}, "/predict")
            numpy.testing.assert_allclose(answer["embedding"], self.vectors(), rtol=2e-5, atol=1e-6)

    def test_a_models_own_settings_count(self):
        self.files()
        self.settings("texts: {tokenizer: auto, pooling: last}\n")
        served = self.serve()
        embeddings = self.predictions(served, {"input": TEXTS})["embedding"]
        numpy.testing.assert_allclose(embeddings, VECTORS[[row[-1] for row in TOKENS]], rtol=2e-5)
        self.settings("texts: {tokenizer: \"\"}\n")
        self.assertTrue(self.eventually(lambda: len(self.get(served, "/v2/models/m")[1]["inputs"]) == 3))

    def test_deeply_nested_files_end_nothing(self):
        nested = "[" * 500_000 + "]" * 500_000
        self.files()
        folder = self.folder / "m" / "1"
        for name, text in (("modules.json", nested), ("sentence_bert_config.json", nested),
                           ("1_Pooling/config.json", '{"pooling_mode": ' + nested + "}")):
            self.files()
            (folder / name).write_text(text)
            served = self.served_with_texts()
            self.assertEqual(len(self.predictions(served, {"input": TEXTS})["count"]), 4, name)
            served.close()
        self.files()
        (folder / "tokenizer.json").write_text('{"model": ' + nested + "}")
        self.assertEqual(len(self.get(self.served_with_texts(), "/v2/models/m")[1]["inputs"]), 3)

    def test_what_is_not_there_is_said(self):
        for modules, mode, said in ((("Transformer", "Pooling", "Dense"), "mean_tokens", "modules.json wants sentence_transformers.models.Dense"),
                                    (("Transformer", "Pooling"), "max_tokens", "1_Pooling/config.json wants neither mean, cls nor last")):
            self.files(modules=modules, mode=mode)
            served = self.served_with_texts()
            self.assertEqual(numpy.shape(self.predictions(served, {"input": TEXTS})["last_hidden_state"]), (4, 6, 3))
            self.assertTrue(self.eventually(lambda: any(said in line for line in served.stderr_lines)), served.stderr_lines)
            served.close()

    def test_other_models_take_what_they_took(self):
        self.files()
        self.put(1, encoder(), "tokens")
        self.put(1, OtherInputs.first, "other")
        self.put(1, encoder(), "broken")
        (self.folder / "other" / "1" / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        (self.folder / "broken" / "1" / "tokenizer.json").write_text("{}")
        (self.folder / "m" / "1" / "modules.json").write_text('[{"type": 7}, 8]')
        (self.folder / "m" / "1" / "sentence_bert_config.json").write_text('{"max_seq_length": -1, "a": ' + "[" * 500_000 + "]" * 500_000 + "}")
        (self.folder / "both").mkdir()
        self.settings("ensemble:\n  steps:\n  - {model: tokens, inputs: {input_ids: ids, attention_mask: mask}, outputs: {score: score}}\n", "both")
        served = self.served_with_texts()
        tokens = {"inputs": {"input_ids": [[2, 4, 3]], "attention_mask": [[1, 1, 1]]}}
        self.assertEqual(self.predictions(served, tokens, "/predict/tokens"), [[1]])
        self.assertEqual(self.predictions(served, tokens, "/predict/broken"), [[1]])
        self.assertEqual(self.predictions(served, {"inputs": {"ids": [[2, 4, 3]], "mask": [[1, 1, 1]]}}, "/predict/both"), [[1]])
        said = "model 'broken' takes tokens: "
        self.assertTrue(self.eventually(lambda: any(said in line for line in served.stderr_lines)), served.stderr_lines)
        self.assertEqual(self.predictions(served, {"inputs": {"input_ids": [[2, 4, 3]], "factor": [[2]]}}, "/predict/other"), [[18]])
        self.assertEqual(numpy.shape(self.predictions(served, {"input": "good"}, "/predict/m")["last_hidden_state"]), (1, 3, 3))


class OtherInputs(TextCase):
    first = daemon.model_of(
        [helper.make_node("ReduceSum", ["input_ids", "tokens"], ["sum"], keepdims=1), helper.make_node("Mul", ["sum", "factor"], ["y"])],
        [("factor", TensorProto.INT64, ["batch", 1]), ("input_ids", TensorProto.INT64, ["batch", "tokens"])],
        [("y", TensorProto.INT64, ["batch", 1])], [("tokens", numpy.array([1]))])

    def test_what_no_tokenizer_makes_the_client_sends(self):
        self.texts()
        served = self.serve()
        answer = self.predictions(served, {"inputs": {"text": ["good", "bad"], "factor": [[1], [10]]}})
        self.assertEqual(answer, [[9], [100]])


class NoTokens(TextCase):
    first = daemon.identity_model(TensorProto.FLOAT)

    def test_a_model_without_tokens_says_so(self):
        self.texts()
        served = self.serve()
        reason = self.post(served, "/v2/repository/index")[1][0]["reason"]
        self.assertIn("texts: the model has no input 'input_ids'; it takes: x", reason)

"""`onnxd tokenizer` makes a model of a tokenizer.json; an ensemble with an encoder behind it is asked with texts."""

import json
import pathlib
import subprocess
import tempfile
import unittest
import urllib.request

import grpc
import numpy
from onnx import TensorProto, helper

import daemon
import protos
from repositories import RepositoryCase

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "##ly", "very", "!"]
TOKENIZER = {
    "added_tokens": [{"id": WORDS.index(token), "content": token, "special": True} for token in WORDS[:4]],
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 2], "sep": ["[SEP]", 3]},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {word: i for i, word in enumerate(WORDS)}},
}
ENSEMBLE = """ensemble:
  steps:
  - {model: words, inputs: {text: text}, outputs: {input_ids: ids, attention_mask: mask}}
  - {model: encoder, inputs: {input_ids: ids, attention_mask: mask}, outputs: {score: score}}
"""


def encoder():
    """score = sum of the weights of the tokens that the mask keeps: good 1, bad -1, !: 0.5, padding 100."""
    weights = numpy.zeros((len(WORDS), 1), numpy.float32)
    weights[[0, 4, 5, 8], 0] = [100, 1, -1, 0.5]
    return daemon.model_of(
        [helper.make_node("Gather", ["weights", "input_ids"], ["rows"]),
         helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
         helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
         helper.make_node("Mul", ["rows", "column"], ["kept"]),
         helper.make_node("ReduceSum", ["kept", "tokens"], ["score"], keepdims=0)],
        [(name, TensorProto.INT64, ["batch", "tokens"]) for name in ("input_ids", "attention_mask")],
        [("score", TensorProto.FLOAT, ["batch", 1])],
        [("weights", weights), ("last", numpy.array([2])), ("tokens", numpy.array([1]))])


def write_model(tokenizer, output, *options, config=None):
    """What the command says, of a folder that has those files."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "tokenizer.json").write_text(tokenizer if isinstance(tokenizer, str) else json.dumps(tokenizer))
        if config:
            (path / "tokenizer_config.json").write_text(json.dumps(config))
        return subprocess.run([daemon.BINARY, "tokenizer", folder, str(output), *options], capture_output=True, text=True)


class Served(RepositoryCase):
    first = encoder()

    def setUp(self):
        super().setUp()
        (self.folder / "m").rename(self.folder / "encoder")
        (self.folder / "words" / "1").mkdir(parents=True)
        done = write_model(TOKENIZER, self.folder / "words" / "1" / "model.onnx", config={"pad_token": "[PAD]"})
        self.assertEqual(done.returncode, 0, done.stderr)
        (self.folder / "mood").mkdir()
        self.settings(ENSEMBLE, "mood")

    def test_texts_are_scored(self):
        served = self.serve()
        texts = ["Good!", "bad, very BAD", "goodly unheard of", ""]
        status, answer = self.post(served, "/predict/mood", {"input": texts})
        self.assertEqual((status, answer["prediction"]), (200, [[1.5], [-2], [1], [0]]))
        status, answer = self.post(served, "/predict/mood", {"input": "very good"})
        self.assertEqual((status, answer["prediction"]), (200, [[1]]))
        with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            ask = protos.unary(channel, "inference.GRPCInferenceService", "ModelInfer")
            request = protos.message("inference.ModelInferRequest")(model_name="mood")
            tensor = request.inputs.add(name="text", datatype="BYTES", shape=[len(texts)])
            tensor.contents.bytes_contents.extend(text.encode() for text in texts)
            output = ask(request, timeout=10)
        self.assertEqual(numpy.frombuffer(output.raw_output_contents[0], numpy.float32).tolist(), [1.5, -2, 1, 0])

    def test_its_tokens_can_be_looked_at(self):
        served = self.serve()
        status, answer = self.post(served, "/predict/words", {"input": ["Good!", "badly"]})
        self.assertEqual(status, 200)
        self.assertEqual(answer["predictions"], {
            "input_ids": [[2, 4, 8, 3], [2, 5, 6, 3]], "attention_mask": [[1] * 4] * 2, "token_type_ids": [[0] * 4] * 2})


class Command(unittest.TestCase):
    def tokens(self, model, text):
        with tempfile.TemporaryDirectory() as folder:
            from onnx import numpy_helper
            numpy_input = numpy_helper.from_array(numpy.array([text], object))
            (pathlib.Path(folder) / "input_0.pb").write_bytes(numpy_input.SerializeToString())
            done = subprocess.run([daemon.BINARY, "run", str(model), "--inputs", folder, "--outputs", folder],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            output = TensorProto.FromString((pathlib.Path(folder) / "output_0.pb").read_bytes())
            return numpy_helper.to_array(output)[0].tolist()

    def test_texts_are_cut_to_what_the_encoder_takes(self):
        text = "good bad good bad good bad"
        whole = [2, 4, 5, 4, 5, 4, 5, 3]
        for options, config, expected in (
                ([], None, whole), ([], {"model_max_length": 5}, [2, 4, 5, 4, 3]),
                (["--max-length", "3"], {"model_max_length": 5}, [2, 4, 3]),
                ([], {"model_max_length": 1e30}, whole), (["--max-length", "100"], None, whole)):
            with self.subTest(options=options, config=config), tempfile.TemporaryDirectory() as folder:
                model = pathlib.Path(folder) / "model.onnx"
                done = write_model(TOKENIZER, model, *options, config=config)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(self.tokens(model, text), expected)

    def test_pairs_of_texts(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.onnx"
            done = write_model(TOKENIZER, path, "--pairs", "--max-length", "7")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("text, text_pair [batch] -> input_ids", done.stdout)
            with daemon.Daemon(path) as served:
                body = json.dumps({"inputs": [
                    {"name": name, "datatype": "BYTES", "shape": [2], "data": data}
                    for name, data in (("text", ["good", "very good very good"]), ("text_pair", ["bad!", "bad"]))]}).encode()
                with urllib.request.urlopen(served.url + "/v2/models/model/infer", body, timeout=10) as response:
                    outputs = {output["name"]: output["data"] for output in json.load(response)["outputs"]}
        self.assertEqual(outputs, {"input_ids": [2, 4, 3, 5, 8, 3, 0, 2, 7, 4, 7, 3, 5, 3],
                                   "attention_mask": [1] * 6 + [0] + [1] * 7,
                                   "token_type_ids": [0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1]})

    def test_what_cannot_be_one_says_why(self):
        with tempfile.TemporaryDirectory() as folder:
            output = pathlib.Path(folder) / "model.onnx"
            for tokenizer, options, message in (
                    ("{", [], "tokenizer.json is no JSON object"),
                    ({**TOKENIZER, "normalizer": {"type": "Sung"}}, [], "the normalizer 'Sung' is not there yet"),
                    (TOKENIZER, ["--max-length", "2"], "truncation to 2 tokens, of which 2 stand around a text")):
                done = write_model(tokenizer, output, *options)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr)
                self.assertFalse(output.exists())
        done = subprocess.run([daemon.BINARY, "tokenizer", "/nowhere", "/tmp/none.onnx"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such file: /nowhere", done.stderr)


if __name__ == "__main__":
    unittest.main()

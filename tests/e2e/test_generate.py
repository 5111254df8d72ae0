"""Triton's generate extension: objects of inputs, answered by objects of outputs."""

import json
import unittest
import urllib.request

import numpy
from onnx import TensorProto, helper

import daemon
from repositories import RepositoryCase, factor_model


def chat_model():
    """text_output = text_input and a word; tokens: the words it was told to stop at, and a number of each."""
    return daemon.model_of(
        [helper.make_node("StringConcat", ["text_input", "word"], ["text_output"]),
         helper.make_node("Identity", ["stop_words"], ["stops"]),
         helper.make_node("Add", ["max_tokens", "one"], ["tokens"])],
        [("text_input", TensorProto.STRING, ["batch", 1]), ("stop_words", TensorProto.STRING, ["batch", "words"]),
         ("max_tokens", TensorProto.INT64, ["batch", 1])],
        [("text_output", TensorProto.STRING, ["batch", 1]), ("stops", TensorProto.STRING, ["batch", "words"]),
         ("tokens", TensorProto.INT64, ["batch", 1])],
        [("word", numpy.array([", world"], dtype=object)), ("one", numpy.array(1, numpy.int64))], opset=20)


class Generate(RepositoryCase):
    first = factor_model(2)

    def setUp(self):
        super().setUp()
        self.put(1, chat_model(), name="chat")
        self.served = self.serve()

    def generate(self, body, code=200, path="chat/generate"):
        text = body if isinstance(body, str) else json.dumps(body)
        status, document, _ = self.status(self.served, f"/v2/models/{path}", text.encode())
        self.assertEqual(status, code, document)
        return document

    REQUEST = {"text_input": "Hello", "stop_words": ["a", "b"], "max_tokens": 8}
    ANSWER = {"model_name": "chat", "model_version": "1", "text_output": "Hello, world", "stops": ["a", "b"], "tokens": 9}

    def test_keys_are_inputs_and_outputs(self):
        self.assertEqual(self.generate(self.REQUEST), self.ANSWER)
        self.assertEqual(self.generate(self.REQUEST, path="chat/versions/1/generate"), self.ANSWER)

    def test_inputs_may_stand_among_the_parameters(self):
        body = {"id": "7", "text_input": "Hello", "parameters": {"stop_words": ["a", "b"], "max_tokens": 8, "temperature": 0.5}}
        self.assertEqual(self.generate(body), {"id": "7", **self.ANSWER})

    def test_values_fill_the_shape_that_the_input_declares(self):
        row = {"model_name": "m", "model_version": "1", "y": [2, 4, 6, 8]}
        self.assertEqual(self.generate({"x": [1, 2, 3, 4]}, path="m/generate"), row)
        self.assertEqual(self.generate({"x": [[1, 2, 3, 4]]}, path="m/generate"), row)
        self.assertEqual(self.generate({"x": [1, 2, 3, 4] * 2}, path="m/generate")["y"], [2, 4, 6, 8] * 2)
        self.assertEqual(self.generate({"x": []}, path="m/generate")["y"], [])
        error = self.generate({"x": [1, 2, 3]}, 400, "m/generate")["error"]
        self.assertIn("input 'x' has 3 elements, which do not fill", error)

    def test_a_stream_has_one_event(self):
        request = urllib.request.Request(f"{self.served.url}/v2/models/chat/generate_stream", json.dumps(self.REQUEST).encode())
        with urllib.request.urlopen(request, timeout=10) as response:
            self.assertEqual(response.headers["Content-Type"], "text/event-stream; charset=utf-8")
            text = response.read().decode()
        self.assertTrue(text.startswith("data: ") and text.endswith("\n\n"), text)
        self.assertEqual(text.count("\n"), 2)
        self.assertEqual(json.loads(text[len("data: "):]), self.ANSWER)
        self.generate({}, 400, "chat/generate_stream")
        self.generate(self.REQUEST, path="chat/versions/1/generate_stream")

    def test_what_is_wrong_is_said(self):
        for change, said in (({"text_input": None}, "input 'text_input' element 0 is null, expected string"),
                             ({"max_tokens": 1.5}, "input 'max_tokens' element 0 is 1.5, expected int64"),
                             ({"max_tokens": [1, 2]}, "max_tokens"),
                             ({"parameters": {"text_input": "again"}}, "input 'text_input' is given twice"),
                             ({"parameters": [1]}, "parameters must be an object"),
                             ({"stop_word": ["a"]}, "model 'chat' has no input 'stop_word', and a parameter is no array; "
                                                    "it takes: text_input, stop_words, max_tokens"),
                             ({"id": 7}, "\"id\" must be a string"),
                             ({"timeout": -1}, "timeout must be a number of microseconds")):
            self.assertIn(said, self.generate({**self.REQUEST, **change}, 400)["error"], change)
        missing = {key: value for key, value in self.REQUEST.items() if key != "max_tokens"}
        self.assertIn("max_tokens", self.generate(missing, 400)["error"])
        self.assertIn("chatter", self.generate(self.REQUEST, 404, "chatter/generate")["error"])
        self.generate("[1]", 400)
        self.generate("{\"text_input\": \"a\"", 400)
        self.assertEqual(self.get(self.served, "/v2/models/chat/generate")[0], 405)

    def test_deadlines_of_the_protocol_count(self):
        status, document, _ = self.status(self.served, "/v2/models/chat/generate", json.dumps(self.REQUEST).encode(),
                                          {"X-Request-Timeout-Ms": "0"})
        self.assertEqual(status, 400, document)


if __name__ == "__main__":
    unittest.main()

"""TensorFlow Serving's REST API, and KServe's protocol v1: golden requests and answers."""

import base64
import json
import unittest

import numpy
from onnx import TensorProto, helper

import daemon
from repositories import RepositoryCase, factor_model


def named_model():
    """sum = a + b by row, and a itself."""
    return daemon.model_of(
        [helper.make_node("ReduceSum", ["a", "axes"], ["total"], keepdims=0), helper.make_node("Add", ["total", "b"], ["sum"]),
         helper.make_node("Identity", ["a"], ["same"])],
        [("a", TensorProto.FLOAT, ["batch", 2]), ("b", TensorProto.FLOAT, ["batch"])],
        [("sum", TensorProto.FLOAT, ["batch"]), ("same", TensorProto.FLOAT, ["batch", 2])],
        [("axes", numpy.array([1], numpy.int64))])


def text_model():
    return daemon.model_of(
        [helper.make_node("Identity", ["text"], ["copy"]), helper.make_node("Identity", ["text"], ["copy_bytes"])],
        [("text", TensorProto.STRING, ["batch"])],
        [("copy", TensorProto.STRING, ["batch"]), ("copy_bytes", TensorProto.STRING, ["batch"])])


def half_plus_two():
    return daemon.model_of(
        [helper.make_node("Mul", ["x", "half"], ["h"]), helper.make_node("Add", ["h", "two"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch", 1])], [("y", TensorProto.FLOAT, ["batch", 1])],
        [("half", numpy.array(0.5, numpy.float32)), ("two", numpy.array(2, numpy.float32))])


class TensorFlowServing(RepositoryCase):
    def setUp(self):
        super().setUp()
        self.put(3, factor_model(3))
        self.put(1, named_model(), name="named")
        self.put(1, text_model(), name="text")
        self.put(1, half_plus_two(), name="half_plus_two")
        self.settings("versions: 1,3\nlabels:\n  stable: 1\n")
        self.served = self.serve()

    def predict(self, path, body, code=200):
        text = body if isinstance(body, str) else json.dumps(body)
        status, document, _ = self.status(self.served, f"/v1/models/{path}:predict", text.encode())
        self.assertEqual(status, code, document)
        return document

    def error(self, path, body, code=400):
        return self.predict(path, body, code)["error"]

    def test_rows_of_values(self):
        self.assertEqual(self.predict("m", {"instances": [[1, 2, 3, 4], [5, 6, 7, 8]]}),
                         {"predictions": [[3, 6, 9, 12], [15, 18, 21, 24]]})
        # The example of TensorFlow Serving's documentation.
        self.assertEqual(self.predict("half_plus_two", {"instances": [1.0, 2.0, 5.0]}),
                         {"predictions": [[2.5], [3.0], [4.5]]})

    def test_rows_of_values_by_input(self):
        self.assertEqual(
            self.predict("named", {"signature_name": "serving_default",
                                   "instances": [{"a": [1, 2], "b": 3}, {"b": 30, "a": [10, 20]}]}),
            {"predictions": [{"sum": 6, "same": [1, 2]}, {"sum": 60, "same": [10, 20]}]})

    def test_columns(self):
        self.assertEqual(self.predict("m", {"inputs": [[1, 2, 3, 4]]}), {"outputs": [[3, 6, 9, 12]]})
        self.assertEqual(self.predict("named", {"inputs": {"a": [[1, 2], [3, 4]], "b": [1, 2]}}),
                         {"outputs": {"sum": [4, 9], "same": [[1, 2], [3, 4]]}})
        self.assertEqual(self.predict("m", {"inputs": {"x": [[1, 2, 3, 4]]}}), {"outputs": [[3, 6, 9, 12]]})

    def test_base64(self):
        raw = bytes(range(256))
        encoded = [{"b64": base64.b64encode(text).decode()} for text in (b"", b"a", b"ab", b"abc", raw)]
        answer = self.predict("text", {"instances": encoded[:4]})["predictions"]
        self.assertEqual(answer, [{"copy": text, "copy_bytes": form} for text, form in zip(("", "a", "ab", "abc"), encoded)])
        self.assertEqual(self.predict("text", {"instances": [{"text": encoded[1]}, {"text": "plain"}]})["predictions"],
                         [{"copy": "a", "copy_bytes": encoded[1]},
                          {"copy": "plain", "copy_bytes": {"b64": base64.b64encode(b"plain").decode()}}])
        self.assertEqual(self.predict("text", {"inputs": {"text": [encoded[2], "x"]}})["outputs"]["copy"], ["ab", "x"])
        for bad in ("a", "ab=c", "a===", "====", "YW I=", "YWI", "é"):
            self.assertIn("base64", self.error("text", {"instances": [{"b64": bad}]}), bad)
        self.assertIn("UTF-8", self.error("text", {"instances": [encoded[4]]}))

    def test_versions_and_labels(self):
        row = {"instances": [[1, 1, 1, 1]]}
        for path, answer in (("m", 3), ("m/versions/1", 1), ("m/versions/3", 3), ("m/labels/stable", 1)):
            self.assertEqual(self.predict(path, row), {"predictions": [[answer] * 4]})
        self.assertIn("unknown model", self.error("m/versions/2", row, 404))
        self.assertIn("unknown model", self.error("none", row, 404))

    def test_numbers_that_json_does_not_know(self):
        self.assertEqual(str(self.predict("m", '{"instances": [[NaN, Infinity, -Infinity, 1]]}')["predictions"][0]),
                         "[nan, inf, -inf, 3]")

    def test_what_is_wrong_is_said(self):
        for path, body, reason in (
                ("m", {}, "needs \"instances\" or \"inputs\""),
                ("m", {"instances": [[1] * 4], "inputs": [[1] * 4]}, "exclude each other"),
                ("m", {"instances": []}, "empty"),
                ("m", {"instances": 5}, "must be an array"),
                ("m", {"instances": [[1, 2, 3]]}, "x"),
                ("m", {"instances": [1, 2, 3]}, "x"),
                ("m", {"instances": [[1] * 4], "signature_name": "other"}, "serving_default"),
                ("m", {"instances": [{"none": [1] * 4}]}, "has no input 'none'"),
                ("named", {"instances": [[1, 2]]}, "name them"),
                ("named", {"instances": [{"a": [1, 2], "b": 3}, {"a": [1, 2]}]}, "instance 1: all instances must name the same inputs"),
                ("named", {"instances": [{"a": [1, 2]}, {"a": [1, 2], "b": 3}]}, "instance 1: all instances must name the same inputs"),
                ("named", {"instances": [{"a": [1, 2], "b": 3}, 5]}, "instance 1: it must be an object"),
                ("named", {"instances": [{"a": [1, 2], "b": 3}, {"a": [1], "b": 3}]}, "ragged"),
                ("text", {"instances": [{"b64": 5}]}, "an object other than"),
                ("m", "{\"instances\": [[1,2,3,4]]", "")):
            self.assertIn(reason, self.error(path, body), body)

    def test_other_methods_and_verbs(self):
        self.assertEqual(self.get(self.served, "/v1/models/m:predict")[0], 405)
        self.assertEqual(self.post(self.served, "/v1/models/m", {})[0], 405)
        for path in ("/v1/models/m:classify", "/v1/models/m:regress", "/v1/models/m:explain", "/v1/other"):
            self.assertEqual(self.post(self.served, path, {})[0], 404, path)

    def test_status(self):
        def of(*versions):
            return {"model_version_status": [{"version": version, "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
                                             for version in versions], "name": "m", "ready": True}
        self.assertEqual(self.get(self.served, "/v1/models/m"), (200, of("1", "3")))
        self.assertEqual(self.get(self.served, "/v1/models/m/versions/3"), (200, of("3")))
        self.assertEqual(self.get(self.served, "/v1/models/m/labels/stable"), (200, of("1")))
        self.assertEqual(self.get(self.served, "/v1/models/none")[0], 404)
        self.assertEqual(self.get(self.served, "/v1/models/m/versions/2")[0], 404)
        self.put(1, b"not a model", name="broken")
        self.assertTrue(self.eventually(lambda: self.get(self.served, "/v1/models/broken")[0] == 200 and self.get(
            self.served, "/v1/models/broken")[1]["model_version_status"][0]["state"] == "END"))
        document = self.get(self.served, "/v1/models/broken")[1]
        self.assertFalse(document["ready"])
        self.assertEqual(document["model_version_status"][0]["status"]["error_code"], "UNKNOWN")
        self.assertTrue(document["model_version_status"][0]["status"]["error_message"])

    def test_kserves_list(self):
        names = ["half_plus_two", "m", "named", "text"]
        openai = [{"id": name, "object": "model", "created": 0, "owned_by": "onnxd"} for name in names]
        self.assertEqual(self.get(self.served, "/v1/models"), (200, {"models": names, "object": "list", "data": openai}))

    def test_metadata(self):
        def tensor(name, *sizes):
            return {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": size, "name": ""} for size in sizes], "unknown_rank": False},
                    "name": name}
        self.assertEqual(self.get(self.served, "/v1/models/m/metadata"), (200, {
            "model_spec": {"name": "m", "signature_name": "", "version": "3"},
            "metadata": {"signature_def": {"signature_def": {"serving_default": {
                "inputs": {"x": tensor("x", "-1", "4")}, "outputs": {"y": tensor("y", "-1", "4")},
                "method_name": "tensorflow/serving/predict"}}}}}))
        self.assertEqual(self.get(self.served, "/v1/models/m/versions/1/metadata")[1]["model_spec"]["version"], "1")
        self.assertEqual(self.get(self.served, "/v1/models/none/metadata")[0], 404)


if __name__ == "__main__":
    unittest.main()

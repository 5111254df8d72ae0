"""REST against the running daemon: raw sockets, urllib and tritonclient."""

import itertools
import json
import math
import re
import shutil
import struct
import subprocess
import time
import unittest
import urllib.error
import urllib.request

import numpy
import tritonclient.http
from onnx import TensorProto, helper

import daemon

IRIS = [[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]]


class Rest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = daemon.embedded()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()

    def request(self, path, body=None, method=None, headers=None):
        """(status, headers, bytes)"""
        data = json.dumps(body).encode() if isinstance(body, (dict, list)) else body
        request = urllib.request.Request(
            self.daemon.url + path, data=data, method=method, headers=headers or {}
        )
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()


class Predict(Rest):
    def test_default_model(self):
        status, _, body = self.request("/predict", {"input": IRIS})
        answer = json.loads(body)
        self.assertEqual(status, 200)
        self.assertEqual(answer["predictions"]["label"], [0, 2])
        self.assertEqual(answer["model"], "iris_forest")
        self.assertEqual(answer["model_version"], "1")
        self.assertGreaterEqual(answer["inference_time_ms"], 0)

    def test_one_output_is_the_prediction_and_a_row_gets_its_batch(self):
        image = numpy.zeros((1, 8, 8)).tolist()
        status, _, body = self.request("/predict/digits_cnn", {"input": image})
        self.assertEqual(status, 200)
        self.assertEqual(numpy.array(json.loads(body)["prediction"]).shape, (1, 10))

    def test_inputs_by_name_model_and_version_in_the_body(self):
        body = {"inputs": {"measurements": [[5, 3, 1, 0]]}, "model": "iris_forest", "version": 1}
        self.assertEqual(self.request("/predict", body)[0], 200)

    def test_errors_name_the_fault(self):
        cases = [
            ({"input": [[1, 2], [3]]}, 400, "ragged"),
            ({"input": [[1, 2]]}, 400, "expected float[batch, 4], got float[1, 2]"),
            ({"input": [["a", 1, 2, 3]]}, 400, "element 0 is a string, expected float"),
            ({"inputs": {"nope": [[1, 2, 3, 4]]}}, 400, "has no input 'nope'; it takes: measurements"),
            ({"inputs": {}}, 400, "needs input 'measurements'"),
            ({"x": 1}, 400, 'unknown key "x"'),
            ({}, 400, 'needs either "input" or "inputs"'),
            ({"input": IRIS, "model": "none"}, 404, "'none' is not found"),
            ({"input": IRIS, "version": "9"}, 404, "version '9'"),
            (b'{"input": [[NaN, 1, 2, 3]]}', 400, "malformed JSON"),
            (b'{"input": [[1e999, 1, 2, 3]]}', 400, "element 0 is a number out of range"),
            (b'{"input": [[1, 2, 3, 4]]', 400, "malformed JSON"),
            (b'{"input": 1, "input": 2}', 400, "stands twice"),
            (b"[" * 100000, 400, "JSON"),
            (b"", 400, "empty"),
            (b"null", 400, "must be a JSON object"),
        ]
        for body, wanted, text in cases:
            status, headers, answer = self.request("/predict", body, method="POST")
            self.assertEqual(status, wanted, body)
            self.assertEqual(headers["Content-Type"], "application/json")
            self.assertIn(text, json.loads(answer)["error"], body)
        self.assertTrue(self.daemon.alive())

    def test_keys_in_any_order(self):
        for body in ({"input": IRIS, "model": "iris_forest"}, {"input": IRIS, "version": "1"},
                     {"version": 1, "input": IRIS, "model": "iris_forest"}, {"inputs": {"measurements": IRIS}}):
            status, _, answer = self.request("/predict", body, method="POST")
            self.assertEqual(status, 200, answer)
            self.assertEqual(json.loads(answer)["predictions"]["label"], [0, 2])
        # What is read for the default model first may be wrong for it.
        pixels = [[[0.5] * 8] * 8]
        for body in ({"input": [pixels], "model": "digits_cnn"}, {"model": "digits_cnn", "input": [pixels]}):
            status, _, answer = self.request("/predict", body, method="POST")
            self.assertEqual(status, 200, answer)
            self.assertEqual(json.loads(answer)["model"], "digits_cnn")
        for body in ({"input": [[1, 2]], "model": "none"}, {"input": [[1, 2]], "version": "9"}):
            self.assertEqual(self.request("/predict", body, method="POST")[0], 404, body)

    def test_without_default_the_error_names_models_and_a_url(self):
        with daemon.Daemon(daemon.MODELS) as other:
            request = urllib.request.Request(other.url + "/predict", data=b'{"input": [1]}')
            with self.assertRaises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request)
            with caught.exception as error:
                text = json.loads(error.read())["error"]
            self.assertIn("digits_cnn, digits_rows, iris_forest", text)
            self.assertIn("POST /predict/digits_cnn", text)

    def test_sequences_of_maps_are_objects(self):
        nodes = [helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[7, 8])]
        model = daemon.model_of(nodes, [("x", TensorProto.FLOAT, [None, 2])], [])
        value = helper.make_sequence_type_proto(
            helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [])))
        model.graph.output.append(helper.make_value_info("y", value))
        model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
        with daemon.repository(zip=model) as folder, daemon.Daemon(folder) as other:
            request = urllib.request.Request(other.url + "/predict", data=b'{"input": [[0.25, 0.75]]}')
            with urllib.request.urlopen(request) as answer:
                self.assertEqual(json.loads(answer.read())["prediction"], [{"7": 0.25, "8": 0.75}])


class Health(Rest):
    def test_paths(self):
        self.assertEqual(self.request("/health")[2], b'{"status":"healthy","model_loaded":true}')
        for path in ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"):
            self.assertEqual(self.request(path)[0], 200, path)
            self.assertEqual(self.request(path, method="HEAD")[2], b"", path)

    def test_not_healthy_without_a_model(self):
        with daemon.repository(broken=daemon.model_of(
            [helper.make_node("Unheard", ["x"], ["y"], domain="acme")],
            [("x", TensorProto.STRING, [1])], [("y", TensorProto.STRING, [1])],
        )) as folder:
            process = subprocess.Popen(
                [daemon.BINARY, "serve", folder, "--http-port", "0", "--grpc-port", "0",
                 "--metrics-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                url = re.search(r"http://[0-9.:]+", process.stdout.readline()).group(0)
                with self.assertRaises(urllib.error.HTTPError) as caught:
                    urllib.request.urlopen(url + "/health")
                with caught.exception as error:
                    self.assertEqual(error.code, 503)
                    self.assertEqual(error.read(), b'{"status":"unhealthy","model_loaded":false}')
                urllib.request.urlopen(url + "/health/live").close()
            finally:
                process.kill()
                process.communicate()

    def test_methods_and_unknown_paths(self):
        self.assertEqual(self.request("/predict")[0], 405)
        status, headers, _ = self.request("/health", b"x", method="POST")
        self.assertEqual((status, headers["Allow"]), (405, "GET, HEAD"))
        for path in ("/nothing", "/v2/models", "/v2/models/iris_forest/nothing", "/predict/a/b"):
            self.assertEqual(self.request(path)[0], 404, path)

    def test_metrics_are_clean_and_count(self):
        self.request("/predict", {"input": IRIS})
        text = self.request("/metrics")[2].decode()
        series = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if not line.startswith("#")}
        self.assertTrue(all(name.startswith(("onnxd_", "process_")) for name in series), series)
        self.assertGreaterEqual(len(series), 10)
        self.assertIn('le="0.0001"', text)
        self.assertRegex(text, r'onnxd_requests_total\{code="OK",model="iris_forest",protocol="http",version="1"\} [1-9]')
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.metrics_port}/metrics") as answer:
            self.assertEqual(answer.status, 200)
        for name in ("batch_fill_ratio", "batch_wait_seconds", "parse_duration_seconds", "serialize_duration_seconds",
                     "instance_busy_seconds_total", "saturation_ratio", "model_last_load_timestamp_seconds",
                     "allocator_bytes", "queue_depth", "inflight_requests", "build_info"):
            self.assertIn(f"# TYPE onnxd_{name} ", text)
        self.assertIn('onnxd_model_state{model="iris_forest",state="ready",version="1"} 1', text)
        for name in ("cpu_seconds_total", "open_fds", "max_fds", "virtual_memory_bytes", "resident_memory_bytes",
                     "start_time_seconds"):
            self.assertRegex(text, rf"\nprocess_{name} [1-9]|\nprocess_{name} 0\.")
        started = float(re.search(r"^process_start_time_seconds (\S+)", text, re.MULTILINE)[1])
        self.assertLess(abs(time.time() - started), 600)
        self.check_with_promtool(text)

    def test_metrics_by_the_names_of_triton(self):
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_SERVER_METRICS_COMPAT": "triton"}) as other:
            body = json.dumps({"input": IRIS}).encode()
            urllib.request.urlopen(urllib.request.Request(other.url + "/predict/iris_forest", data=body)).close()
            with urllib.request.urlopen(f"http://127.0.0.1:{other.metrics_port}/metrics") as answer:
                text = answer.read().decode()
        self.assertIn('nv_inference_request_success{model="iris_forest",version="1"} 1\n', text)
        self.assertRegex(text, r'nv_inference_count{model="iris_forest",version="1"} [12]\n')
        self.assertNotIn("nv_", self.request("/metrics")[2].decode())

    def check_with_promtool(self, text):
        promtool = shutil.which("promtool")
        if promtool is None:
            self.skipTest("promtool (Debian's prometheus package) is not installed")
        checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))


class OpenInference(Rest):
    def infer(self, body, model="iris_forest"):
        status, _, answer = self.request(f"/v2/models/{model}/infer", body, method="POST")
        return status, json.loads(answer)

    def input(self, **changes):
        return {"name": "measurements", "shape": [1, 4], "datatype": "FP32", "data": IRIS[0], **changes}

    def test_json(self):
        status, answer = self.infer({"id": "q1", "inputs": [self.input()], "outputs": [{"name": "label"}]})
        self.assertEqual(status, 200)
        self.assertEqual(answer["id"], "q1")
        self.assertEqual(answer["outputs"], [{"name": "label", "datatype": "INT64", "shape": [1], "data": [0]}])

    def test_nested_data_and_versions(self):
        body = {"inputs": [self.input(shape=[2, 4], data=IRIS)]}
        status, _, answer = self.request("/v2/models/iris_forest/versions/1/infer", body)
        self.assertEqual(status, 200)
        self.assertEqual(json.loads(answer)["outputs"][0]["data"], [0, 2])

    def test_keys_in_any_order(self):
        fields = list(self.input(parameters={"any": [{"thing": [1]}]}).items())
        for order in itertools.permutations(fields):
            for outer in (("inputs", "outputs", "id"), ("id", "outputs", "inputs")):
                body = {"inputs": [dict(order), ], "outputs": [{"name": "label"}], "id": "x"}
                status, answer = self.infer({key: body[key] for key in outer})
                self.assertEqual((status, answer.get("outputs", [{}])[0].get("data")), (200, [0]), answer)

    def test_nan_and_infinity(self):
        nodes = [helper.make_node("Identity", ["x"], ["y"])]
        shape = [("x", TensorProto.FLOAT, [None])], [("y", TensorProto.FLOAT, [None])]
        text = '{"inputs":[{"name":"x","shape":[4],"datatype":"FP32","data":[NaN,Infinity,-Infinity,1]}]}'
        binary = text[:-1] + ',"parameters":{"binary_data_output":true}}'
        with daemon.repository(same=daemon.model_of(nodes, *shape)) as folder:
            for form, wanted in (("null", [None, None, None, 1]), ("token", [math.nan, math.inf, -math.inf, 1]),
                                 ("error", None)):
                with daemon.Daemon(folder, environment={"ONNXD_SERVER_JSON_NON_FINITE": form}) as other:
                    def send(path, body):
                        request = urllib.request.Request(other.url + path, data=body.encode())
                        try:
                            with urllib.request.urlopen(request) as answer:
                                return answer.status, answer.read()
                        except urllib.error.HTTPError as error:
                            with error:
                                return error.code, error.read()

                    status, answer = send("/v2/models/same/infer", text)
                    if wanted is None:
                        self.assertEqual(status, 500, answer)
                        self.assertIn("json_non_finite", json.loads(answer)["error"])
                    else:
                        self.assertEqual(status, 200, answer)
                        self.assertEqual(repr(json.loads(answer)["outputs"][0]["data"]), repr([
                            None if value is None else float(value) if value != 1 else 1 for value in wanted]))
                    status, answer = send("/v2/models/same/infer", binary)
                    self.assertEqual(status, 200)
                    numpy.testing.assert_array_equal(numpy.frombuffer(answer[-16:], numpy.float32),
                                                     [math.nan, math.inf, -math.inf, 1])
                    self.assertEqual(send("/predict", '{"input": [NaN]}')[0], 400)
                    with urllib.request.urlopen(other.url + "/metrics") as metrics:
                        self.assertIn('onnxd_non_finite_outputs_total{model="same",version="1"} 3\n',
                                      metrics.read().decode())

    def test_bad_requests(self):
        cases = [
            (self.input(shape=[1, 5]), "its shape [1, 5] needs 5"),
            (self.input(shape=[-1, 4]), "numbers >= 0"),
            (self.input(shape=[2**32, 2**32]), "too many elements"),
            (self.input(shape=[2**31]), "more elements than the request can hold"),
            (self.input(datatype="FP64"), "expected float[batch, 4], got double[1, 4]"),
            (self.input(datatype="float"), "unknown datatype"),
            (self.input(name="nope"), "has no input 'nope'"),
            (self.input(data=None), "data must be an array"),
            (self.input(data=[1, 2, 3, None]), "null"),
            (self.input(extra=1), 'unknown key "extra"'),
            ({"name": "measurements"}, "needs name, shape and datatype"),
        ]
        for bad, text in cases:
            status, answer = self.infer({"inputs": [bad]})
            self.assertEqual(status, 400, bad)
            self.assertIn(text, answer["error"])
        twice = [self.input(), self.input()]
        self.assertIn("given twice", self.infer({"inputs": twice})[1]["error"])
        many = [{"name": "label"}] * 2
        self.assertIn("requested twice", self.infer({"inputs": [self.input()], "outputs": many})[1]["error"])
        self.assertEqual(self.infer({"inputs": [self.input()]}, "none")[0], 404)

    def test_binary_extension_faults(self):
        def send(json_part, binary, header):
            return self.request("/v2/models/iris_forest/infer", json_part + binary, method="POST",
                                headers={"Inference-Header-Content-Length": header})[0]

        def part(size):
            return json.dumps({"inputs": [{"name": "measurements", "shape": [1, 4], "datatype": "FP32",
                                           "parameters": {"binary_data_size": size}}]}).encode()

        row = struct.pack("<4f", *IRIS[0])
        good = part(16)
        self.assertEqual(send(good, row, str(len(good))), 200)
        for header in ("-1", "+1", "0x10", "99999999999999999999", str(len(good) + 17), "", "5"):
            self.assertEqual(send(good, row, header), 400, header)
        for size, binary in ((15, row[:15]), (16, row[:8]), (16, row + b"x"), (2**63, row)):
            bad = part(size)
            self.assertEqual(send(bad, binary, str(len(bad))), 400, size)
        self.assertEqual(send(b"", row, "0"), 200)  # a raw request
        self.assertEqual(send(b"", row[:7], "0"), 400)

    def test_tritonclient(self):
        client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{self.daemon.http_port}")
        self.assertTrue(client.is_server_live() and client.is_server_ready())
        self.assertTrue(client.is_model_ready("iris_forest"))
        self.assertFalse(client.is_model_ready("none"))
        self.assertEqual(client.get_server_metadata()["name"], "onnxd")
        self.assertEqual(client.get_model_metadata("iris_forest")["inputs"][0]["shape"], [-1, 4])
        data = numpy.array(IRIS, numpy.float32)
        for binary in (True, False):
            entry = tritonclient.http.InferInput("measurements", [2, 4], "FP32")
            entry.set_data_from_numpy(data, binary_data=binary)
            outputs = [tritonclient.http.InferRequestedOutput("label", binary_data=binary),
                       tritonclient.http.InferRequestedOutput("probabilities", binary_data=not binary)]
            answer = client.infer("iris_forest", [entry], outputs=outputs, request_id="7")
            self.assertEqual(answer.as_numpy("label").tolist(), [0, 2])
            self.assertEqual(answer.as_numpy("probabilities").shape, (2, 3))
        client.close()

    def test_every_datatype_through_tritonclient(self):
        types = {"BOOL": (TensorProto.BOOL, bool), "UINT8": (TensorProto.UINT8, numpy.uint8),
                 "INT16": (TensorProto.INT16, numpy.int16), "INT64": (TensorProto.INT64, numpy.int64),
                 "UINT64": (TensorProto.UINT64, numpy.uint64), "FP16": (TensorProto.FLOAT16, numpy.float16),
                 "FP32": (TensorProto.FLOAT, numpy.float32), "FP64": (TensorProto.DOUBLE, numpy.float64),
                 "BYTES": (TensorProto.STRING, numpy.object_)}
        models = {name: daemon.identity_model(number) for name, (number, _) in types.items()}
        with daemon.repository(**models) as folder, daemon.Daemon(folder) as other:
            client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{other.http_port}")
            for name, (_, dtype) in types.items():
                values = [b"ab", b"", "\u00e9".encode()] if name == "BYTES" else [0, 1, 1]
                data = numpy.array(values, dtype)
                for binary in (True, False):
                    if name == "FP16" and not binary:
                        continue  # the client sends FP16 as binary alone
                    for count in (3, 0):
                        entry = tritonclient.http.InferInput("x", [count], name)
                        entry.set_data_from_numpy(data[:count], binary_data=binary)
                        answer = client.infer(name, [entry]).as_numpy("y")
                        self.assertEqual(answer.tolist(), data[:count].tolist(), name)
            client.close()


if __name__ == "__main__":
    unittest.main()

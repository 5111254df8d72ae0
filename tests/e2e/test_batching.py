"""Requests of many clients that share runs, deadlines and overload, seen from outside."""

import concurrent.futures
import http.client
import json
import pathlib
import re
import time
import unittest
import urllib.error
import urllib.request

import numpy
from onnx import TensorProto, helper

import daemon


def wide_model(size=512, repeats=4):
    """Rows through wide layers: cheaper together than alone."""
    weights = numpy.random.default_rng(1).standard_normal((size, size)).astype(numpy.float32) / size ** 0.5
    nodes = [helper.make_node("MatMul", [f"h{i}" if i else "x", "w"], [f"h{i + 1}"]) for i in range(repeats)]
    return daemon.model_of(
        nodes, [("x", TensorProto.FLOAT, ["batch", size])], [(f"h{repeats}", TensorProto.FLOAT, ["batch", size])],
        [("w", weights)])


def mixing_model():
    """The mean over the batch is taken off each row."""
    return daemon.model_of(
        [helper.make_node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=1), helper.make_node("Sub", ["x", "m"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch", 4])], [("y", TensorProto.FLOAT, ["batch", 4])])


class Batching(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.repository = daemon.repository(wide=wide_model(), mixing=mixing_model(), slow=daemon.slow_model())
        cls.daemon = daemon.Daemon(cls.repository.__enter__())
        cls.daemon.logged("model 'wide': ")

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()
        cls.repository.__exit__(None, None, None)

    def post(self, model, rows, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.daemon.http_port, timeout=60)
        connection.request("POST", f"/predict/{model}", json.dumps({"input": rows}), headers or {})
        answer = connection.getresponse()
        document = json.loads(answer.read())
        connection.close()
        return answer.status, dict(answer.getheaders()), document

    def batches(self, model):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.daemon.metrics_port}/metrics") as response:
            text = response.read().decode()
        found = (re.search(rf'onnxd_batch_size_{part}{{model="{model}",version="1"}} (\S+)', text)
                 for part in ("count", "sum"))
        return [float(value[1]) for value in found]

    def test_many_clients_get_what_they_would_get_alone(self):
        random = numpy.random.default_rng(2)
        rows = [random.standard_normal((1 + i % 3, 512)).round(3).tolist() for i in range(48)]
        alone = [self.post("wide", row)[2]["prediction"] for row in rows]
        runs, computed = self.batches("wide")
        with concurrent.futures.ThreadPoolExecutor(48) as clients:
            for _ in range(4):
                together = list(clients.map(lambda row: self.post("wide", row)[2]["prediction"], rows))
                for expected, came in zip(alone, together):
                    numpy.testing.assert_allclose(came, expected, rtol=1e-4, atol=1e-5)
        more_runs, more_computed = self.batches("wide")
        self.assertEqual(more_computed - computed, 4 * sum(len(row) for row in rows))
        self.assertLess(more_runs - runs, 4 * 48)  # some shared a run

    def test_one_bad_request_fails_alone(self):
        good, bad = [[0.5] * 512], [[0.5] * 511]
        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            codes = list(clients.map(lambda i: self.post("wide", bad if i % 5 == 0 else good)[0], range(40)))
        self.assertEqual(codes, [400 if i % 5 == 0 else 200 for i in range(40)])

    def test_a_model_that_mixes_rows_runs_requests_alone_and_says_why(self):
        self.assertTrue(self.daemon.logged("requests run alone, max_batch_size 1: node"))
        with concurrent.futures.ThreadPoolExecutor(16) as clients:
            answers = list(clients.map(lambda i: self.post("mixing", [[float(i)] * 4])[2]["prediction"], range(64)))
        self.assertEqual(answers, [[[0.0] * 4]] * 64)

    def test_more_rows_than_a_batch_holds(self):
        rows = numpy.random.default_rng(3).standard_normal((700, 512)).round(2)
        status, _, document = self.post("wide", rows.tolist())
        self.assertEqual(status, 200)
        self.assertEqual(len(document["prediction"]), 700)
        _, _, last = self.post("wide", rows[-1:].tolist())
        numpy.testing.assert_allclose(document["prediction"][-1], last["prediction"][0], rtol=1e-4, atol=1e-5)

    def test_a_deadline_in_a_header(self):
        rows = [[0.0] * 700] * 300
        self.assertEqual(self.post("slow", rows)[0], 200)
        status, _, document = self.post("slow", rows, {"X-Request-Timeout-Ms": "5"})
        self.assertEqual(status, 504, document)
        self.assertEqual(self.post("slow", rows, {"X-Request-Timeout-Ms": "60000"})[0], 200)
        for wrong in ("0", "-1", "1e3", "soon", "99999999999"):
            self.assertEqual(self.post("slow", rows[:1], {"X-Request-Timeout-Ms": wrong})[0], 400, wrong)

    def test_a_deadline_counts_from_the_first_byte(self):
        named = {"inputs": [{"name": "x", "shape": [1, 700], "datatype": "FP32", "data": [0.0] * 700}]}
        for path, document, headers, expected in (
                ("/predict/slow", {"input": [[0.0] * 700]}, {"X-Request-Timeout-Ms": "300"}, 504),
                ("/v2/models/slow/infer", {**named, "parameters": {"timeout": 300000}}, {}, 504),
                ("/v2/models/slow/infer", {**named, "parameters": {"timeout": 60000000}}, {}, 200)):
            with self.subTest(path=path, headers=headers, expected=expected):
                body = json.dumps(document).encode()
                connection = http.client.HTTPConnection("127.0.0.1", self.daemon.http_port, timeout=60)
                connection.putrequest("POST", path)
                for name, value in {**headers, "Content-Length": len(body)}.items():
                    connection.putheader(name, value)
                connection.endheaders(body[:100])
                time.sleep(0.5)
                connection.send(body[100:])
                self.assertEqual(connection.getresponse().status, expected)
                connection.close()

    def test_what_cannot_be_in_time_is_refused_at_once_and_elsewhere_may_help(self):
        rows = [[0.0] * 700] * 200
        begin = time.monotonic()
        self.assertEqual(self.post("slow", rows)[0], 200)
        alone = time.monotonic() - begin
        headers = {"X-Request-Timeout-Ms": str(int(alone * 3000) + 1)}

        def timed(_):
            begin = time.monotonic()
            status, fields, _ = self.post("slow", rows, headers)
            return status, fields.get("Retry-After"), time.monotonic() - begin

        with concurrent.futures.ThreadPoolExecutor(48) as clients:
            answers = list(clients.map(timed, range(48)))
        refused = [answer for answer in answers if answer[0] == 503]
        self.assertLessEqual({answer[0] for answer in answers}, {200, 503, 504})
        self.assertTrue(refused)
        self.assertEqual({answer[1] for answer in refused}, {"1"})

    def test_priority_is_a_whole_number(self):
        def code(priority):
            body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}],
                    "parameters": {"priority": priority}}
            request = urllib.request.Request(self.daemon.url + "/v2/models/mixing/infer", json.dumps(body).encode())
            try:
                return urllib.request.urlopen(request, timeout=20).status
            except urllib.error.HTTPError as error:
                return error.code

        self.assertEqual([code(priority) for priority in (0, 1, 7, -1, 1.5, "high")], [200, 200, 200, 400, 400, 400])

    def test_probes_answer_while_every_executor_is_busy(self):
        rows = [[0.0] * 700] * 400
        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            running = [clients.submit(self.post, "slow", rows) for _ in range(8)]
            while not all(future.done() for future in running):
                with urllib.request.urlopen(self.daemon.url + "/health/live", timeout=5) as response:
                    self.assertEqual(response.status, 200)
            self.assertEqual({future.result()[0] for future in running}, {200})


class ManyModels(unittest.TestCase):
    def test_the_number_of_threads_depends_on_no_model_and_no_client(self):
        models = {f"m{i}": mixing_model() if i % 8 == 0 else wide_model(16, 1) for i in range(64)}
        with daemon.repository(**models) as folder, daemon.Daemon(folder) as running:
            self.assertTrue(running.logged("model 'm9': "))  # the last one to be tried
            tasks = pathlib.Path(f"/proc/{running.process.pid}/task")
            before = len(list(tasks.iterdir()))

            def call(i):
                name = f"m{i * 37 % 64}"
                body = json.dumps({"input": [[1.0] * (4 if i * 37 % 64 % 8 == 0 else 16)]}).encode()
                with urllib.request.urlopen(f"{running.url}/predict/{name}", body, timeout=60) as response:
                    return response.status

            with concurrent.futures.ThreadPoolExecutor(32) as clients:
                codes = set(clients.map(call, range(640)))
            self.assertEqual(codes, {200})
            self.assertEqual(len(list(tasks.iterdir())), before)


if __name__ == "__main__":
    unittest.main()

"""Traces: W3C Trace Context in and out, spans for a collector, and Triton's trace extension."""

import json
import os
import secrets
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import grpc
import numpy
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

import daemon
from collector import Collector, attributes

PREDICT = json.dumps({"input": [[5.1, 3.5, 1.4, 0.2]]}).encode()
PHASES = ("read", "queue", "compute", "write")


def parent(sampled=True):
    """(traceparent, trace id, span id)"""
    trace, span = secrets.token_hex(16), secrets.token_hex(8)
    return f"00-{trace}-{span}-{'01' if sampled else '00'}", trace, span


def predict(server, body=PREDICT, headers={}, model="iris_forest"):
    """(status, headers)"""
    request = urllib.request.Request(f"{server.url}/predict/{model}", data=body, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            answer.read()
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def metric(server, name):
    with urllib.request.urlopen(server.url + "/metrics", timeout=20) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[-1])
    return None


class WithCollector(unittest.TestCase):
    def setUp(self):
        self.collector = Collector()
        self.addCleanup(self.collector.close)
        self.daemon = daemon.Daemon(daemon.MODELS, environment={
            "ONNXD_TRACING_ENDPOINT": self.collector.url, "ONNXD_LOG_REQUESTS": "all"})
        self.addCleanup(self.daemon.close)


class Spans(WithCollector):
    def test_a_request_over_rest_continues_its_clients_trace(self):
        traceparent, trace, span = parent()
        status, headers = predict(self.daemon, headers={"traceparent": traceparent, "tracestate": "a=b"})
        self.assertEqual(status, 200)
        spans = self.collector.of_trace(trace, 4)
        request = spans["infer iris_forest"]
        self.assertEqual(request.parent_span_id.hex(), span)
        self.assertEqual(request.trace_state, "a=b")
        self.assertEqual(request.kind, request.SPAN_KIND_SERVER)
        self.assertEqual(headers["traceparent"], f"00-{trace}-{request.span_id.hex()}-01")
        found = attributes(request)
        self.assertEqual(found["onnxd.model.name"], "iris_forest")
        self.assertEqual(found["network.protocol.name"], "http")
        self.assertEqual(found["onnxd.request.id"], headers["X-Request-Id"])
        self.assertEqual(self.collector.resource["service.name"], "onnxd")
        self.assertEqual(self.collector.paths, {"/v1/traces"})

    def test_its_phases_are_spans_within_it(self):
        traceparent, trace, _ = parent()
        predict(self.daemon, headers={"traceparent": traceparent})
        spans = self.collector.of_trace(trace, 4)
        request = spans.pop("infer iris_forest")
        self.assertLessEqual({"read", "compute", "write"}, set(spans))
        self.assertLessEqual(set(spans), set(PHASES))
        before = request.start_time_unix_nano
        for name in PHASES:
            if name not in spans:
                continue
            phase = spans[name]
            self.assertEqual(phase.parent_span_id, request.span_id)
            self.assertLessEqual(before, phase.start_time_unix_nano)
            self.assertLess(phase.start_time_unix_nano, phase.end_time_unix_nano)
            self.assertLessEqual(phase.end_time_unix_nano, request.end_time_unix_nano)
            before = phase.end_time_unix_nano
        self.assertLess(abs(request.end_time_unix_nano / 1e9 - time.time()), 60)

    def test_a_call_over_grpc_continues_its_clients_trace(self):
        traceparent, trace, span = parent()
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.daemon.grpc_port}") as client:
            tensor = tritonclient.grpc.InferInput("measurements", [1, 4], "FP32")
            tensor.set_data_from_numpy(numpy.zeros((1, 4), numpy.float32))
            client.infer("iris_forest", [tensor], headers={"traceparent": traceparent})
        request = self.collector.of_trace(trace, 4)["infer iris_forest"]
        self.assertEqual(request.parent_span_id.hex(), span)
        self.assertEqual(attributes(request)["network.protocol.name"], "grpc")
        self.assertEqual(attributes(request)["rpc.grpc.status_code"], 0)

    def test_the_answer_of_a_call_names_its_span(self):
        traceparent, trace, _ = parent()
        with grpc.insecure_channel(f"127.0.0.1:{self.daemon.grpc_port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ServerMetadata")
            _, done = call.with_call(b"", metadata=[("traceparent", traceparent)])
            self.assertIn(f"00-{trace}-", dict(done.initial_metadata())["traceparent"])
            with self.assertRaises(grpc.RpcError) as raised:
                channel.unary_unary("/inference.GRPCInferenceService/Nothing")(
                    b"", metadata=[("traceparent", traceparent)])
            sent = dict(raised.exception.trailing_metadata()) | dict(raised.exception.initial_metadata())
            self.assertIn(f"00-{trace}-", sent["traceparent"])

    def test_each_message_of_a_stream_is_a_span_of_its_own(self):
        traceparent, trace, span = parent()
        answers = []
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.daemon.grpc_port}") as client:
            client.start_stream(lambda result, error: answers.append(error),
                                headers={"traceparent": traceparent})
            tensor = tritonclient.grpc.InferInput("measurements", [1, 4], "FP32")
            tensor.set_data_from_numpy(numpy.zeros((1, 4), numpy.float32))
            for _ in range(3):
                client.async_stream_infer("iris_forest", [tensor])
            client.stop_stream()
        self.assertEqual(answers, [None] * 3)
        deadline = time.time() + 10
        found = set()
        while len(found) < 3 and time.time() < deadline:
            found = {s.span_id for s in list(self.collector.spans)
                     if s.trace_id.hex() == trace and s.parent_span_id.hex() == span}
            time.sleep(0.02)
        self.assertEqual(len(found), 3)

    def test_failures_say_why(self):
        for body, model, text, code in (
                (b'{"input":[[1]]}', "iris_forest", "measurements", "INVALID_ARGUMENT"),
                (PREDICT, "nothing", "nothing", "NOT_FOUND")):
            traceparent, trace, _ = parent()
            status, headers = predict(self.daemon, body, {"traceparent": traceparent}, model)
            self.assertGreaterEqual(status, 400)
            self.assertIn(trace, headers["traceparent"])
            spans = self.collector.of_trace(trace, 1)
            request = next(span for name, span in spans.items() if name.startswith("infer"))
            self.assertEqual(request.status.code, request.status.STATUS_CODE_ERROR)
            self.assertIn(text, request.status.message)
            self.assertEqual(attributes(request)["error.type"], code)

    def test_traces_that_are_not_sampled_are_not_sent(self):
        traceparent, trace, _ = parent(sampled=False)
        _, headers = predict(self.daemon, headers={"traceparent": traceparent})
        self.assertRegex(headers["traceparent"], f"^00-{trace}-[0-9a-f]{{16}}-00$")
        later, other, _ = parent()
        predict(self.daemon, headers={"traceparent": later})
        self.assertTrue(self.collector.of_trace(other, 1))
        self.assertFalse(self.collector.of_trace(trace, 1, timeout=0))

    def test_a_request_without_a_trace_begins_one(self):
        for headers in ({}, {"traceparent": "nonsense"}):
            _, headers = predict(self.daemon, headers=headers)
            trace = headers["traceparent"].split("-")[1]
            request = self.collector.of_trace(trace, 4)["infer iris_forest"]
            self.assertEqual(request.parent_span_id, b"")

    def test_the_log_names_the_trace(self):
        traceparent, trace, _ = parent()
        predict(self.daemon, headers={"traceparent": traceparent})
        self.assertTrue(self.daemon.logged(f"trace {trace}"))

    def test_sent_spans_are_counted(self):
        _, headers = predict(self.daemon)
        self.collector.of_trace(headers["traceparent"].split("-")[1], 4)
        deadline = time.time() + 10
        while metric(self.daemon, 'onnxd_trace_spans_total{result="sent"}') == 0 and time.time() < deadline:
            time.sleep(0.02)
        self.assertGreaterEqual(metric(self.daemon, 'onnxd_trace_spans_total{result="sent"}'), 1)


class Settings(WithCollector):
    def clients(self):
        http = tritonclient.http.InferenceServerClient(f"127.0.0.1:{self.daemon.http_port}")
        self.addCleanup(http.close)
        rpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.daemon.grpc_port}")
        self.addCleanup(rpc.close)
        # (client, settings as a dictionary of lists)
        return ((http, lambda s: {k: v if isinstance(v, list) else [v] for k, v in s.items()}),
                (rpc, lambda s: {k: list(v.value) for k, v in s.settings.items()}))

    def test_are_read_and_changed(self):
        for client, listed in self.clients():
            self.assertEqual(listed(client.get_trace_settings()),
                             {"trace_file": [""], "trace_level": ["TIMESTAMPS"], "trace_rate": ["1"],
                              "trace_count": ["-1"], "trace_mode": ["opentelemetry"], "log_frequency": ["0"]})
            changed = listed(client.update_trace_settings(
                settings={"trace_level": ["OFF"], "trace_rate": "500", "trace_count": "7"}))
            self.assertEqual([changed[k] for k in ("trace_level", "trace_rate", "trace_count")],
                             [["OFF"], ["500"], ["7"]])
            back = listed(client.update_trace_settings(
                settings={"trace_level": None, "trace_rate": None, "trace_count": None}))
            self.assertEqual([back[k] for k in ("trace_level", "trace_rate", "trace_count")],
                             [["TIMESTAMPS"], ["1"], ["-1"]])

    def test_off_is_off(self):
        client, _ = self.clients()[0]
        client.update_trace_settings(settings={"trace_level": ["OFF"]})
        traceparent, trace, _ = parent()
        predict(self.daemon, headers={"traceparent": traceparent})
        client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})
        later, other, _ = parent()
        predict(self.daemon, headers={"traceparent": later})
        self.assertTrue(self.collector.of_trace(other, 1))
        self.assertFalse(self.collector.of_trace(trace, 1, timeout=0))

    def test_of_a_model_alone(self):
        for client, listed in self.clients():
            client.update_trace_settings("iris_forest", {"trace_level": ["OFF"]})
            self.assertEqual(listed(client.get_trace_settings("iris_forest"))["trace_level"], ["OFF"])
            self.assertEqual(listed(client.get_trace_settings())["trace_level"], ["TIMESTAMPS"])
            client.update_trace_settings("iris_forest", {"trace_level": None})
            self.assertEqual(listed(client.get_trace_settings("iris_forest"))["trace_level"], ["TIMESTAMPS"])

    def test_what_makes_no_sense_is_refused(self):
        for client, listed in self.clients():
            before = listed(client.get_trace_settings())
            for model, settings, text in (
                    (None, {"trace_file": "/tmp/x"}, "trace_file"),
                    (None, {"trace_level": ["TENSORS"]}, "TENSORS"),
                    (None, {"trace_rate": "0"}, "trace_rate"),
                    (None, {"trace_rate": "many"}, "trace_rate"),
                    (None, {"trace_count": "-2"}, "trace_count"),
                    (None, {"trace_colour": "red"}, "trace_colour"),
                    ("nothing", {"trace_rate": "2"}, "nothing")):
                with self.assertRaisesRegex(InferenceServerException, text):
                    client.update_trace_settings(model, settings)
            self.assertEqual(listed(client.get_trace_settings()), before)

    def test_of_a_version_are_those_of_its_model(self):
        url = f"{self.daemon.url}/v2/models/iris_forest/versions/1/trace/setting"
        with urllib.request.urlopen(url, timeout=20) as answer:
            self.assertEqual(json.load(answer)["trace_rate"], "1")
        request = urllib.request.Request(url, data=b'{"trace_rate": 5}')
        with self.assertRaises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(request, timeout=20)
        self.assertEqual(raised.exception.code, 400)


class Collectors(unittest.TestCase):
    def serve(self, **environment):
        server = daemon.Daemon(daemon.MODELS, environment=environment)
        self.addCleanup(server.close)
        return server

    def test_without_one_traces_are_named_and_nothing_is_recorded(self):
        server = self.serve()
        traceparent, trace, _ = parent()
        _, headers = predict(server, headers={"traceparent": traceparent})
        self.assertIn(trace, headers["traceparent"])
        _, headers = predict(server)
        self.assertIsNone(headers["traceparent"])
        with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
            self.assertEqual(client.get_trace_settings()["trace_level"], ["OFF"])
            with self.assertRaisesRegex(InferenceServerException, "tracing.endpoint"):
                client.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]})

    def test_one_that_is_away_holds_nothing_up(self):
        server = self.serve(ONNXD_TRACING_ENDPOINT="http://127.0.0.1:1", ONNXD_LIMITS_DRAIN_DELAY_S="0")
        self.assertEqual(predict(server)[0], 200)
        self.assertTrue(server.logged("spans are not taken"))
        start = time.time()
        server.terminate()
        self.assertLess(time.time() - start, 10)

    def test_is_sent_the_headers_of_the_file(self):
        collector = Collector()
        self.addCleanup(collector.close)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("x-team: blue\n\nAuthorization:  Bearer abc \n")
            file.flush()
            server = self.serve(ONNXD_TRACING_ENDPOINT=collector.url + "/otlp/traces",
                                ONNXD_TRACING_HEADER_FILE=file.name, ONNXD_TRACING_SERVICE_NAME="flowers")
        _, headers = predict(server)
        self.assertTrue(collector.of_trace(headers["traceparent"].split("-")[1], 4))
        self.assertEqual(collector.headers["x-team"], "blue")
        self.assertEqual(collector.headers["authorization"], "Bearer abc")
        self.assertEqual(collector.headers["content-type"], "application/json")
        self.assertEqual(collector.paths, {"/otlp/traces"})
        self.assertEqual(collector.resource["service.name"], "flowers")

    def test_settings_that_cannot_work_are_refused_at_the_start(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("no header\n")
            file.flush()
            for environment, text in (
                    ({"ONNXD_TRACING_ENDPOINT": "collector:4318"}, "tracing.endpoint"),
                    ({"ONNXD_TRACING_ENDPOINT": "http://c", "ONNXD_TRACING_HEADER_FILE": "/nowhere"},
                     "tracing.header_file"),
                    ({"ONNXD_TRACING_ENDPOINT": "http://c", "ONNXD_TRACING_HEADER_FILE": file.name}, "line 1"),
                    ({"ONNXD_TRACING_ENDPOINT": "https://c", "ONNXD_TRACING_CA": "/nowhere"}, "tracing.ca"),
                    ({"ONNXD_TRACING_RATE": "0"}, "ONNXD_TRACING_RATE")):
                done = subprocess.run([daemon.BINARY, "serve", str(daemon.MODELS)], timeout=20,
                                      env={**os.environ, **environment}, capture_output=True, text=True)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(text, done.stderr)


if __name__ == "__main__":
    unittest.main()

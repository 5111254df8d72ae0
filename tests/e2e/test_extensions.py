"""Triton's extensions of the Open Inference Protocol, over REST and gRPC, with its own clients."""

import gzip
import json
import os
import pathlib
import re
import threading
import time
import unittest
import urllib.error
import urllib.request
import zlib

import grpc
import numpy
import tritonclient.grpc
import tritonclient.http
import tritonclient.utils.shared_memory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from google.protobuf.descriptor_pool import DescriptorPool
from tritonclient.utils import InferenceServerException

import daemon
import protos

IRIS = numpy.array([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]], numpy.float32)
ENVIRONMENT = {"ONNXD_SERVER_SHARED_MEMORY": "true", "ONNXD_SERVER_COMPRESS_FROM_BYTES": "2000"}
SERVICE = "inference.GRPCInferenceService"
# Answered with UNIMPLEMENTED: no model here computes on a GPU.
MISSING = {"CudaSharedMemoryRegister"}


class Extensions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = daemon.Daemon(daemon.MODELS, environment=ENVIRONMENT)
        cls.http = tritonclient.http.InferenceServerClient(f"127.0.0.1:{cls.daemon.http_port}")
        cls.grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{cls.daemon.grpc_port}")
        cls.channel = grpc.insecure_channel(f"127.0.0.1:{cls.daemon.grpc_port}")

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.grpc.close()
        cls.http.close()
        cls.daemon.close()

    def ask(self, path, body=None, headers={}):
        """(status, headers, bytes)"""
        request = urllib.request.Request(self.daemon.url + path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.headers, error.read()

    def iris(self, module):
        entry = module.InferInput("measurements", [2, 4], "FP32")
        entry.set_data_from_numpy(IRIS)
        return [entry]

    def test_every_method_answers(self):
        methods = protos.service(SERVICE).methods
        self.assertEqual(len(methods), 20)
        for method in methods:
            if method.name == "ModelStreamInfer":
                continue
            call = protos.unary(self.channel, SERVICE, method.name)
            code = grpc.StatusCode.OK
            try:
                call(protos.message(method.input_type.full_name)(), timeout=20)
            except grpc.RpcError as error:
                code = error.code()
            if method.name in MISSING:
                self.assertEqual(code, grpc.StatusCode.UNIMPLEMENTED, method.name)
            else:
                self.assertNotIn(code, (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL), method.name)

    def test_the_extensions_are_named(self):
        named = list(self.grpc.get_server_metadata().extensions)
        self.assertEqual(self.http.get_server_metadata()["extensions"], named)
        self.assertLessEqual({"binary_tensor_data", "statistics", "model_configuration"}, set(named))

    def test_the_configuration_is_the_same_over_both(self):
        over_http = self.http.get_model_config("iris_forest")
        over_grpc = self.grpc.get_model_config("iris_forest", as_json=True)["config"]
        self.assertEqual(over_grpc["name"], "iris_forest")
        self.assertEqual(over_grpc["max_batch_size"], over_http["max_batch_size"])
        self.assertEqual(over_grpc["input"][0]["data_type"], over_http["input"][0]["data_type"])
        self.assertEqual([int(dim) for dim in over_grpc["input"][0]["dims"]], over_http["input"][0]["dims"])
        with self.assertRaisesRegex(InferenceServerException, "NOT_FOUND|none"):
            self.grpc.get_model_config("none")

    def test_statistics_count_requests_rows_and_runs(self):
        def statistics():
            return self.http.get_inference_statistics("iris_forest")["model_stats"][0]
        before = statistics()
        for _ in range(5):
            self.http.infer("iris_forest", self.iris(tritonclient.http))
        with self.assertRaises(InferenceServerException):
            self.http.infer("iris_forest", [])
        after = statistics()
        grown = {name: after["inference_stats"][name]["count"] - before["inference_stats"][name]["count"]
                 for name in after["inference_stats"]}
        self.assertEqual(grown, {"success": 5, "fail": 1, "queue": 5, "compute_input": 5, "compute_infer": 5,
                                 "compute_output": 5, "cache_hit": 0, "cache_miss": 0})
        self.assertEqual(after["inference_count"] - before["inference_count"], 10)
        self.assertEqual(after["execution_count"] - before["execution_count"], 5)
        self.assertLess(abs(after["last_inference"] / 1000 - time.time()), 60)
        batches = {entry["batch_size"]: entry["compute_infer"]["count"] for entry in after["batch_stats"]}
        self.assertGreaterEqual(batches[2], 5)
        self.assertGreater(after["inference_stats"]["compute_infer"]["ns"], 0)
        over_grpc = self.grpc.get_inference_statistics("iris_forest").model_stats[0]
        self.assertEqual(over_grpc.inference_count, after["inference_count"])
        self.assertEqual(over_grpc.inference_stats.success.count, after["inference_stats"]["success"]["count"])
        everything = self.http.get_inference_statistics()["model_stats"]
        self.assertEqual({model["name"] for model in everything}, {"iris_forest", "digits_cnn", "digits_rows"})
        self.assertEqual(self.ask("/v2/models/none/stats")[0], 404)

    def test_classification(self):
        for module, client in ((tritonclient.http, self.http), (tritonclient.grpc, self.grpc)):
            plain = client.infer("iris_forest", self.iris(module)).as_numpy("probabilities")
            for count, shown in ((2, 2), (3, 3), (1000, 3)):
                wanted = [module.InferRequestedOutput("probabilities", class_count=count)]
                classes = client.infer("iris_forest", self.iris(module), outputs=wanted).as_numpy("probabilities")
                self.assertEqual(classes.shape, (2, shown))
                for row, expected in zip(classes, plain):
                    pairs = [text.decode().split(":") for text in row]
                    self.assertEqual([int(index) for _, index in pairs], numpy.argsort(-expected)[:shown].tolist())
                    numpy.testing.assert_allclose([float(value) for value, _ in pairs],
                                                  numpy.sort(expected)[::-1][:shown], atol=1e-6)
        for wrong in (0, -1, 10**9, "two"):
            body = {"inputs": [{"name": "measurements", "shape": [2, 4], "datatype": "FP32", "data": IRIS.tolist()}],
                    "outputs": [{"name": "probabilities", "parameters": {"classification": wrong}}]}
            self.assertEqual(self.ask("/v2/models/iris_forest/infer", json.dumps(body).encode())[0], 400, wrong)

    def test_log_settings(self):
        first = self.http.get_log_settings()
        self.assertEqual((first["log_info"], first["log_verbose_level"], first["log_file"]), (True, 0, ""))
        try:
            self.http.update_log_settings({"log_verbose_level": 1})
            self.assertEqual(self.grpc.get_log_settings(as_json=True)["settings"]["log_verbose_level"],
                             {"uint32_param": 1})
            self.grpc.update_log_settings({"log_verbose_level": 0, "log_info": False, "log_warning": False})
            self.assertEqual(self.http.get_log_settings(), {**first, "log_info": False, "log_warning": False})
            for wrong in ({"log_file": "/tmp/x"}, {"log_error": 1}, {"log_everything": True}, {"log_format": "xml"},
                          {"log_info": True, "log_error": False}):
                with self.assertRaises(InferenceServerException):
                    self.http.update_log_settings(wrong)
                if wrong != {"log_error": 1}:  # this client makes a flag of it
                    with self.assertRaises(InferenceServerException):
                        self.grpc.update_log_settings(wrong)
        finally:
            self.http.update_log_settings(
                {name: value for name, value in first.items() if name not in ("log_file", "log_format")})
        self.assertEqual(self.http.get_log_settings(), first)

    def test_a_stream_answers_in_order_and_survives_bad_requests(self):
        answers, done = [], threading.Event()

        def take(result, error):
            answers.append((result, error))
            if len(answers) == 200:
                done.set()
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.daemon.grpc_port}")
        client.start_stream(take)
        for i in range(200):
            model = "none" if i % 10 == 3 else "iris_forest"
            client.async_stream_infer(model, self.iris(tritonclient.grpc), request_id=str(i))
        self.assertTrue(done.wait(20))
        client.stop_stream()
        client.close()
        for i, (result, error) in enumerate(answers):
            if i % 10 == 3:
                self.assertIn("none", str(error))
            else:
                self.assertIsNone(error)
                self.assertEqual(result.get_response().id, str(i))
                self.assertTrue(result.get_response().parameters["triton_final_response"].bool_param)
                self.assertEqual(result.as_numpy("label").tolist(), [0, 2])

    def stream(self, requests, metadata=()):
        message = protos.message("inference.ModelStreamInferResponse")
        call = self.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", response_deserializer=message.FromString,
                                          request_serializer=lambda request: request.SerializeToString())
        return call(iter(requests), metadata=metadata, timeout=30)

    def request(self, name="iris_forest"):
        request = protos.message("inference.ModelInferRequest")(model_name=name)
        request.inputs.add(name="measurements", datatype="FP32", shape=IRIS.shape)
        request.raw_input_contents.append(IRIS.tobytes())
        return request

    def parse_seconds(self):
        with urllib.request.urlopen(f"{self.daemon.url}/metrics") as answer:
            return float(re.search(r'^onnxd_parse_duration_seconds_sum{protocol="grpc"} (.*)', answer.read().decode(), re.M)[1])

    def test_reading_a_message_of_a_stream_takes_no_longer_for_the_stream_being_old(self):
        def requests():
            for _ in range(4):
                time.sleep(0.3)
                yield self.request()
        before = self.parse_seconds()
        self.assertEqual(len(list(self.stream(requests()))), 4)
        self.assertLess(self.parse_seconds() - before, 0.3)

    def test_a_stream_ends_with_a_status_where_the_client_asks_for_it(self):
        with self.assertRaises(grpc.RpcError) as caught:
            list(self.stream([self.request(), self.request("none")], [("triton_grpc_error", "true")]))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.assertEqual(len(list(self.stream([self.request("none")]))), 1)
        self.assertEqual(list(self.stream([])), [])

    def test_a_stream_that_nobody_reads_is_not_read_either(self):
        sent = 0

        def endless():
            nonlocal sent
            while sent < 1_000_000:
                sent += 1
                yield self.request()
        before = self.daemon.resident_bytes()
        call = self.stream(endless())
        previous = -1
        while sent != previous:  # until it stands still
            previous = sent
            time.sleep(1)
        self.assertLess(sent, 1_000_000)
        self.assertLess(self.daemon.resident_bytes() - before, 64 << 20)
        self.assertEqual(self.http.infer("iris_forest", self.iris(tritonclient.http)).as_numpy("label").tolist(), [0, 2])
        call.cancel()

    def test_a_stream_goes_on_once_its_large_answers_are_read(self):
        rows = numpy.ones(1 << 18, numpy.float32)  # 1 MB, as large as a stream's window
        with daemon.repository(same=daemon.identity_model(1)) as folder, daemon.Daemon(folder) as served:
            request = protos.message("inference.ModelInferRequest")(model_name="same")
            request.inputs.add(name="x", datatype="FP32", shape=rows.shape)
            request.raw_input_contents.append(rows.tobytes())
            with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}",
                                       [("grpc.max_receive_message_length", -1)]) as channel:
                call = channel.stream_stream(
                    f"/{SERVICE}/ModelStreamInfer", request_serializer=lambda message: message.SerializeToString(),
                    response_deserializer=protos.message("inference.ModelStreamInferResponse").FromString)
                answers = call(iter([request] * 100), timeout=60)
                time.sleep(2)  # more is computed than may wait
                received = list(answers)
        self.assertEqual([answer.error_message for answer in received], [""] * 100)

    def test_shared_memory_for_inputs_and_outputs(self):
        shared = tritonclient.utils.shared_memory
        key = f"/onnxd_test_{self.daemon.process.pid}"
        region = shared.create_shared_memory_region("data", key, 64)
        try:
            for module, client in ((tritonclient.http, self.http), (tritonclient.grpc, self.grpc)):
                client.register_system_shared_memory("data", key, 64)
                shared.set_shared_memory_region(region, [IRIS])
                entry = module.InferInput("measurements", [2, 4], "FP32")
                entry.set_shared_memory("data", 32)
                label = module.InferRequestedOutput("label")
                label.set_shared_memory("data", 16, offset=40)
                answer = client.infer("iris_forest", [entry], outputs=[label])
                if module is tritonclient.grpc:
                    self.assertEqual(list(answer.get_response().raw_output_contents), [b""])
                if module is tritonclient.http:
                    self.assertEqual(answer.get_response()["outputs"],
                                     [{"name": "label", "datatype": "INT64", "shape": [2]}])
                self.assertEqual(shared.get_contents_as_numpy(region, numpy.int64, [2], offset=40).tolist(), [0, 2])
                label.set_shared_memory("data", 8, offset=40)
                with self.assertRaisesRegex(InferenceServerException, "label"):
                    client.infer("iris_forest", [entry], outputs=[label])
                entry.set_shared_memory("data", 32, offset=48)
                with self.assertRaisesRegex(InferenceServerException, "64"):
                    client.infer("iris_forest", [entry])
                with self.assertRaises(InferenceServerException):
                    client.register_system_shared_memory("data", key, 64)  # there is one of that name
                with self.assertRaises(InferenceServerException):
                    client.register_system_shared_memory("more", key, 65)
                for wrong in ("/../../etc/passwd", "", "/", "/..", "/no/such", "none"):
                    with self.assertRaises(InferenceServerException):
                        client.register_system_shared_memory("wrong", wrong, 4)
                client.unregister_system_shared_memory()
                with self.assertRaises(InferenceServerException):
                    client.infer("iris_forest", [entry])
            self.assertEqual(self.http.get_system_shared_memory_status(), [])
        finally:
            shared.destroy_shared_memory_region(region)

    def test_a_client_that_cuts_its_shared_memory_short_gets_an_error(self):
        path = pathlib.Path(f"/dev/shm/onnxd_short_{self.daemon.process.pid}")
        path.write_bytes(IRIS.tobytes())
        try:
            self.http.register_system_shared_memory("short", path.name, 32)
            entry = tritonclient.http.InferInput("measurements", [2, 4], "FP32")
            entry.set_shared_memory("short", 32)
            self.http.infer("iris_forest", [entry])
            os.truncate(path, 8)
            with self.assertRaisesRegex(InferenceServerException, "shorter"):
                self.http.infer("iris_forest", [entry])
            label = tritonclient.http.InferRequestedOutput("label")
            label.set_shared_memory("short", 16)
            with self.assertRaisesRegex(InferenceServerException, "shorter"):
                self.http.infer("iris_forest", self.iris(tritonclient.http), outputs=[label])
            self.assertEqual(path.stat().st_size, 8)
        finally:
            path.unlink()
            self.http.unregister_system_shared_memory("short")
        self.assertTrue(self.daemon.alive())

    def test_shared_memory_is_off_unless_it_is_configured(self):
        with daemon.embedded() as other:
            client = tritonclient.http.InferenceServerClient(f"127.0.0.1:{other.http_port}")
            with self.assertRaisesRegex(InferenceServerException, "server.shared_memory"):
                client.register_system_shared_memory("data", "/data", 64)
            client.close()

    def test_compressed_requests_and_answers(self):
        rows = numpy.tile(IRIS, (400, 1))
        entry = tritonclient.http.InferInput("measurements", rows.shape, "FP32")
        entry.set_data_from_numpy(rows)
        plain = self.http.infer("iris_forest", [entry])
        for algorithm in ("gzip", "deflate"):
            packed = self.http.infer("iris_forest", [entry], request_compression_algorithm=algorithm,
                                     response_compression_algorithm=algorithm)
            numpy.testing.assert_array_equal(packed.as_numpy("probabilities"), plain.as_numpy("probabilities"))
        body = json.dumps({"input": rows.tolist()}).encode()
        path = "/predict/iris_forest"
        for coding, data in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body)), ("identity", body)):
            self.assertEqual(self.ask(path, data, {"Content-Encoding": coding})[0], 200, coding)
        for coding, data, expected in (("gzip", body, 400), ("gzip", gzip.compress(body)[:-10], 400),
                                       ("gzip", gzip.compress(body) + b"x", 400), ("br", body, 415),
                                       ("gzip", gzip.compress(b" " * (65 << 20)), 413), ("gzip, gzip", body, 415)):
            self.assertEqual(self.ask(path, data, {"Content-Encoding": coding})[0], expected, coding)

    def test_only_long_answers_of_models_are_compressed(self):
        accept = {"Accept-Encoding": "gzip, deflate, br"}

        def infer(rows, accepts):
            body = {"inputs": [{"name": "measurements", "shape": rows.shape, "datatype": "FP32", "data": rows.tolist()}]}
            return self.ask("/v2/models/iris_forest/infer", json.dumps(body).encode(), accepts)
        long = numpy.tile(IRIS, (400, 1))
        status, headers, body = infer(long, accept)
        self.assertEqual((status, headers["Content-Encoding"]), (200, "gzip"))
        self.assertEqual(gzip.decompress(body), infer(long, {})[2])
        self.assertEqual(infer(long, {"Accept-Encoding": "gzip;q=0, deflate"})[1]["Content-Encoding"], "deflate")
        for accepts in ({}, {"Accept-Encoding": "br"}, {"Accept-Encoding": "gzip;q=0"}):
            self.assertIsNone(infer(long, accepts)[1]["Content-Encoding"])
        self.assertIsNone(infer(IRIS, accept)[1]["Content-Encoding"])
        for path in ("/v2", "/v2/models/iris_forest", "/v2/models/stats", "/metrics"):
            self.assertIsNone(self.ask(path, None, accept)[1]["Content-Encoding"], path)

    def test_requests_have_a_name_and_a_timeline(self):
        body = json.dumps({"input": IRIS.tolist()}).encode()
        _, headers, _ = self.ask("/predict/iris_forest", body, {"X-Request-Id": "mine-1"})
        self.assertEqual(headers["X-Request-Id"], "mine-1")
        self.assertRegex(headers["Server-Timing"], r"^queue;dur=\d+\.\d+, compute;dur=\d+\.\d+$")
        for wrong in ("", "two words", "x" * 200):
            made = self.ask("/predict/iris_forest", body, {"X-Request-Id": wrong})[1]["X-Request-Id"]
            self.assertRegex(made, "^[0-9a-f]{16}$")
        self.assertRegex(self.ask("/nothing")[1]["X-Request-Id"], "^[0-9a-f]{16}$")
        self.assertEqual(self.ask("/predict/iris_forest", b"{", {"X-Request-Id": "mine-2"})[0], 400)
        infer = protos.unary(self.channel, SERVICE, "ModelInfer")
        _, call = infer.with_call(self.request(), metadata=[("x-request-id", "mine-3")])
        self.assertEqual(dict(call.initial_metadata())["x-request-id"], "mine-3")
        with self.assertRaises(grpc.RpcError):
            infer(self.request("none"), metadata=[("x-request-id", "mine-4")])
        for name in ("mine-5", "mine-6-with-a-name-longer-than-others", "x" * 128):
            with self.assertRaises(grpc.RpcError) as caught:
                infer(self.request("none"), metadata=[("x-request-id", name)])
            # An answer without a message has its headers and trailers in one.
            told = dict(caught.exception.initial_metadata()) | dict(caught.exception.trailing_metadata())
            self.assertEqual(told.get("x-request-id"), name)
        known = json.loads(self.ask("/debug/requests")[2])
        failed = {entry["request_id"]: entry for entry in known["failed"]}
        self.assertEqual((failed["mine-2"]["code"], failed["mine-2"]["protocol"]), ("INVALID_ARGUMENT", "http"))
        self.assertEqual((failed["mine-4"]["code"], failed["mine-4"]["protocol"]), ("NOT_FOUND", "grpc"))
        self.assertTrue(self.daemon.logged("request mine-4 of 127.0.0.1"))
        for entry in known["slowest"]:
            self.assertGreaterEqual(entry["whole_ms"] + 0.01, entry["read_ms"] + entry["queue_ms"] + entry["compute_ms"])

    def test_reflection_describes_the_services(self):
        database = ProtoReflectionDescriptorDatabase(self.channel)
        services = set(database.get_services())
        self.assertLessEqual({SERVICE, "onnxd.v1.PredictionService", "grpc.health.v1.Health"}, services)
        described = DescriptorPool(database).FindServiceByName(SERVICE)
        self.assertEqual(len(described.methods), 20)
        with self.assertRaises(KeyError):
            DescriptorPool(database).FindServiceByName("no.such.Service")

    def test_health_can_be_watched_until_the_end(self):
        with daemon.embedded() as other, grpc.insecure_channel(f"127.0.0.1:{other.grpc_port}") as channel:
            watched = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=30)
            self.assertEqual(next(watched).status, health_pb2.HealthCheckResponse.SERVING)
            unknown = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service="x"), timeout=30)
            self.assertEqual(next(unknown).status, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
            begin = time.monotonic()
            other.process.terminate()
            self.assertEqual(next(watched).status, health_pb2.HealthCheckResponse.NOT_SERVING)
            with self.assertRaises(grpc.RpcError) as caught:
                next(watched)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(other.process.wait(20), 0)
            self.assertLess(time.monotonic() - begin, 10)


if __name__ == "__main__":
    unittest.main()

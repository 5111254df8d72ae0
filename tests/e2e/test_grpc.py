"""gRPC against the running daemon: tritonclient, grpcio, and hand-made HTTP/2 frames."""

import concurrent.futures
import os
import socket
import struct
import subprocess
import time
import unittest

import grpc
import numpy
import tritonclient.grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from onnx import TensorProto
from tritonclient.utils import InferenceServerException

import daemon
import protos
from http2_frames import PREFACE, frame, headers_of, trailers

IRIS = numpy.array([[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]], numpy.float32)


class Grpc(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = daemon.embedded()
        cls.address = f"127.0.0.1:{cls.daemon.grpc_port}"
        cls.channel = grpc.insecure_channel(cls.address)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.daemon.close()

    def code_of(self, call, request, **options):
        with self.assertRaises(grpc.RpcError) as caught:
            call(request, **options)
        return caught.exception.code(), caught.exception.details()


class Clients(Grpc):
    def test_tritonclient(self):
        client = tritonclient.grpc.InferenceServerClient(self.address)
        self.assertTrue(client.is_server_live() and client.is_server_ready())
        self.assertTrue(client.is_model_ready("iris_forest"))
        self.assertEqual(client.get_server_metadata().name, "onnxd")
        self.assertEqual(list(client.get_model_metadata("iris_forest").inputs[0].shape), [-1, 4])
        entry = tritonclient.grpc.InferInput("measurements", [2, 4], "FP32")
        entry.set_data_from_numpy(IRIS)
        answer = client.infer("iris_forest", [entry], request_id="7", client_timeout=10)
        self.assertEqual(answer.as_numpy("label").tolist(), [0, 2])
        self.assertEqual(answer.get_response().id, "7")
        wanted = [tritonclient.grpc.InferRequestedOutput("probabilities")]
        answer = client.infer("iris_forest", [entry], outputs=wanted, model_version="1")
        self.assertEqual(len(answer.get_response().outputs), 1)
        with self.assertRaises(InferenceServerException) as caught:
            client.infer("none", [entry])
        self.assertIn("NOT_FOUND", caught.exception.status())
        client.close()

    def test_every_datatype_through_tritonclient(self):
        types = {"BOOL": (TensorProto.BOOL, bool), "UINT8": (TensorProto.UINT8, numpy.uint8),
                 "INT16": (TensorProto.INT16, numpy.int16), "INT64": (TensorProto.INT64, numpy.int64),
                 "FP16": (TensorProto.FLOAT16, numpy.float16), "FP64": (TensorProto.DOUBLE, numpy.float64),
                 "BYTES": (TensorProto.STRING, numpy.object_)}
        models = {name: daemon.identity_model(number) for name, (number, _) in types.items()}
        with daemon.repository(**models) as folder, daemon.Daemon(folder) as other:
            client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{other.grpc_port}")
            for name, (_, dtype) in types.items():
                values = [b"ab", b"", b"\xff"] if name == "BYTES" else [0, 1, 1]
                for count in (3, 0):
                    data = numpy.array(values, dtype)[:count]
                    entry = tritonclient.grpc.InferInput("x", [count], name)
                    entry.set_data_from_numpy(data)
                    self.assertEqual(client.infer(name, [entry]).as_numpy("y").tolist(), data.tolist())
            client.close()

    def test_large_messages_both_ways(self):
        with daemon.repository(big=daemon.identity_model(TensorProto.FLOAT)) as folder:
            with daemon.Daemon(folder) as other:
                client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{other.grpc_port}")
                data = numpy.random.default_rng(0).random(5_000_000, numpy.float32)
                entry = tritonclient.grpc.InferInput("x", [len(data)], "FP32")
                entry.set_data_from_numpy(data)
                self.assertTrue(numpy.array_equal(client.infer("big", [entry]).as_numpy("y"), data))
                client.close()

    def test_own_service(self):
        predict = protos.unary(self.channel, "onnxd.v1.PredictionService", "Predict")
        request = protos.message("onnxd.v1.PredictRequest")()
        tensor = request.inputs.add(name="measurements", shape=[2, 4])
        tensor.float_values.extend(IRIS.flatten().tolist())
        answer = predict(request)
        self.assertEqual((answer.model, answer.model_version), ("iris_forest", "1"))
        self.assertEqual(list(answer.outputs[0].int_values), [0, 2])
        raw = protos.message("onnxd.v1.PredictRequest")(model="iris_forest", outputs=["label"])
        raw.inputs.add(name="measurements", shape=[2, 4], datatype="FP32", raw=IRIS.tobytes())
        self.assertEqual(list(predict(raw).outputs[0].int_values), [0, 2])
        raw.inputs[0].raw = b"123"
        code, text = self.code_of(predict, raw)
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("input 'measurements': 3 bytes", text)

    def test_cpp_clients(self):
        binary = os.environ.get("TEST_CPP_CLIENTS")
        if binary is None:
            self.skipTest("TEST_CPP_CLIENTS names no binary")
        done = subprocess.run(
            [binary, "127.0.0.1", str(self.daemon.http_port), str(self.daemon.grpc_port)],
            capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "all answers are right\n"), done.stderr)

    def test_health(self):
        stub = health_pb2_grpc.HealthStub(self.channel)
        for service in ("", "inference.GRPCInferenceService", "onnxd.v1.PredictionService"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service))
            self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
        code, _ = self.code_of(stub.Check, health_pb2.HealthCheckRequest(service="x"))
        self.assertEqual(code, grpc.StatusCode.NOT_FOUND)

    def test_statuses(self):
        infer = protos.unary(self.channel, "inference.GRPCInferenceService", "ModelInfer")
        request = protos.message("inference.ModelInferRequest")
        self.assertEqual(self.code_of(infer, request(model_name="none"))[0], grpc.StatusCode.NOT_FOUND)
        code, text = self.code_of(infer, request(model_name="iris_forest"))
        self.assertEqual(code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertIn("needs input 'measurements' of type float[batch, 4]", text)
        unknown = self.channel.unary_unary("/inference.GRPCInferenceService/Nothing")
        self.assertEqual(self.code_of(unknown, b"")[0], grpc.StatusCode.UNIMPLEMENTED)
        garbage = self.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        self.assertEqual(self.code_of(garbage, b"\xff" * 30)[0], grpc.StatusCode.INVALID_ARGUMENT)
        bomb = b"\x2a\x00" * 2_000_000
        before = self.daemon.resident_bytes()
        self.assertEqual(self.code_of(garbage, bomb)[0], grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertLess(self.daemon.resident_bytes() - before, 64 << 20)
        compressed = self.channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        code, _ = self.code_of(compressed, b"x" * 5000, compression=grpc.Compression.Deflate)
        self.assertEqual(code, grpc.StatusCode.UNIMPLEMENTED)
        code, _ = self.code_of(compressed, b"x" * (65 << 20), compression=grpc.Compression.Gzip)
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED)

    def test_a_message_compressed_with_gzip(self):
        infer = protos.unary(self.channel, "inference.GRPCInferenceService", "ModelInfer")
        request = protos.message("inference.ModelInferRequest")(model_name="iris_forest")
        request.inputs.add(name="measurements", datatype="FP32", shape=IRIS.shape)
        request.raw_input_contents.append(IRIS.tobytes())
        plain, packed = infer(request), infer(request, compression=grpc.Compression.Gzip)
        self.assertEqual(packed.raw_output_contents, plain.raw_output_contents)

    def test_a_message_over_the_limit(self):
        large = self.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        code, text = self.code_of(large, b"\x1a\x80\x80\x80\x28" + b"a" * (80 << 20))
        self.assertEqual(code, grpc.StatusCode.RESOURCE_EXHAUSTED, text)

    def test_rest_and_grpc_give_the_same_bits(self):
        import tritonclient.http
        over_grpc = tritonclient.grpc.InferenceServerClient(self.address)
        over_http = tritonclient.http.InferenceServerClient(f"127.0.0.1:{self.daemon.http_port}")
        data = numpy.random.default_rng(1).random((3, 8, 8), numpy.float32)
        answers = []
        for module, client in ((tritonclient.grpc, over_grpc), (tritonclient.http, over_http)):
            entry = module.InferInput("rows", [3, 8, 8], "FP32")
            entry.set_data_from_numpy(data)
            answers.append(client.infer("digits_rows", [entry]).as_numpy("logits").tobytes())
            client.close()
        self.assertEqual(*answers)

    def test_calls_side_by_side(self):
        live = protos.unary(self.channel, "inference.GRPCInferenceService", "ServerLive")
        request = protos.message("inference.ServerLiveRequest")()
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: live(request, timeout=20).live, range(2000)))
        self.assertTrue(all(answers))


class Deadlines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.repository = daemon.repository(slow=daemon.slow_model())
        cls.daemon = daemon.Daemon(cls.repository.__enter__())
        cls.channel = grpc.insecure_channel(f"127.0.0.1:{cls.daemon.grpc_port}")
        cls.infer = staticmethod(
            protos.unary(cls.channel, "inference.GRPCInferenceService", "ModelInfer"))

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.daemon.close()
        cls.repository.__exit__(None, None, None)

    def request(self, rows):
        request = protos.message("inference.ModelInferRequest")(model_name="slow")
        request.inputs.add(name="x", datatype="FP32", shape=[rows, 700])
        request.raw_input_contents.append(numpy.zeros((rows, 700), numpy.float32).tobytes())
        return request

    def test_an_expired_deadline_ends_the_call_and_the_connection_lives(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.infer(self.request(600), timeout=0.01)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.assertEqual(len(self.infer(self.request(1)).outputs), 1)

    def test_the_timeout_parameter_sheds_what_waited_too_long(self):
        request = self.request(400)
        request.parameters["timeout"].int64_param = 1000
        with self.assertRaises(grpc.RpcError) as caught:
            self.infer(request)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)

    def test_the_timeout_parameter_counts_from_the_first_byte(self):
        for timeout, expected in ((300000, b"4"), (60000000, b"0")):
            request = self.request(1)
            request.parameters["timeout"].int64_param = timeout
            message = request.SerializeToString()
            with socket.create_connection(("127.0.0.1", self.daemon.grpc_port), timeout=30) as client:
                client.sendall(PREFACE + frame(1, 4, 1, headers_of("inference.GRPCInferenceService/ModelInfer")))
                time.sleep(0.5)
                client.sendall(frame(0, 1, 1, b"\0" + struct.pack(">I", len(message)) + message))
                self.assertEqual(dict(trailers(client))[b"grpc-status"], expected)

    def test_many_calls_with_expiring_deadlines_keep_their_connection(self):
        request = self.request(1)
        futures = [self.infer.future(request, timeout=0.004) for _ in range(512)]
        codes = {future.code() for future in futures}
        self.assertLessEqual(codes, {grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED,
                                     grpc.StatusCode.UNAVAILABLE})
        self.assertEqual(len(self.infer(self.request(1), timeout=20).outputs), 1)


if __name__ == "__main__":
    unittest.main()

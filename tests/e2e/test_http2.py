"""gRPC as an HTTP/2 stack sees it that is neither gRPC's nor the server's own."""

import queue
import socket
import threading
import time
import unittest

import grpc
import h2.errors
import h2.settings
import numpy
from tritonclient.grpc import service_pb2, service_pb2_grpc

import daemon
from http2_client import Http2Client

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
LIVE = "/inference.GRPCInferenceService/ServerLive"


def request(values):
    message = service_pb2.ModelInferRequest(model_name="m")
    message.inputs.add(name="x", datatype="FP32", shape=[len(values)])
    message.raw_input_contents.append(numpy.asarray(values, numpy.float32).tobytes())
    return message.SerializeToString()


def values(message):
    answer = service_pb2.ModelInferResponse.FromString(message)
    return numpy.frombuffer(answer.raw_output_contents[0], numpy.float32)


class Http2(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.repository = daemon.repository(m=daemon.identity_model(1))
        cls.daemon = daemon.Daemon(cls.repository.__enter__())

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()
        cls.repository.__exit__(None, None, None)

    def connect(self):
        client = Http2Client(self.daemon.grpc_port)
        self.addCleanup(client.socket.close)
        return client

    def test_a_unary_call(self):
        call = self.connect().unary(INFER, request([1, 2]))
        self.assertEqual((call.headers[":status"], call.headers["content-type"]), ("200", "application/grpc"))
        self.assertEqual(call.trailers, {"grpc-status": "0"})
        self.assertEqual(values(call.messages()[0]).tolist(), [1, 2])

    def test_an_error_has_trailers_only(self):
        call = self.connect().unary(INFER, b"")
        self.assertEqual(call.body, b"")
        self.assertEqual(call.trailers, {})
        self.assertNotEqual(call.headers["grpc-status"], "0")
        self.assertTrue(call.headers["grpc-message"])

    def test_large_messages_both_ways_within_the_windows(self):
        sent = numpy.arange(2_000_000, dtype=numpy.float32)
        call = self.connect().unary(INFER, request(sent))
        self.assertTrue(numpy.array_equal(values(call.messages()[0]), sent))

    def test_a_small_window_of_the_client(self):
        client = self.connect()
        client.connection.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 100})
        call = client.unary(INFER, request([3] * 5000))
        self.assertEqual(values(call.messages()[0]).tolist(), [3] * 5000)

    def test_calls_side_by_side_on_one_connection(self):
        client = self.connect()
        identifiers = [client.open(INFER) for _ in range(100)]
        for number, identifier in enumerate(identifiers):
            client.send(identifier, request([number]), end=True)
        for number, identifier in enumerate(identifiers):
            self.assertEqual(values(client.finish(identifier).messages()[0]).tolist(), [number])

    def test_a_stream_answers_each_message_before_it_ends(self):
        client = self.connect()
        stream = client.open(STREAM)
        for number in range(3):
            client.send(stream, request([number]))
            while len(client.calls[stream].messages() if client.calls[stream].body else []) <= number:
                client.read()
        client.connection.end_stream(stream)
        client.flush()
        call = client.finish(stream)
        self.assertEqual(call.trailers["grpc-status"], "0")
        answers = [service_pb2.ModelStreamInferResponse.FromString(message) for message in call.messages()]
        self.assertEqual([answer.infer_response.model_name for answer in answers], ["m"] * 3)

    def test_a_reset_call_leaves_the_others(self):
        client = self.connect()
        reset = client.open(INFER)
        client.connection.reset_stream(reset, h2.errors.ErrorCodes.CANCEL)
        self.assertEqual(client.unary(LIVE, b"").trailers["grpc-status"], "0")

    def test_an_expired_deadline(self):
        call = self.connect().unary(INFER, request([1]), grpc_timeout="1n")
        self.assertEqual(call.headers["grpc-status"], "4")

    def test_a_ping(self):
        client = self.connect()
        client.connection.ping(b"01234567")
        client.flush()
        while client.pongs == 0:
            client.read()

    def test_a_connection_of_some_age_is_left_once_its_calls_are_over(self):
        served = daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_CONNECTION_AGE_S": "1"})
        self.addCleanup(served.close)
        with Http2Client(served.grpc_port) as client:
            stream = client.open(STREAM)
            client.send(stream, b"")  # answered with what is wrong with it
            while client.goaway is None:
                client.read()
            self.assertEqual(client.goaway, h2.errors.ErrorCodes.NO_ERROR)
        # gRPC's own client makes new calls over a new connection, and goes on with those of the old one.
        with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            messages = queue.Queue()
            stream = stub.ModelStreamInfer(iter(messages.get, None), timeout=60)
            ages = 3
            for _ in range(ages * 10):
                messages.put(service_pb2.ModelInferRequest(model_name="none"))
                self.assertIn("none", next(stream).error_message)
                self.assertTrue(stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=20).live)
                time.sleep(0.1)
            messages.put(None)
            self.assertEqual(list(stream), [])
            self.assertEqual(stream.code(), grpc.StatusCode.OK)

    def test_the_end_of_the_server(self):
        with daemon.repository(m=daemon.identity_model(1)) as folder, daemon.Daemon(folder) as served:
            with Http2Client(served.grpc_port) as client:
                self.assertEqual(client.unary(LIVE, b"").trailers["grpc-status"], "0")
                served.process.terminate()
                while client.goaway is None:
                    client.read()
                self.assertEqual(client.goaway, h2.errors.ErrorCodes.NO_ERROR)

    # Bytes that nobody reads when a connection is closed reset it, and what it was told is lost.
    def test_the_end_of_the_server_while_clients_are_writing(self):
        with daemon.repository(m=daemon.identity_model(1)) as folder:
            for i in range(8):
                with self.subTest(i), daemon.Daemon(folder) as served, Http2Client(served.grpc_port) as client:
                    self.assertEqual(client.unary(LIVE, b"").trailers["grpc-status"], "0")
                    timer = threading.Timer(0.05 + i * 0.001, served.process.terminate)
                    timer.start()
                    while client.goaway is None or client.last_stream > 1:
                        for _ in range(5):
                            client.connection.ping(b"whatever")
                        client.flush()
                        client.read()
                    timer.join()
                    client.socket.shutdown(socket.SHUT_WR)
                    client.rest()  # to its orderly end
                    self.assertEqual(served.process.wait(20), 0)

    def test_calls_that_are_opened_when_the_end_is_announced(self):
        with daemon.repository(m=daemon.identity_model(1)) as folder, \
                daemon.Daemon(folder, environment={"ONNXD_LIMITS_DRAIN_DELAY_S": "20"}) as served, \
                Http2Client(served.grpc_port) as client:
            self.assertEqual(client.unary(LIVE, b"").trailers["grpc-status"], "0")
            served.process.terminate()
            while client.goaway is None:
                client.read()
            self.assertEqual(client.last_stream, 2**31 - 1)
            # A client that has not read so far does this.
            self.assertEqual(client.unary(LIVE, b"").trailers["grpc-status"], "0")
            while client.last_stream == 2**31 - 1:
                client.read()
            self.assertEqual(client.last_stream, 3)
            self.assertTrue(served.alive())


if __name__ == "__main__":
    unittest.main()

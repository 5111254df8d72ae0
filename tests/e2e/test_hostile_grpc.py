"""gRPC calls, and frames beneath them, that no client library sends; an honest call goes on throughout."""

import concurrent.futures
import contextlib
import gzip
import random
import socket
import struct
import threading
import time
import unittest

import grpc
import numpy
import tritonclient.grpc
from onnx import TensorProto

import daemon
import protos
from hostile import GROWTH, IRIS, HostileCase
from http2_frames import CLOSED, HEADERS, PREFACE, frame, header_frames, headers_of, literal, outcomes, waiting_bytes
from soak import scaled

SERVICE = "inference.GRPCInferenceService"
INFER = headers_of(f"{SERVICE}/ModelInfer")
DATA, END, END_HEADERS = 0, 1, 4
NUMBERS = grpc.StatusCode


def framed(message, flag=0, length=None):
    return struct.pack(">BI", flag, len(message) if length is None else length) + message


def live_frames(stream=1, headers=HEADERS):
    return header_frames(stream, headers) + frame(DATA, END, stream, framed(b""))


class GrpcCase(HostileCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.channel = grpc.insecure_channel(f"127.0.0.1:{cls.served.grpc_port}", [("grpc.max_send_message_length", -1)])
        cls.addClassCleanup(cls.channel.close)
        cls.live = staticmethod(protos.unary(cls.channel, SERVICE, "ServerLive"))
        cls.infer = staticmethod(protos.unary(cls.channel, SERVICE, "ModelInfer"))
        cls.send = staticmethod(cls.channel.unary_unary(f"/{SERVICE}/ModelInfer"))  # bytes
        cls.call_live(cls)

    def call_live(self):
        begin = time.monotonic()
        assert self.live(protos.message("inference.ServerLiveRequest")(), timeout=10).live
        return time.monotonic() - begin

    def tearDown(self):
        self.assertLess(self.call_live(), 5)
        super().tearDown()

    def open(self, settings=b""):
        client = socket.create_connection(("127.0.0.1", self.served.grpc_port), timeout=20)
        client.sendall(PREFACE[:24] + frame(4, 0, 0, settings))
        return client

    def outcomes(self, data, quiet=0.5, last=None):
        with self.open() as client:
            with contextlib.suppress(OSError):
                client.sendall(data)
            return outcomes(client, quiet, last=last)

    def flood(self, chunks, reads=True):
        """Sends until done, cut off, or not read from for a second."""
        with self.open() as client:
            client.settimeout(1)
            stop = threading.Event()

            def drain():
                with contextlib.suppress(OSError):
                    while not stop.is_set() and client.recv(65536):
                        pass
            reader = threading.Thread(target=drain)
            if reads:
                reader.start()
            sent = 0
            with contextlib.suppress(OSError):
                for chunk in chunks:
                    client.sendall(chunk)
                    sent += len(chunk)
            self.assertLess(self.call_live(), 5)
            stop.set()
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            if reads:
                reader.join()
        return sent

    def read_in_two_seconds(self, attack):
        """Of what the server is sent at once, bytes that it reads within 2 s."""
        with socket.create_connection(("127.0.0.1", self.served.grpc_port), timeout=10) as client:
            with contextlib.suppress(OSError):
                client.sendall(attack)
                time.sleep(2)
                return len(attack) - waiting_bytes(self.served.grpc_port, client.getsockname()[1])
        return 0

    def request(self, data=IRIS, **changes):
        rows = numpy.array(data, numpy.float32)
        request = protos.message("inference.ModelInferRequest")(model_name="iris_forest")
        request.inputs.add(name="measurements", datatype="FP32", shape=rows.shape)
        request.raw_input_contents.append(rows.tobytes())
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def code_of(self, request, call=None, **options):
        options.setdefault("timeout", 20)
        try:
            (call or (self.send if isinstance(request, bytes) else self.infer))(request, **options)
            return NUMBERS.OK
        except grpc.RpcError as error:
            self.assertNotRegex(error.details() or "", r"/(work|tmp|home|usr)/|0x[0-9a-f]{6}|std::|boost")
            self.assertLess(len(error.details() or ""), 2048)
            return error.code()


class Frames(GrpcCase):
    def test_g01_rapid_reset(self):
        def chunks():
            for start in range(1, 16001, 400):  # what a socket takes: it is read ever more slowly
                yield b"".join(frame(1, 4, stream, HEADERS) + frame(3, 0, stream, b"\0\0\0\x08") for stream in range(start, start + 400, 2))
        self.flood(chunks())
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            for attacker in [pool.submit(self.flood, chunks()) for _ in range(scaled(20, 100))]:
                attacker.result()

    def test_g01_calls_that_two_reads_share_are_no_way_to_be_read_faster(self):
        attack = b"".join(frame(1, 4, stream, HEADERS) + frame(3, 0, stream, b"\0\0\0\x08") for stream in range(1, 2001, 2))
        # 1 KB each time, some ten times at once and then ever more slowly.
        self.assertLess(self.read_in_two_seconds(PREFACE + attack), 32 << 10)

    def test_g02_resets_that_the_server_is_made_to_send(self):
        for name, provocation in (("a window that grows by nothing", lambda stream: frame(8, 0, stream, bytes(4))),
                                  ("a window beyond 2^31", lambda stream: frame(8, 0, stream, b"\x7f\xff\xff\xff")),
                                  ("data behind the end", lambda stream: frame(0, 1, stream, b"\0\0\0\0\0") * 2),
                                  ("a stream that depends on itself", lambda stream: frame(2, 0, stream, struct.pack(">IB", stream, 1)))):
            attack = PREFACE + b"".join(frame(1, 4, stream, HEADERS) + provocation(stream) for stream in range(1, 4001, 2))
            # Ended for good, or read as slowly as one that resets by itself.
            with socket.create_connection(("127.0.0.1", self.served.grpc_port), timeout=10) as client:
                with contextlib.suppress(OSError):
                    client.sendall(attack)
                time.sleep(2)
                unread = waiting_bytes(self.served.grpc_port, client.getsockname()[1])
                found = outcomes(client, 0.1, 0.5)
            self.assertTrue(found[0] == CLOSED or "goaway" in found or unread > len(attack) // 2, (name, found.get("goaway"), unread))
            self.assertLess(self.call_live(), 2, name)

    def test_g03_header_blocks(self):
        def endless():
            yield frame(1, 0, 1, HEADERS)
            for _ in range(5000):
                yield frame(9, 0, 1, literal(b"x", b"y" * 100) * 10)
        self.assertLess(self.flood(endless()), 5 << 20)
        for name, block in (("padding", b"\x7f" + b"\x80" * 5000 + b"\0"), ("a string of 1 GB", b"\0\x7f\x81\xff\xff\xff\x03abc"),
                            ("an index", b"\xff\xff\x7f"), ("index 0", b"\x80"), ("Huffman code", b"\0\x84\xff\xff\xff\xff\1a"),
                            ("sizes of the table", b"\x3f\xe1\x1f\x20" * 1000), ("a table of 1 GB", b"\x3f\xff\xff\xff\xff\x03")):
            found = self.outcomes(frame(1, 5, 1, HEADERS + block))
            self.assertTrue(found[0] == CLOSED or "goaway" in found or found.get(1) == "reset", (name, found))

    def test_g04_many_headers(self):
        literals = HEADERS + literal(b"a", b"b") * 3000
        # Each byte is an entry of the table.
        indexed = HEADERS + b"\x40\x01a\x01b" + b"\xbe" * 10000
        crumbs = HEADERS + literal(b"cookie", b"a=b") * 1000
        for name, block in (("literals", literals), ("indices", indexed), ("crumbs", crumbs)):
            found = self.outcomes(header_frames(1, block, 5))
            self.assertTrue(found[0] == CLOSED or found.get(1) == "reset" or "goaway" in found, (name, found))
            self.flood(header_frames(stream, block, 5) for stream in range(1, 400, 2))

    def test_g05_floods_of_frames(self):
        for name, some in (("PING", frame(6, 0, 0, b"12345678")), ("SETTINGS", frame(4, 0, 0, b"")), ("PRIORITY", frame(2, 0, 1, b"\0\0\0\3\1")),
                           ("WINDOW_UPDATE", frame(8, 0, 0, b"\0\0\0\1")), ("unknown", frame(0xfa, 0, 0, b"x" * 10))):
            for reads in (True, False):
                self.flood((some * 500 for _ in range(scaled(300, 3000))), reads)
        self.flood((frame(1, 4, 1, HEADERS) if i == 0 else frame(0, 0, 1, b"") * 500 for i in range(scaled(300, 3000))))

    def test_g07_streams_that_nobody_ends(self):
        clients = [self.open() for _ in range(10)]
        for client in clients:
            with contextlib.suppress(OSError):
                client.sendall(b"".join(frame(1, 4, stream, HEADERS) + frame(0, 0, stream, b"\0\x7f\xff\xff\xff") for stream in range(1, 2001, 2)))
        self.assertLess(self.served.resident_bytes() - self.resident, GROWTH + (64 << 20))
        self.assertLess(self.call_live(), 5)
        for client in clients:
            client.close()

    def test_g07_a_first_message_that_does_not_come(self):
        # Beside it, answers that nobody takes: both are given up after 30 s.
        with self.open() as silent, self.open(settings=struct.pack(">HI", 4, 0)) as stalled:
            silent.sendall(frame(1, 4, 1, INFER))
            stalled.sendall(b"".join(live_frames(stream) for stream in range(1, 201, 2)))
            begin = time.monotonic()
            with contextlib.suppress(OSError):
                while time.monotonic() - begin < 34:
                    stalled.sendall(frame(8, 0, 1, b"\0\0\0\1") if time.monotonic() - begin < 5 else b"")
                    time.sleep(0.5)
            found = outcomes(silent, 1)
            self.assertTrue(found.get(1) == "reset" or found[0] == CLOSED, found)
            reset = [stream for stream, what in outcomes(stalled, 1).items() if what == "reset" or isinstance(what, dict)]
            self.assertGreater(len(reset), 90)

    def test_g15_metadata(self):
        other = live_frames(3)
        for name, more in (("17 KB", literal(b"x", b"y" * 120) * 140), ("base64", literal(b"x-bin", b"\x01!!")), ("bytes", literal(b"x", b"\xff\xfe")),
                           ("control characters", literal(b"x", b"a\r\nb")), ("upper case", literal(b"X", b"y")), ("te", literal(b"te", b"x")),
                           ("connection", literal(b"connection", b"close")), ("load balancing", literal(b"grpclb_client_stats", b"x")),
                           ("a second path", literal(b":path", b"/x")), ("an unknown pseudo header", literal(b":other", b"x")),
                           ("a timeout", literal(b"grpc-timeout", b"-5S"))):
            found = self.outcomes(live_frames(1, HEADERS + more) + other)
            self.assertIn(1, found, name)  # answered, refused or reset
            self.assertEqual(found.get(3, {}).get("grpc-status"), "0", (name, found))

    def test_g16_what_is_not_there(self):
        for path in (f"{SERVICE}/Nothing", "no.such.Service/Method", "", "x" * 5000):
            found = self.outcomes(live_frames(1, headers_of(path)))
            self.assertTrue(found[1] == "reset" or found[1].get("grpc-status") == "12", (path[:50], found))
        found = self.outcomes(live_frames(1, HEADERS.replace(b"\x10application/grpc", b"\x10application/json")))
        self.assertEqual(found[1][":status"], "415")

    def test_what_is_no_http2(self):
        for data in (b"\0" * 100, b"GET / HTTP/1.1\r\n\r\n", PREFACE[:10], bytes(range(256)) * 40, PREFACE + bytes(range(256)) * 40):
            with socket.create_connection(("127.0.0.1", self.served.grpc_port)) as client:
                client.sendall(data)


class Messages(GrpcCase):
    @staticmethod
    def models():
        return {"slow": daemon.slow_model(size=500, repeats=40), "same": daemon.identity_model(TensorProto.FLOAT)}

    def status(self, data, headers=INFER, end=END):
        found = self.outcomes(header_frames(1, headers) + b"".join(
            frame(DATA, end if at + 16000 >= len(data) else 0, 1, data[at:at + 16000]) for at in range(0, len(data), 16000)), 5, last=1)
        return found[1] if isinstance(found.get(1), str) else found.get(1, {}).get("grpc-status")

    def test_g08_lengths_and_compression(self):
        message = self.request().SerializeToString()
        self.assertEqual(self.status(framed(message)), "0")
        self.assertEqual(self.status(framed(message, length=2**31 - 1)), "13")
        self.assertIn(self.status(framed(message, length=len(message) - 1)), ("13", "3"))
        self.assertIn(self.status(framed(message, length=len(message) + 1)), ("13", "3"))
        self.assertIn(self.status(framed(message) * 2), ("13", "12", "3"))
        self.assertIn(self.status(b"\0\0"), ("13", "3"))
        self.assertIn(self.status(framed(message, flag=1)), ("13", "12"))
        self.assertIn(self.status(framed(message, flag=2)), ("13", "12"))
        self.assertEqual(self.status(framed(message, 1), INFER + literal(b"grpc-encoding", b"br")), "12")
        packed = INFER + literal(b"grpc-encoding", b"gzip")
        self.assertEqual(self.status(framed(gzip.compress(message), 1), packed), "0")
        self.assertIn(self.status(framed(message, 1), packed), ("13", "3"))
        bomb = gzip.compress(bytes(scaled(100, 500) << 20), 9)
        self.assertEqual(self.status(framed(bomb, 1), packed), "8")

    def test_g09_what_is_no_message(self):
        nested = b""
        for _ in range(101):
            nested = b"\x12" + self.varint(len(nested)) + nested  # an unknown field in a tensor's contents
        bad = {"a truncated varint": b"\xff" * 20, "a wrong wire type": b"\x08\x01\x0a\xff\xff\xff\xff\x0f", "group": b"\x0b\x0b\x0b", "field 0": b"\0\0",
               "a length beyond the end": b"\x0a\x7f", "not UTF-8": b"\x0a\x02\xff\xfe"}
        for name, data in bad.items():
            self.assertIn(self.code_of(data), (NUMBERS.INVALID_ARGUMENT, NUMBERS.INTERNAL, NUMBERS.NOT_FOUND), name)
        unknown = self.request().SerializeToString() + b"\xfa\x7f" + self.varint(scaled(16, 60) << 20) + bytes(scaled(16, 60) << 20)
        self.assertIn(self.code_of(unknown), (NUMBERS.OK, NUMBERS.INVALID_ARGUMENT, NUMBERS.RESOURCE_EXHAUSTED))
        self.assertIn(self.code_of(self.request().SerializeToString() + nested), (NUMBERS.OK, NUMBERS.INVALID_ARGUMENT, NUMBERS.INTERNAL))

    @staticmethod
    def varint(value):
        out = b""
        while value > 127:
            out += bytes([value & 127 | 128])
            value >>= 7
        return out + bytes([value])

    def test_g10_many_empty_messages(self):
        count = scaled(4, 32) << 20
        for field in (b"\x2a\0", b"\x32\0", b"\x3a\0", b"\x22\0"):
            self.assertEqual(self.code_of(field * count), NUMBERS.RESOURCE_EXHAUSTED, field)
        strings = b"\x42\0" * (count // 2)  # bytes_contents
        tensor = b"\x2a" + self.varint(len(strings)) + strings
        self.assertEqual(self.code_of(b"\x2a" + self.varint(len(tensor)) + tensor), NUMBERS.RESOURCE_EXHAUSTED)

    def test_g11_contents(self):
        def bad(change):
            request = self.request()
            change(request)
            self.assertEqual(self.code_of(request), NUMBERS.INVALID_ARGUMENT, request)

        bad(lambda r: r.inputs[0].contents.fp32_contents.extend([0.0] * 8))
        bad(lambda r: r.raw_input_contents.append(b""))
        bad(lambda r: r.raw_input_contents.__setitem__(0, r.raw_input_contents[0][:-1]))
        bad(lambda r: r.raw_input_contents.pop())
        bad(lambda r: (r.raw_input_contents.pop(), r.inputs[0].contents.int_contents.extend([0] * 8)))
        bad(lambda r: (r.raw_input_contents.pop(), r.inputs[0].contents.fp32_contents.extend([0.0] * 7)))
        bad(lambda r: r.inputs[0].shape.__setitem__(0, -2))
        bad(lambda r: r.inputs[0].shape.__setitem__(0, 2**62))
        bad(lambda r: r.inputs[0].shape.extend([1] * 40))
        bad(lambda r: setattr(r.inputs[0], "datatype", "FP64"))
        bad(lambda r: setattr(r.inputs[0], "datatype", "x" * 100000))
        bad(lambda r: r.inputs.append(r.inputs[0]))
        bad(lambda r: r.outputs.add(name="nothing"))
        bad(lambda r: (r.outputs.add(name="label"), r.outputs.add(name="label")))
        bad(lambda r: r.parameters["timeout"].__setattr__("int64_param", -1))

    def slow_request(self, rows=1):
        data = numpy.zeros((rows, 500), numpy.float32)
        request = protos.message("inference.ModelInferRequest")(model_name="slow")
        request.inputs.add(name="x", datatype="FP32", shape=data.shape)
        request.raw_input_contents.append(data.tobytes())
        return request

    def test_g12_deadlines(self):
        message = framed(self.request().SerializeToString())
        for timeout, wanted in ((b"0n", "4"), (b"1n", "4"), (b"99999999H", "0"), (b"20S", "0")):
            self.assertEqual(self.status(message, INFER + literal(b"grpc-timeout", timeout)), wanted, timeout)
        for timeout in (b"", b"5", b"-1S", b"123456789S", b"1x", b"1 S"):
            self.assertEqual(self.status(message, INFER + literal(b"grpc-timeout", timeout)), "3", timeout)
        self.assertEqual(self.code_of(self.slow_request(400), timeout=0.001), NUMBERS.DEADLINE_EXCEEDED)

    def test_g13_cancelled_calls(self):
        source = random.Random(13)
        wanted = self.infer(self.request()).raw_output_contents
        for round_ in range(scaled(20, 10000)):
            if round_ == 1000:
                self.resident = self.served.resident_bytes()  # what so many calls at once need, before it could grow
            slow = [self.infer.future(self.slow_request(source.choice((1, 20))), timeout=30) for _ in range(10)]
            quick = [self.infer.future(self.request(), timeout=30) for _ in range(20)]
            time.sleep(source.random() * 0.01)
            for call in slow[::2] + quick[::3]:
                call.cancel()
            for i, call in enumerate(quick):
                if i % 3:
                    self.assertEqual(call.result().raw_output_contents, wanted)  # whoever was beside it in a batch
            for call in slow[1::2]:
                call.result()
        self.assertEqual(self.settled(lambda: self.metric("onnxd_inflight_requests"), 1), 0)

    def stream(self, requests):
        call = self.channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=protos.message("inference.ModelStreamInferResponse").FromString)
        return call(iter(requests), timeout=60)

    def test_g14_a_stream_that_nobody_reads_is_not_read_either(self):
        sent = 0

        def endless():
            nonlocal sent
            while sent < 1_000_000:
                sent += 1
                yield self.request()
        call = self.stream(endless())
        previous = -1
        while sent != previous:  # until it stands still
            previous = sent
            time.sleep(1)
        self.assertLess(sent, 1_000_000)
        self.assertLess(self.served.resident_bytes() - self.resident, GROWTH + (64 << 20))
        self.assertLess(self.honest(), 5)
        call.cancel()

    def test_g14_half_a_stream(self):
        answers = list(self.stream([self.request()] * 100))  # its client has ended before the answers
        self.assertEqual([answer.error_message for answer in answers], [""] * 100)

    def test_g17_the_same_by_rest_and_grpc(self):
        cases = [({}, {}), ({"model_name": "none"}, {"model": "none"}), ({"model_version": "9"}, {"version": "9"}),
                 ({"datatype": "FP64"}, {"datatype": "FP64"}), ({"shape": [2, 5]}, {"shape": [2, 5]}), ({"name": "x"}, {"name": "x"}),
                 ({"output": "x"}, {"output": "x"})]
        codes = {NUMBERS.OK: 200, NUMBERS.NOT_FOUND: 404, NUMBERS.INVALID_ARGUMENT: 400}
        for changes, _ in cases:
            request = self.request(**{k: v for k, v in changes.items() if k.startswith("model")})
            tensor = {"name": "measurements", "shape": [2, 4], "datatype": "FP32", "data": IRIS}
            for key in ("datatype", "name"):
                if key in changes:
                    setattr(request.inputs[0], key, changes[key])
                    tensor[key] = changes[key]
            if "shape" in changes:
                request.inputs[0].shape[:] = changes["shape"]
                tensor["shape"] = changes["shape"]
            body = {"inputs": [tensor]}
            if "output" in changes:
                request.outputs.add(name=changes["output"])
                body["outputs"] = [{"name": changes["output"]}]
            version = f"/versions/{changes['model_version']}" if "model_version" in changes else ""
            status, answer, _ = self.post(f"/v2/models/{changes.get('model_name', 'iris_forest')}{version}/infer", body)
            self.assertEqual(codes[self.code_of(request)], status, (changes, answer))
            if status == 200:
                labels, probabilities = answer["outputs"]
                raw = self.infer(request).raw_output_contents
                self.assertEqual(numpy.array(labels["data"], numpy.int64).tobytes(), raw[0])
                self.assertEqual(numpy.array(probabilities["data"], numpy.float32).tobytes(), raw[1])


class Ends(unittest.TestCase):
    def test_g06_as_many_connections_as_files(self):
        limited = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"]
        with daemon.Daemon(daemon.MODELS, prefix=limited) as served:
            clients = []
            for _ in range(128):
                client = socket.socket()
                client.settimeout(2)
                with contextlib.suppress(OSError):
                    client.connect(("127.0.0.1", served.grpc_port))
                    client.sendall(PREFACE)
                clients.append(client)
            time.sleep(1)
            self.assertTrue(served.alive())
            for client in clients:
                client.close()
            begin = time.monotonic()
            with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
                live = protos.unary(channel, SERVICE, "ServerLive")
                self.assertTrue(live(protos.message("inference.ServerLiveRequest")(), timeout=10, wait_for_ready=True).live)
            self.assertLess(time.monotonic() - begin, 2)

    def test_g14_the_end_of_the_server_in_the_middle_of_a_stream(self):
        with daemon.embedded() as served, grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            call = channel.stream_stream(
                f"/{SERVICE}/ModelStreamInfer", request_serializer=lambda request: request.SerializeToString(),
                response_deserializer=protos.message("inference.ModelStreamInferResponse").FromString)
            answered = threading.Event()

            def requests():
                yield Messages.request(None)
                answered.wait(20)
                time.sleep(30)
            stream = call(requests(), timeout=60)
            self.assertEqual(next(stream).error_message, "")
            answered.set()
            begin = time.monotonic()
            served.process.terminate()
            with self.assertRaises(grpc.RpcError) as caught:
                next(stream)
            self.assertEqual(caught.exception.code(), NUMBERS.UNAVAILABLE)
            self.assertEqual(served.process.wait(30), 0)
            self.assertLess(time.monotonic() - begin, 15)


if __name__ == "__main__":
    unittest.main()

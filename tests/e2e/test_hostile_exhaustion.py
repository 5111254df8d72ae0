"""Bodies beyond the memory, names without end, floods of errors, and a machine that gives no files or threads."""

import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import select
import socket
import time
import unittest
import urllib.request

import grpc

import daemon
import protos
from hostile import IRIS, HostileCase
from soak import scaled

BODY = json.dumps({"input": IRIS}).encode()
LIBRARY = os.environ.get("TEST_FAULTS", str(pathlib.Path(daemon.BINARY).resolve().parents[1] / "tests" / "libfaults.so"))


class Exhaustion(HostileCase):
    def test_x01_bodies_beyond_the_budget(self):
        size, budget = 64 << 20, 1 << 30
        head = b"POST /predict HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % size
        clients, refused, most = [], 0, 0
        try:
            for i in range(scaled(200, 1000)):
                client = self.connect(f"127.0.{1 + i // 200}.{1 + i % 200}")
                clients.append(client)
                client.sendall(head + b"{" * 1024)
                if i % 20 == 19:
                    most = max(most, self.metric("onnxd_buffered_request_bytes"))
            end = time.monotonic() + 10
            waiting = list(clients)
            while time.monotonic() < end and refused < len(clients) - budget // size:
                for client in select.select(waiting, [], [], 0.2)[0]:
                    waiting.remove(client)
                    answer = client.recv(65536)
                    self.assertIn(b" 503 ", answer.split(b"\r\n")[0])
                    self.assertIn(b"\r\nretry-after: ", answer.lower())
                    refused += 1
            # Before their bodies were read; those that fit are still being read.
            self.assertEqual(refused, len(clients) - budget // size)
            self.assertLessEqual(max(most, self.metric("onnxd_buffered_request_bytes")), 1.05 * budget)
            self.assertLess(self.served.resident_bytes() - self.resident, 256 << 20)
        finally:
            for client in clients:
                client.close()
        self.assertEqual(self.settled(lambda: self.metric("onnxd_buffered_request_bytes"), 1), 0)

    def series(self):
        with urllib.request.urlopen(self.served.url + "/metrics", timeout=20) as answer:
            return {line.rsplit(" ", 1)[0] for line in answer.read().decode().splitlines() if not line.startswith("#")}

    def test_x09_names_that_nobody_knows(self):
        source = random.Random(9)

        def name():
            return "".join(source.choices("abcdefghijklmnopqrstuvwxyz0123456789_", k=12))

        def some(count):
            connection = http.client.HTTPConnection("127.0.0.1", self.served.http_port, timeout=20)
            for i in range(count):
                headers = {f"X-{name()}": name(), "X-Request-Id": name(), "X-Route-Key": name(), "traceparent": f"00-{source.getrandbits(128):032x}-{source.getrandbits(64):016x}-01"}
                path = source.choice((f"/predict/{name()}", f"/v2/models/{name()}/infer", f"/v2/models/iris_forest/versions/{i}/infer", f"/{name()}", "/predict"))
                connection.request("POST", path, BODY, headers)
                connection.getresponse().read()
                if i % 5000 == 4999:  # as many requests as a connection may bring
                    connection.close()
            connection.close()
            with grpc.insecure_channel(f"127.0.0.1:{self.served.grpc_port}") as channel:
                infer = protos.unary(channel, "inference.GRPCInferenceService", "ModelInfer")
                for _ in range(count // 10):
                    with contextlib.suppress(grpc.RpcError):
                        infer(protos.message("inference.ModelInferRequest")(model_name=name()), metadata=[(name(), name())], timeout=20)
                    with contextlib.suppress(grpc.RpcError):
                        channel.unary_unary(f"/{name()}/{name()}")(b"", timeout=20)

        some(200)
        before = self.series()
        some(scaled(4000, 10**6))
        self.assertEqual(self.series() - before, set())
        self.assertTrue(any('model="unknown"' in line or 'model=""' in line for line in before), [line for line in before if "requests_total" in line])

    def test_x10_a_flood_of_errors(self):
        time.sleep(1.5)
        lines, begin = len(self.served.stderr_lines), time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.served.http_port, timeout=20)
        count = 0
        while time.monotonic() - begin < scaled(3, 60):
            connection.request("POST", "/predict", b"{" + b"x" * 1000, {"X-Request-Id": "\x1b[31m".encode("unicode_escape").decode() + "x" * 500})
            connection.getresponse().read()
            count += 1
            if count % 5000 == 0:
                connection.close()
        connection.close()
        seconds = time.monotonic() - begin
        time.sleep(0.2)
        self.assertGreater(count, 300 * seconds)  # else there was no flood
        self.assertLess(len(self.served.stderr_lines) - lines, 105 * (seconds + 1))
        self.assertTrue(self.served.logged("left out"), self.served.stderr_lines[-3:])


class Limits(unittest.TestCase):
    def start(self, prefix=(), **environment):
        """The daemon if it serves, else why it refused to start."""
        try:
            return daemon.Daemon(daemon.MODELS, "--default-model", "iris_forest", prefix=prefix, environment=environment), None
        except RuntimeError as refused:
            return None, str(refused)

    def answers(self, served):
        with urllib.request.urlopen(served.url + "/predict", BODY, timeout=20) as answer:
            return answer.status == 200

    def test_x11_few_files(self):
        for most in (1024, 64, 32, 20, 12, 8, 4):
            served, refused = self.start(["sh", "-c", f'ulimit -n {most}; exec "$@"', "sh"])
            if served is None:
                self.assertLess(most, 20)
                self.assertRegex(refused, r"Too many open files|files")
                self.assertNotIn("terminate called", refused)
                continue
            with served:
                clients = [socket.socket() for _ in range(2 * most if most <= 64 else 0)]
                for client in clients:
                    client.settimeout(1)
                    with contextlib.suppress(OSError):
                        client.connect(("127.0.0.1", served.http_port))
                for client in clients:
                    client.close()
                self.assertTrue(served.alive(), most)
                if most >= 20:
                    self.assertTrue(self.answers(served), most)
                self.assertEqual(served.terminate(), 0, most)

    def test_x11_few_threads(self):
        served_with = []
        for most in range(20):
            served, refused = self.start(LD_PRELOAD=LIBRARY, FAULTS_THREADS=str(most))
            if served is None:
                self.assertIn("no more threads may be started", refused, most)
                self.assertNotIn("terminate called", refused, most)
                continue
            with served:
                if not served.ready_line.startswith("ready:"):  # it refused a moment later
                    self.assertEqual(served.process.wait(20), 1, most)
                    self.assertTrue(served.logged("no more threads may be started"), (most, served.stderr_lines))
                    continue
                self.assertTrue(self.answers(served), most)
                self.assertEqual(served.terminate(), 0, most)
                served_with.append(most)
        self.assertIn(19, served_with)
        self.assertEqual(served_with, list(range(min(served_with), 20)))


if __name__ == "__main__":
    unittest.main()

"""Who gets past the gate: every route with every key, and requests that dress up."""

import json
import pathlib
import re
import socket
import subprocess
import tempfile
import unittest

import grpc

import daemon
import protos
from http2_frames import PREFACE, frame, header_frames, headers_of, literal, outcomes
from repositories import RepositoryCase, factor_model

ORDER = ["nobody", "predict", "read", "admin"]
SERVICE = "inference.GRPCInferenceService"


def table(kind):
    """The route table of the server as it was compiled: (path, role)."""
    source = (daemon.ROOT / "server/access/route.cc").read_text()
    source = re.search(r"constexpr %sRoute.*?\n};" % kind, source, re.S)[0]
    return [(path, role.lower()) for path, role in re.findall(r'\{"([^"]*)",\s*\{Role::k(\w+)', source)]


class AccessCase(RepositoryCase):
    def setUp(self):
        super().setUp()
        secrets = tempfile.TemporaryDirectory()
        self.addCleanup(secrets.cleanup)
        self.file = pathlib.Path(secrets.name) / "keys"
        self.keys = {role: self.create(role, role) for role in ORDER[1:]}
        self.keys["expired"] = self.create("old", "admin", "--expires", "2020-01-01T00:00:00Z")
        self.keys["narrow"] = self.create("narrow", "predict", "--models", "m*")
        self.put(1, factor_model(5), "hidden")
        self.served = self.serve(ONNXD_MODELS_CONTROL_MODE="fixed", ONNXD_ACCESS_KEY_FILE=str(self.file))

    def tearDown(self):
        self.assertTrue(self.served.alive())
        for line in self.served.stderr_lines:
            for key in self.keys.values():
                self.assertNotIn(key, line)
        super().tearDown()

    def create(self, name, role, *more):
        done = subprocess.run([daemon.BINARY, "keys", "create", name, "--role", role, "--file", str(self.file), *more],
                              capture_output=True, text=True, timeout=10)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def send(self, path, *headers, method="POST", body=b"{}"):
        """(status, body) of one request, whose head is sent as it stands here."""
        with socket.create_connection(("127.0.0.1", self.served.http_port), timeout=20) as client:
            head = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", f"Content-Length: {len(body)}", *headers]
            client.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
            received = b""
            try:
                while chunk := client.recv(1 << 20):
                    received += chunk
            except ConnectionError:
                pass
        return int(received.split(b" ")[1]), received.split(b"\r\n\r\n", 1)[1]


class Gate(AccessCase):
    def test_a01_every_path_with_every_key(self):
        routes = table("Rest")
        self.assertGreater(len(routes), 40)
        tokens = {None: None, "wrong": "onnxd_" + "0" * 64, "empty": "", "expired": self.keys["expired"],
                  "long": "x" * 8000, **{role: self.keys[role] for role in ORDER[1:]}}
        for path, needed in routes:
            last = path.rsplit("/", 1)[-1]
            if last in ("load", "unload", "register", "unregister", "reload", "setting", "logging") or path == "debug/requests":
                self.assertEqual(needed, "admin", path)
            for method in ("GET", "POST"):
                for name, token in tokens.items():
                    status = self.send("/" + path.replace("*", "m", 1).replace("*", "1"), *([f"Authorization: Bearer {token}"] if token is not None else []),
                                       method=method)[0]
                    if needed == "nobody":
                        self.assertNotIn(status, (401, 403), (path, method, name))
                    elif name not in ORDER:
                        self.assertEqual(status, 401, (path, method, name))
                    elif ORDER.index(name) < ORDER.index(needed):
                        self.assertEqual(status, 403, (path, method, name))
                    else:
                        self.assertNotIn(status, (401, 403), (path, method, name))
        self.assertEqual(self.send("/metrics", "Authorization: Bearer " + "x" * (1 << 20), method="GET")[0], 431)

    def test_a01_every_method_with_every_key(self):
        routes = dict(table("Grpc"))
        methods = {f"/{SERVICE}/{method.name}" for method in protos.service(SERVICE).methods}
        self.assertEqual(methods, {path for path in routes if SERVICE in path})
        codes = grpc.StatusCode
        with grpc.insecure_channel(f"127.0.0.1:{self.served.grpc_port}") as channel:
            for path, needed in routes.items():
                streams = "Stream" in path or path.endswith(("Watch", "Info"))
                for name, token in {None: None, "wrong": "x", "expired": self.keys["expired"], **{role: self.keys[role] for role in ORDER[1:]}}.items():
                    metadata = [("authorization", f"Bearer {token}")] if token else []
                    try:
                        if streams:
                            call = channel.stream_stream(path)(iter([]), metadata=metadata, timeout=5)
                            next(call, None)
                        else:
                            channel.unary_unary(path)(b"", metadata=metadata, timeout=5)
                        code = codes.OK
                    except grpc.RpcError as error:
                        code = error.code()
                    refused = {codes.UNAUTHENTICATED, codes.PERMISSION_DENIED}
                    if needed == "nobody":
                        self.assertNotIn(code, refused, (path, name))
                    elif name not in ORDER:
                        self.assertEqual(code, codes.UNAUTHENTICATED, (path, name))
                    elif ORDER.index(name) < ORDER.index(needed):
                        self.assertEqual(code, codes.PERMISSION_DENIED, (path, name))
                    else:
                        self.assertNotIn(code, refused, (path, name))

    def test_a02_other_spellings_of_a_path(self):
        for path in ("//v2//repository/index", "/V2/repository/index", "/v2/%72epository/index", "/v2/repository/index/", "/v2/repository/index;a=b",
                     "/v2/./repository/index", "/x/../v2/repository/index", "/v2/repository%2findex", "/v2\\repository\\index",
                     "/v2/models/m/../../repository/index", "http://h/v2/repository/index", "/v2/repository/index?key=x", "/v2/repository/index#x"):
            self.assertIn(self.send(path, f"Authorization: Bearer {self.keys['predict']}")[0], (400, 403, 404), path)
            self.assertIn(self.send(path)[0], (400, 401, 404), path)
        for header in ("X-HTTP-Method-Override: POST", "X-Original-URL: /health", "X-Rewrite-URL: /health", "X-Forwarded-Prefix: /health"):
            self.assertEqual(self.send("/v2/config/reload", f"Authorization: Bearer {self.keys['predict']}", header)[0], 403, header)

    def test_a03_ways_to_show_a_key(self):
        good = self.keys["admin"]
        path = "/v2/repository/index"
        for headers in ((f"Authorization: Bearer {good}", "Authorization: Bearer x"), ("Authorization: Bearer x", f"Authorization: Bearer {good}"),
                        (f"Authorization: Basic {good}",), (f"Authorization: {good}",), (f"Authorization: Bearer {good} x",), (f"Authorization: Bearer\t{good}x",),
                        ("Authorization: Bearer",), ("Authorization:",), (f"X-API-Key: {good}, x",), (f"Cookie: key={good}",)):
            self.assertIn(self.send(path, *headers)[0], (400, 401), headers)
        self.assertEqual(self.send(f"{path}?token={good}&api_key={good}&access_token={good}")[0], 401)
        self.assertEqual(self.send(path, f"Authorization: bearer {good}")[0], 200)  # RFC 9110, 11.1: without case
        self.assertEqual(self.send(path, f"X-API-Key: {good}")[0], 200)

    def test_a03_the_same_over_grpc(self):
        good = self.keys["admin"].encode()
        call = headers_of(f"{SERVICE}/RepositoryIndex")
        for more in (literal(b"authorization", b"Bearer " + good) + literal(b"authorization", b"Bearer x"), literal(b"authorization", b"Basic " + good),
                     literal(b"authorization", good), literal(b"x-api-key", b"x")):
            with socket.create_connection(("127.0.0.1", self.served.grpc_port), timeout=20) as client:
                client.sendall(PREFACE + header_frames(1, call + more) + frame(0, 1, 1, bytes(5)))
                self.assertEqual(outcomes(client)[1]["grpc-status"], "16", more)

    def test_a05_health_says_nothing_else(self):
        self.assertEqual(self.send("/metrics", method="GET")[0], 401)
        status, body = self.send("/health", method="GET", body=b"")
        self.assertEqual((status, sorted(json.loads(body))), (200, ["model_loaded", "status"]))
        for path in ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"):
            self.assertLess(len(self.send(path, method="GET", body=b"")[1]), 64, path)

    def test_a06_errors_tell_of_nothing_that_the_key_is_not_for(self):
        key = f"Authorization: Bearer {self.keys['narrow']}"
        for path, body in (("/predict", b'{"input": [1]}'), ("/predict/none", b"{}"), ("/v2/models/none/infer", b"{}"), ("/v2/models/m/versions/9/infer", b"{}"),
                           ("/v2/models/m/infer", b'{"inputs": [{"name": "'), ("/v2/repository/index", b"{}"), ("/openapi.json", b""), ("/nothing", b"")):
            answer = self.send(path, key, body=body)[1]
            self.assertNotIn(b"hidden", answer, path)
            self.assertNotRegex(answer, rb"/(work|tmp|home|usr)/|0x[0-9a-f]{6}|127\.0\.0\.1|std::|boost", path)
        # What is not there looks like what is not allowed.
        self.assertEqual(self.send("/v2/models/hidden/infer", key)[0], self.send("/v2/models/zzz/infer", key)[0])
        named = [self.send("/predict", key, body=json.dumps({"model": model, "input": [1]}).encode())[0] for model in ("hidden", "zzz")]
        self.assertEqual(named, [403, 403])
        status, document = self.send("/openapi.json", key, method="GET", body=b"")
        self.assertEqual(status, 200)
        self.assertNotIn(b"hidden", document)


if __name__ == "__main__":
    unittest.main()

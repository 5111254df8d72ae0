"""Who may do what: keys, roles, and a server that other machines reach (cases C05 and C06)."""

import json
import os
import pathlib
import queue
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.request

import numpy
import tritonclient.grpc

from daemon import BINARY
from http2_client import Http2Client
from repositories import RepositoryCase, factor_model

ADMIN = "/v2/repository/models/m/load"


def keys(*arguments):
    return subprocess.run([BINARY, "keys", *map(str, arguments)], capture_output=True, text=True, timeout=10)


class Access(RepositoryCase):
    def setUp(self):
        super().setUp()
        secrets = tempfile.TemporaryDirectory()
        self.addCleanup(secrets.cleanup)
        self.file = pathlib.Path(secrets.name) / "keys"

    def create(self, name, role, *limits):
        created = keys("create", name, "--role", role, "--file", self.file, *limits)
        self.assertEqual(created.returncode, 0, created.stderr)
        return created.stdout.strip()

    def status(self, served, path, key=None, body=None, header="Authorization"):
        request = urllib.request.Request(served.url + path, body)
        if key is not None:
            request.add_header(header, f"Bearer {key}" if header == "Authorization" else key)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def serve_with(self, *arguments, **environment):
        return self.serve(*arguments, ONNXD_MODELS_CONTROL_MODE="explicit", **environment)

    BODY = json.dumps({"input": [[1, 1, 1, 1]]}).encode()

    def start_fails(self, *arguments, **environment):
        result = subprocess.run(
            [BINARY, "serve", str(self.folder), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", *arguments],
            capture_output=True, text=True, timeout=10, env={**os.environ, **environment})
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(result.stdout, "")
        return result.stderr

    def headers(self, served, path, method="GET", body=None, **headers):
        """The status and the headers of an answer."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(served.url + path, body, named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, response.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers

    def test_a_large_body_is_not_read_from_somebody_without_a_key(self):
        key = self.create("caller", "predict")
        served = self.serve(self.folder, ONNXD_ACCESS_KEY_FILE=str(self.file))

        def head(path, size, *lines):
            """What comes back before a body is sent."""
            with socket.create_connection(("127.0.0.1", served.http_port), timeout=5) as client:
                client.sendall("\r\n".join((f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {size}", *lines,
                                            "", "")).encode())
                client.settimeout(1)
                try:
                    return client.recv(65536).decode()
                except TimeoutError:
                    return ""

        large = 50_000_000
        for wrong in ((), ("Authorization: Bearer wrong",), ("X-API-Key: wrong", "Expect: 100-continue")):
            self.assertIn(" 401 ", head("/predict/m", large, *wrong).split("\r\n")[0])
        self.assertIn("Connection: close", head("/predict/m", large))
        self.assertIn(" 404 ", head("/nothing", large, f"X-API-Key: {key}").split("\r\n")[0])
        self.assertIn(" 403 ", head("/v2/repository/models/m/load", large, f"X-API-Key: {key}").split("\r\n")[0])
        self.assertEqual(head("/predict/m", large, f"X-API-Key: {key}"), "")  # it waits for the body
        self.assertIn(" 100 ", head("/predict/m", large, f"X-API-Key: {key}", "Expect: 100-continue"))
        self.assertEqual(head("/predict/m", 100), "")  # small ones are read, and the connection stays
        self.assertGreater(self.metric(served, 'onnxd_access_refusals_total{code="UNAUTHENTICATED",protocol="http"}'), 2)

    def test_pages_of_other_origins_ask_first(self):
        app, other = "https://app.example.com", "https://other.example.com"
        allow = "Access-Control-Allow-Origin"
        served = self.serve_with(ONNXD_SERVER_CORS_ORIGINS=f"{app},http://localhost:3000", ONNXD_ACCESS_KEY_FILE="")
        ask = {"method": "OPTIONS", "Access_Control_Request_Method": "POST"}
        status, headers = self.headers(served, "/predict/m", Origin=app, **ask)
        self.assertEqual((status, headers[allow], headers["Vary"]), (204, app, "Origin"))
        self.assertIn("POST", headers["Access-Control-Allow-Methods"])
        self.assertIn("Authorization", headers["Access-Control-Allow-Headers"])
        self.assertNotIn("Content-Length", headers)
        status, headers = self.headers(served, "/predict/m", Origin=other, **ask)
        self.assertEqual((status, headers[allow], headers["Access-Control-Allow-Methods"]), (204, None, None))
        status, headers = self.headers(served, "/health", Origin=app)
        self.assertEqual((status, headers[allow]), (200, app))
        self.assertIn("X-Request-Id", headers["Access-Control-Expose-Headers"])
        self.assertIsNone(self.headers(served, "/health", Origin=other)[1][allow])
        self.assertEqual(self.headers(served, "/nothing", Origin=app)[1][allow], app)  # errors can be read, too
        with self.subTest("without the setting"):
            plain = self.serve_with()
            self.assertIsNone(self.headers(plain, "/health", Origin=app)[1][allow])
            self.assertNotIn("Vary", self.headers(plain, "/health", Origin=app)[1])
        with self.subTest("all"):
            everybody = self.serve_with(ONNXD_SERVER_CORS_ORIGINS="*")
            self.assertEqual(self.headers(everybody, "/health", Origin=other)[1][allow], "*")

    def test_pages_do_not_change_the_server(self):
        served = self.serve_with(ONNXD_SERVER_CORS_ORIGINS="https://app.example.com")
        port = served.http_port
        for headers, wanted in (({}, 200), ({"Origin": f"http://127.0.0.1:{port}"}, 200),
                                ({"Origin": "https://app.example.com"}, 200), ({"Origin": "https://evil.example"}, 403),
                                ({"Origin": "null"}, 403),
                                # A name of its own that leads to this machine.
                                ({"Host": f"evil.example:{port}"}, 403),
                                ({"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}, 403),
                                ({"Host": f"localhost:{port}"}, 200), ({"Host": f"[::1]:{port}"}, 200)):
            status, _ = self.headers(served, ADMIN, "POST", b"", **headers)
            self.assertEqual(status, wanted, headers)
        # What only asks is not refused.
        self.assertEqual(self.headers(served, "/predict/m", "POST", self.BODY, Host="any.example")[0], 200)

    def test_a_key_for_some_models(self):
        self.put(1, factor_model(1), name="other")
        self.put(1, factor_model(1), name="stats")
        key = self.create("some", "read", "--models", "m,x*")
        served = self.serve(self.folder, ONNXD_ACCESS_KEY_FILE=str(self.file), ONNXD_MODELS_DEFAULT_MODEL="other")
        named = json.dumps({"model": "other", "input": [[1, 1, 1, 1]]}).encode()
        for path, body, expected in (
                ("/predict/m", self.BODY, 200), ("/v2/models/m", None, 200), ("/v2/models/m/stats", None, 200),
                ("/predict/other", self.BODY, 403), ("/predict", self.BODY, 403), ("/predict", named, 403),
                ("/predict/none", self.BODY, 403), ("/v2/models/other", None, 403), ("/v2/models/other/ready", None, 403),
                ("/v2/models/other/versions/1/infer", b"{}", 403), ("/v2/models/other/config", None, 403),
                ("/v2/models/%6fther", None, 403), ("/v2/models/stats", None, 403), ("/v2/models/stats/config", None, 403),
                ("/v2/models/stats/infer", b"{}", 403)):
            self.assertEqual(self.status(served, path, key, body)[0], expected, path)
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}")
        headers = {"authorization": f"Bearer {key}"}
        entry = tritonclient.grpc.InferInput("x", [1, 4], "FP32")
        entry.set_data_from_numpy(numpy.ones((1, 4), numpy.float32))
        client.infer("m", [entry], headers=headers)
        self.assertTrue(client.is_model_ready("m", headers=headers))
        for refused in (lambda: client.infer("other", [entry], headers=headers),
                        lambda: client.infer("", [entry], headers=headers),
                        lambda: client.get_model_metadata("other", headers=headers),
                        lambda: client.get_model_config("other", headers=headers),
                        lambda: client.get_inference_statistics("other", headers=headers),
                        lambda: client.is_model_ready("other", headers=headers)):
            with self.assertRaises(tritonclient.grpc.InferenceServerException) as raised:
                refused()
            self.assertIn("PERMISSION_DENIED", str(raised.exception.status()))
        answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put(error), headers=headers)
        client.async_stream_infer("m", [entry])
        self.assertIsNone(answers.get(timeout=10))
        client.async_stream_infer("other", [entry])
        self.assertIn("other", str(answers.get(timeout=10)))
        client.stop_stream()
        client.close()

    def test_an_admin_key_for_some_models_changes_these_alone(self):
        self.put(1, factor_model(1), name="other")
        key = self.create("some", "admin", "--models", "m")
        served = self.serve_with(self.folder, ONNXD_ACCESS_KEY_FILE=str(self.file))
        for path, body, expected in (
                ("/v2/repository/models/m/load", b"", 200), ("/v2/repository/models/m/unload", b"", 200),
                ("/v2/repository/models/m/load", b"", 200),
                ("/v2/models/m/trace/setting", None, 200), ("/v2/models/m/stats", None, 200),
                ("/v2/repository/models/other/load", b"", 403), ("/v2/repository/models/other/unload", b"", 403),
                ("/v2/models/other/trace/setting", None, 403), ("/v2/trace/setting", None, 403), ("/v2/logging", None, 403),
                ("/v2/config/reload", b"", 403), ("/debug/requests", None, 403), ("/metrics", None, 403),
                ("/v2/systemsharedmemory/status", None, 403), ("/v2/models/stats", None, 403)):
            self.assertEqual(self.status(served, path, key, body)[0], expected, path)
        status, index = self.status(served, "/v2/repository/index", key, b"{}")
        self.assertEqual((status, [entry["name"] for entry in json.loads(index)]), (200, ["m"]))
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}")
        headers = {"authorization": f"Bearer {key}"}
        client.load_model("m", headers=headers)
        client.update_trace_settings("m", {}, headers=headers)
        index = client.get_model_repository_index(headers=headers)
        self.assertEqual([model.name for model in index.models], ["m"])
        for refused in (lambda: client.load_model("other", headers=headers),
                        lambda: client.unload_model("other", headers=headers),
                        lambda: client.update_trace_settings("other", {}, headers=headers),
                        lambda: client.get_trace_settings(headers=headers),
                        lambda: client.get_log_settings(headers=headers),
                        lambda: client.get_system_shared_memory_status(headers=headers)):
            with self.assertRaises(tritonclient.grpc.InferenceServerException) as raised:
                refused()
            self.assertIn("PERMISSION_DENIED", str(raised.exception.status()))
        client.close()

    def test_a_large_message_is_not_read_without_a_key(self):
        self.create("some", "predict")
        served = self.serve(self.folder, ONNXD_ACCESS_KEY_FILE=str(self.file))
        infer = "/inference.GRPCInferenceService/ModelInfer"
        for path, code in ((infer, "16"), ("/no.Service/Method", "12")):
            with Http2Client(served.grpc_port) as client:
                call = client.open(path)
                client.send(call, bytes(100_000))  # the first of many
                self.assertEqual(client.finish(call).headers["grpc-status"], code)

    def test_a_predict_key_reads_no_statistics_of_all_models(self):
        key = self.create("predict", "predict")
        served = self.serve(self.folder, ONNXD_ACCESS_KEY_FILE=str(self.file))
        self.assertEqual(self.status(served, "/v2/models/stats", key)[0], 403)

    def test_a_keys_requests_a_second(self):
        slow, free = self.create("slow", "predict", "--rate", 5), self.create("free", "predict")
        served = self.serve(self.folder, ONNXD_ACCESS_KEY_FILE=str(self.file))
        codes = [self.status(served, "/predict/m", slow, self.BODY)[0] for _ in range(40)]
        self.assertEqual(codes[:5], [200] * 5)
        self.assertIn(429, codes)
        self.assertEqual(self.status(served, "/predict/m", free, self.BODY)[0], 200)
        time.sleep(1)
        self.assertEqual(self.status(served, "/predict/m", slow, self.BODY)[0], 200)

    def test_a_key_that_expires(self):
        key = self.create("brief", "predict", "--expires", "2999-01-01")
        self.assertEqual(keys("list", "--file", self.file).stdout, "brief predict expires=2999-01-01T00:00:00Z\n")
        served = self.serve(self.folder, ONNXD_ACCESS_KEY_FILE=str(self.file))
        self.assertEqual(self.status(served, "/predict/m", key, self.BODY)[0], 200)
        self.file.write_text(self.file.read_text().replace("2999", "2020"))
        served.process.send_signal(signal.SIGHUP)
        self.assertTrue(served.logged("the configuration was read again"))
        status, answer = self.status(served, "/predict/m", key, self.BODY)
        self.assertEqual((status, json.loads(answer)["error"]), (401, "the key has expired"))
        self.assertEqual(keys("create", "x", "--role", "read", "--file", self.file, "--expires", "soon").returncode, 1)

    def test_where_other_machines_reach_it_and_no_keys_are_set_nobody_changes_it(self):
        served = self.serve(self.folder, "--bind", "0.0.0.0")
        self.assertTrue(served.logged("calls that change the server are refused: server.bind is 0.0.0.0"))
        for path in (ADMIN, "/v2/repository/models/m/unload", "/v2/config/reload"):
            status, answer = self.status(served, path, body=b"{}")
            self.assertEqual(status, 403)
            self.assertIn("access.key_file", json.loads(answer)["error"])
        self.assertEqual(self.status(served, "/predict/m", body=self.BODY)[0], 200)
        self.assertEqual(self.status(served, "/metrics")[0], 200)
        self.assertEqual(self.status(served, "/v2/repository/index", body=b"{}")[0], 200)
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}")
        with self.assertRaises(tritonclient.grpc.InferenceServerException) as raised:
            client.unload_model("m")
        self.assertIn("PERMISSION_DENIED", str(raised.exception.status()))
        client.close()
        self.assertEqual(self.answer(served), 1)

    def test_it_does_not_start_with_admin_on_where_others_reach_it_without_keys(self):
        error = self.start_fails("--bind", "0.0.0.0", ONNXD_ACCESS_ADMIN="on")
        self.assertIn("access.admin", error)
        self.create("ops", "admin")
        self.serve(self.folder, "--bind", "0.0.0.0", ONNXD_ACCESS_ADMIN="on", ONNXD_ACCESS_KEY_FILE=str(self.file))

    def test_roles_over_rest_and_grpc(self):
        texts = {role: self.create(role, role) for role in ("predict", "read", "admin")}
        served = self.serve_with(ONNXD_ACCESS_KEY_FILE=str(self.file))
        calls = [("predict", "/predict/m", self.BODY), ("predict", "/v2/models/m", None),
                 ("read", "/v2/models/m/config", None), ("read", "/v2/repository/index", b"{}"),
                 ("read", "/metrics", None), ("admin", ADMIN, b"{}")]
        order = ["predict", "read", "admin"]
        self.assertEqual(self.status(served, ADMIN, texts["admin"], b"{}")[0], 200)
        for needed, path, body in calls:
            for header in ("Authorization", "X-API-Key"):
                for role, text in texts.items():
                    allowed = order.index(role) >= order.index(needed)
                    self.assertEqual(self.status(served, path, text, body, header)[0], 200 if allowed else 403, (path, role))
                for wrong in (None, "", "x", "é" * 100, texts["admin"][:-1], texts["admin"] + "0"):
                    if wrong is None or wrong.isascii():
                        self.assertEqual(self.status(served, path, wrong, body, header)[0], 401, (path, wrong))
        for path in ("/health", "/health/live", "/v2/health/ready", "/"):
            self.assertEqual(self.status(served, path)[0], 200)
        for path in ("/v2/repository/models/m//load", "/V2/repository/models/m/load", "/%76%32/config/reload",
                     "/v2%2frepository/models/m/load", "/v2/config/reload/"):
            self.assertIn(self.status(served, path, None, b"{}")[0], (400, 401, 404), path)
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}") as client:
            tensor = tritonclient.grpc.InferInput("x", [1, 4], "FP32")
            tensor.set_data_from_numpy(numpy.ones((1, 4), numpy.float32))
            for needed, call in [("predict", lambda headers: client.infer("m", [tensor], headers=headers)),
                                 ("read", lambda headers: client.get_model_repository_index(headers=headers)),
                                 ("admin", lambda headers: client.load_model("m", headers=headers))]:
                for role, text in [(None, None), *texts.items()]:
                    for headers in ({"authorization": f"Bearer {text}"}, {"x-api-key": text}) if text else (None,):
                        code = None
                        try:
                            call(headers)
                        except tritonclient.grpc.InferenceServerException as error:
                            code = error.status()
                        wanted = "StatusCode.UNAUTHENTICATED" if role is None else (
                            None if order.index(role) >= order.index(needed) else "StatusCode.PERMISSION_DENIED")
                        self.assertEqual(code, wanted, (needed, role))
            self.assertTrue(client.is_server_live())
        _, metrics = self.status(served, "/metrics", texts["read"])
        self.assertIn('onnxd_access_refusals_total{code="UNAUTHENTICATED",protocol="http"}', metrics.decode())

    def test_keys_come_and_go_while_it_serves(self):
        first = self.create("first", "admin")
        served = self.serve(ONNXD_ACCESS_KEY_FILE=str(self.file))
        second = self.create("second", "admin")
        self.assertEqual(self.status(served, "/predict/m", second, self.BODY)[0], 401)
        self.assertEqual(self.status(served, "/v2/config/reload", first, b"{}")[0], 200)
        self.assertEqual(self.status(served, "/predict/m", first, self.BODY)[0], 200)
        self.assertEqual(self.status(served, "/predict/m", second, self.BODY)[0], 200)
        self.assertEqual(keys("revoke", "first", "--file", self.file).returncode, 0)
        self.assertEqual(keys("list", "--file", self.file).stdout, "second admin\n")
        self.assertEqual(self.status(served, "/v2/config/reload", second, b"{}")[0], 200)
        self.assertEqual(self.status(served, "/predict/m", first, self.BODY)[0], 401)
        # A file that is wrong changes nothing.
        good = self.file.read_text()
        self.file.write_text("second admin onnxd_0123\n")
        status, answer = self.status(served, "/v2/config/reload", second, b"{}")
        self.assertEqual(status, 400)
        self.assertNotIn(b"onnxd_0123", answer)
        self.assertEqual(self.status(served, "/predict/m", second, self.BODY)[0], 200)
        self.file.write_text(good)
        # The last one may go as well.
        self.assertEqual(keys("revoke", "second", "--file", self.file).returncode, 0)
        self.assertEqual(self.status(served, "/v2/config/reload", second, b"{}")[0], 200)
        self.assertEqual(self.status(served, "/predict/m", second, self.BODY)[0], 401)
        self.assertFalse(any(first in line or second in line for line in served.stderr_lines))

    def test_key_files(self):
        def with_file(**environment):
            return self.start_fails(ONNXD_ACCESS_KEY_FILE=str(self.file), **environment)

        self.assertIn("cannot read", with_file())
        text = self.create("ops", "admin")
        content = self.file.read_bytes()
        self.assertEqual(self.file.stat().st_mode & 0o777, 0o600)
        self.assertNotIn(text.encode(), content)
        for mode in (0o644, 0o604, 0o660):
            self.file.chmod(mode)
            self.assertIn("chmod 640", with_file(), oct(mode))
        self.file.chmod(0o640)
        self.serve(ONNXD_ACCESS_KEY_FILE=str(self.file))
        for empty in (b"", b"\n\n", b"# none\n"):
            self.file.write_bytes(empty)
            self.assertIn("holds no keys", with_file())
        for wrong in (text.encode() + b"\n", b"\xff\xfeo\x00p\x00", b"\x00" * 100, content + content):
            self.file.write_bytes(wrong)
            error = with_file()
            self.assertIn("keys:", error)
            self.assertNotIn(text, error)
        self.file.write_bytes(b"#" * (1 << 20) + b"\n" + content)
        self.assertIn("keys", with_file())
        # White space and line ends of other systems do not count.
        self.file.write_bytes(b"\r\n  " + content.replace(b"\n", b"\r\n"))
        self.serve(ONNXD_ACCESS_KEY_FILE=str(self.file))
        # As Kubernetes mounts secrets.
        real = self.file.with_name("..data")
        self.file.rename(real)
        self.file.symlink_to(real.name)
        served = self.serve(ONNXD_ACCESS_KEY_FILE=str(self.file))
        self.assertEqual(self.status(served, "/predict/m", text, self.BODY)[0], 200)
        self.file.unlink()
        for make in (lambda: os.mkfifo(self.file, 0o600), lambda: self.file.mkdir(0o700)):
            make()
            self.assertIn("not a regular file", with_file())
            (self.file.rmdir if self.file.is_dir() else self.file.unlink)()

    def test_names_of_keys(self):
        self.create("ops", "admin")
        for name in ("ops", "a b", "", "#x", "n" * 65, "a/b"):
            refused = keys("create", "--role", "read", "--file", self.file, "--", name)
            self.assertNotEqual(refused.returncode, 0, name)
            self.assertEqual(refused.stdout, "", name)
        self.assertEqual(keys("revoke", "op", "--file", self.file).returncode, 1)
        self.assertEqual(keys("create", "x", "--role", "root", "--file", self.file).returncode, 2)
        self.assertEqual(keys("list", "--file", self.file).stdout, "ops admin\n")


if __name__ == "__main__":
    unittest.main()

"""Ways to the daemon other than plain TCP ports: TLS, clients' certificates, one port for both, unix sockets."""

import contextlib
import http.client
import json
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.request

import grpc

import daemon
import protos

BODY = json.dumps({"input": [[5.1, 3.5, 1.4, 0.2]]})
PATH = "/predict/iris_forest"


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class Authority:
    """Signs certificates in a folder."""

    def __init__(self, folder, name="authority"):
        self.folder, self.name = pathlib.Path(folder), name
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={name}", "-keyout", self.folder / f"{name}.key", "-out", self.certificate)

    @property
    def certificate(self):
        return self.folder / f"{self.name}.pem"

    def sign(self, name, days=2):
        """(certificate, key)"""
        files = [self.folder / f"{name}.{kind}" for kind in ("pem", "key", "csr")]
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", files[1], "-out", files[2])
        extensions = self.folder / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        openssl("x509", "-req", "-in", files[2], "-CA", self.certificate, "-CAkey", self.folder / f"{self.name}.key",
                "-CAcreateserial", "-days", days, "-extfile", extensions, "-out", files[0])
        return files[0], files[1]


def live(channel):
    call = protos.unary(channel, "inference.GRPCInferenceService", "ServerLive")
    return call(protos.message("inference.ServerLiveRequest")(), timeout=20).live


class Tls(unittest.TestCase):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.stack = stack
        self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.authority = Authority(self.folder)
        certificate, key = self.authority.sign("server")
        self.certificate, self.key = self.folder / "shown.pem", self.folder / "shown.key"
        shutil.copy(certificate, self.certificate)
        shutil.copy(key, self.key)

    def serve(self, **environment):
        return self.stack.enter_context(daemon.Daemon(daemon.MODELS, environment={
            "ONNXD_TLS_CERTIFICATE": str(self.certificate), "ONNXD_TLS_KEY": str(self.key), **environment}))

    def context(self, client=None):
        context = ssl.create_default_context(cafile=self.authority.certificate)
        if client:
            context.load_cert_chain(*client)
        return context

    def ask(self, served, client=None):
        connection = http.client.HTTPSConnection("127.0.0.1", served.http_port, context=self.context(client), timeout=20)
        self.addCleanup(connection.close)
        connection.request("POST", PATH, BODY)
        answer = connection.getresponse()
        shown = connection.sock.getpeercert()
        document = json.loads(answer.read())
        connection.close()
        return answer.status, document, shown["serialNumber"]

    def channel(self, port, client=None):
        certificate, key = client or (None, None)
        return grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(
            self.authority.certificate.read_bytes(), key and key.read_bytes(), certificate and certificate.read_bytes()))

    def metric(self, served, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{served.metrics_port}/metrics") as answer:
            return float(re.search(rf"^{re.escape(name)} (\S+)$", answer.read().decode(), re.MULTILINE)[1])

    def test_rest_and_grpc(self):
        served = self.serve()
        self.assertEqual(self.ask(served)[0], 200)
        with self.channel(served.grpc_port) as channel:
            self.assertTrue(live(channel))
        expiry = self.metric(served, "onnxd_tls_certificate_expiry_timestamp_seconds")
        self.assertAlmostEqual(expiry, time.time() + 2 * 86400, delta=3600)

    def test_predict_from_the_command_line(self):
        served = self.serve()
        def predict(*arguments):
            return subprocess.run([daemon.BINARY, "predict", "iris_forest", "--input", "-", *arguments], capture_output=True,
                                  text=True, input="[[5.1, 3.5, 1.4, 0.2]]", timeout=30)
        rest = ("--url", f"https://127.0.0.1:{served.http_port}")
        over_grpc = ("--grpc", "--url", f"https://127.0.0.1:{served.grpc_port}")
        for way in (rest, over_grpc):
            done = predict(*way, "--ca", str(self.authority.certificate))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["predictions"]["label"], [0])
            self.assertEqual(predict(*way).returncode, 1)
        self.assertIn("certificate verify failed", predict(*over_grpc).stderr)

    def test_many_requests_and_large_bodies_on_one_connection(self):
        served = self.serve()
        connection = http.client.HTTPSConnection("127.0.0.1", served.http_port, context=self.context(), timeout=60)
        large = json.dumps({"input": [[5.1, 3.5, 1.4, 0.2]] * 50000})
        for body, rows in [(BODY, 1)] * 20 + [(large, 50000)] * 2:
            connection.request("POST", PATH, body)
            answer = json.loads(connection.getresponse().read())
            self.assertEqual(len(answer["predictions"]["label"]), rows)
        connection.close()

    def test_the_clients_choice_of_protocol(self):
        served = self.serve()
        for port, offered, chosen in ((served.http_port, ["h2", "http/1.1"], "http/1.1"),
                                      (served.grpc_port, ["http/1.1", "h2"], "h2"), (served.http_port, [], None)):
            context = self.context()
            if offered:
                context.set_alpn_protocols(offered)
            with context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="127.0.0.1") as client:
                self.assertEqual(client.selected_alpn_protocol(), chosen)
                self.assertIn(client.version(), ("TLSv1.2", "TLSv1.3"))

    def test_what_is_no_handshake_harms_nobody(self):
        served = self.serve()
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        stalled = [socket.create_connection(("127.0.0.1", served.http_port)) for _ in range(50)]
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + b"\xff" * 5000, b""):
            with socket.create_connection(("127.0.0.1", served.http_port)) as client:
                client.sendall(data)
        with self.assertRaises(OSError):
            old.wrap_socket(socket.create_connection(("127.0.0.1", served.http_port)))
        self.assertEqual(self.ask(served)[0], 200)
        # Who says nothing is cut off after 5 s.
        stalled[0].settimeout(15)
        self.assertEqual(stalled[0].recv(10), b"")
        for client in stalled:
            client.close()
        self.assertGreaterEqual(self.metric(served, "onnxd_tls_handshake_failures_total"), 3)

    def test_clients_certificates(self):
        known = self.authority.sign("client")
        expired = self.authority.sign("expired", days=0)
        (self.folder / "other").mkdir()
        foreign = Authority(self.folder / "other", "other").sign("stranger")
        for mode, without in (("require", False), ("request", True)):
            served = self.serve(ONNXD_TLS_CLIENT_CA=str(self.authority.certificate), ONNXD_TLS_CLIENT_CERTIFICATES=mode)
            self.assertEqual(self.ask(served, known)[0], 200)
            with self.channel(served.grpc_port, known) as channel:
                self.assertTrue(live(channel))
            for client, taken in ((None, without), (foreign, False), (expired, False)):
                with self.subTest(mode=mode, client=client):
                    if taken:
                        self.assertEqual(self.ask(served, client)[0], 200)
                        continue
                    with self.assertRaises((OSError, http.client.HTTPException)):
                        self.ask(served, client)
                    with self.channel(served.grpc_port, client) as channel, self.assertRaises(grpc.RpcError):
                        protos.unary(channel, "inference.GRPCInferenceService", "ServerLive")(
                            protos.message("inference.ServerLiveRequest")(), timeout=3)

    def test_certificates_have_roles(self):
        keys = self.folder / "keys"
        for name, *more in (("reader", "--role", "read", "--certificate"), ("one", "--role", "predict", "--certificate",
                            "--models", "digits_cnn"), ("ops", "--role", "admin", "--certificate")):
            made = subprocess.run([daemon.BINARY, "keys", "create", name, *more, "--file", keys], capture_output=True)
            self.assertEqual((made.returncode, made.stdout), (0, b""), made.stderr)
        made = subprocess.run([daemon.BINARY, "keys", "create", "text", "--role", "admin", "--file", keys],
                              capture_output=True, text=True, check=True)
        listed = subprocess.run([daemon.BINARY, "keys", "list", "--file", keys], capture_output=True, text=True)
        self.assertEqual(listed.stdout, "reader read certificate\none predict certificate models=digits_cnn\n"
                                        "ops admin certificate\ntext admin\n")
        served = self.serve(ONNXD_TLS_CLIENT_CA=str(self.authority.certificate), ONNXD_ACCESS_KEY_FILE=str(keys),
                            ONNXD_TLS_CLIENT_CERTIFICATES="request")

        def status(path, body, client=None, **headers):
            connection = http.client.HTTPSConnection("127.0.0.1", served.http_port, context=self.context(client),
                                                     timeout=20)
            connection.request("POST", path, body, headers)
            code = connection.getresponse().status
            connection.close()
            return code

        signed = {name: self.authority.sign(name) for name in ("reader", "one", "ops", "unknown", "text")}
        change, index = "/v2/config/reload", "/v2/repository/index"
        for name, predict, read, changes in (("reader", 200, 200, 403), ("one", 403, 403, 403), ("ops", 200, 200, 200),
                                            ("unknown", 401, 401, 401), ("text", 401, 401, 401), (None, 401, 401, 401)):
            client = signed.get(name)
            got = status(PATH, BODY, client), status(index, b"", client), status(change, b"", client)
            self.assertEqual(got, (predict, read, changes), name)
        # A key counts before a certificate.
        key = {"Authorization": f"Bearer {made.stdout.strip()}"}
        self.assertEqual(status(change, b"", signed["reader"], **key), 200)
        self.assertEqual(status(PATH, BODY, signed["ops"], Authorization="Bearer wrong"), 401)
        for name, code in (("reader", None), ("one", grpc.StatusCode.PERMISSION_DENIED),
                           ("unknown", grpc.StatusCode.UNAUTHENTICATED)):
            with self.channel(served.grpc_port, signed[name]) as channel:
                call = protos.unary(channel, "inference.GRPCInferenceService", "RepositoryIndex")
                message = protos.message("inference.RepositoryIndexRequest")()
                if code is None:
                    self.assertGreater(len(call(message, timeout=20).models), 2)
                    continue
                with self.assertRaises(grpc.RpcError) as caught:
                    call(message, timeout=20)
                self.assertEqual(caught.exception.code(), code)

    def test_a_new_certificate_is_shown_without_a_restart(self):
        served = self.serve()
        held = http.client.HTTPSConnection("127.0.0.1", served.http_port, context=self.context(), timeout=20)
        held.request("POST", PATH, BODY)
        held.getresponse().read()
        first = self.ask(served)[2]
        certificate, key = self.authority.sign("renewed")
        # The pair is loaded together: a certificate without its key changes nothing.
        shutil.copy(certificate, self.certificate)
        self.assertTrue(served.logged("the certificate stays as it was"))
        self.assertEqual(self.ask(served)[2], first)
        shutil.copy(key, self.key)
        self.assertTrue(served.logged("the certificate was read again"))
        self.assertNotEqual(self.ask(served)[2], first)
        self.assertEqual(self.metric(served, 'onnxd_tls_reloads_total{result="failed"}'), 1)
        self.assertEqual(self.metric(served, 'onnxd_tls_reloads_total{result="succeeded"}'), 1)
        self.certificate.write_text("no certificate")
        time.sleep(2.5)
        self.assertEqual(self.ask(served)[0], 200)
        held.request("POST", PATH, BODY)  # a connection of before lives on
        self.assertEqual(held.getresponse().status, 200)
        held.close()

    def test_files_that_do_not_fit_are_refused_at_the_start(self):
        other = self.authority.sign("other")
        for certificate, key, reason in ((self.certificate, other[1], "other.key: key values mismatch"),
                                         (self.folder / "none", self.key, "none"), (self.key, self.key, "shown.key"),
                                         (self.certificate, "", "need each other")):
            done = subprocess.run(
                [daemon.BINARY, "serve", str(daemon.MODELS), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
                env={"ONNXD_TLS_CERTIFICATE": str(certificate), "ONNXD_TLS_KEY": str(key)}, capture_output=True, text=True,
                timeout=20)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(reason, done.stderr)

    def test_one_port_in_tls(self):
        served = self.stack.enter_context(OnePort(environment={
            "ONNXD_TLS_CERTIFICATE": str(self.certificate), "ONNXD_TLS_KEY": str(self.key)}))
        self.assertEqual(self.ask(served)[0], 200)
        with self.channel(served.http_port) as channel:
            self.assertTrue(live(channel))


class OnePort(daemon.Daemon):
    def __init__(self, environment=None):
        super().__init__(daemon.MODELS, environment={"ONNXD_SERVER_ONE_PORT": "true", **(environment or {})})


class Ways(unittest.TestCase):
    def test_one_port_for_both(self):
        with OnePort() as served:
            self.assertEqual(served.grpc_port, served.http_port)
            with grpc.insecure_channel(f"127.0.0.1:{served.http_port}") as channel:
                for _ in range(3):
                    self.assertTrue(live(channel))
                    request = urllib.request.Request(served.url + PATH, data=BODY.encode())
                    self.assertEqual(urllib.request.urlopen(request, timeout=20).status, 200)
            # Methods that begin like the preface of HTTP/2, byte by byte.
            for method, expected in ((b"POST", b"200"), (b"PUT", b"405"), (b"PRAY", b"405")):
                with socket.create_connection(("127.0.0.1", served.http_port), timeout=20) as client:
                    text = method + f" {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n{BODY}".encode()
                    for byte in text[:8]:
                        client.sendall(bytes([byte]))
                        time.sleep(0.01)
                    client.sendall(text[8:])
                    self.assertIn(expected, client.recv(1000).split(b"\r\n")[0])
            with socket.create_connection(("127.0.0.1", served.http_port), timeout=20) as client:
                client.sendall(b"PRI * garbage" * 10)
                while client.recv(1000):
                    pass
            self.assertTrue(served.alive())

    def test_clients_that_say_nothing_keep_nobody_out(self):
        with OnePort() as served:
            silent = [socket.create_connection(("127.0.0.1", served.http_port)) for _ in range(1100)]
            request = urllib.request.Request(served.url + PATH, data=BODY.encode())
            silent[-1].settimeout(8)
            self.assertEqual(silent[-1].recv(10), b"")  # one too many
            for client in silent[:100]:  # room for whoever speaks at once, well before the others' 10 s are over
                client.close()
            begin, status = time.monotonic(), None
            while status is None and time.monotonic() - begin < 5:
                with contextlib.suppress(OSError):
                    status = urllib.request.urlopen(request, timeout=5).status
            self.assertEqual(status, 200)
            for client in silent[100:]:
                client.close()

    def test_unix_sockets(self):
        with tempfile.TemporaryDirectory() as folder:
            rest, rpc = pathlib.Path(folder) / "rest", pathlib.Path(folder) / "grpc"
            environment = {"ONNXD_SERVER_HTTP_SOCKET": str(rest), "ONNXD_SERVER_GRPC_SOCKET": str(rpc)}
            leftover = socket.socket(socket.AF_UNIX)
            leftover.bind(str(rest))  # of a daemon that was killed
            leftover.close()
            with daemon.Daemon(daemon.MODELS, environment=environment) as served:
                self.assertEqual(rest.stat().st_mode & 0o777, 0o660)
                connection = http.client.HTTPConnection("localhost")
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.connect(str(rest))
                for _ in range(3):
                    connection.request("POST", PATH, BODY)
                    answer = connection.getresponse()
                    self.assertEqual((answer.status, b"prediction" in answer.read()), (200, True))
                connection.close()
                with grpc.insecure_channel(f"unix:{rpc}") as channel:
                    self.assertTrue(live(channel))
                # A second one does not take them away.
                second = subprocess.run([daemon.BINARY, "serve", str(daemon.MODELS), "--http-port", "0", "--grpc-port", "0",
                                         "--metrics-port", "0"], env=environment, capture_output=True, text=True, timeout=20)
                self.assertEqual(second.returncode, 3, second.stderr)
                self.assertIn("somebody listens", second.stderr)
                self.assertTrue(served.alive())
                self.assertEqual(served.terminate(), 0)
            self.assertFalse(rest.exists() or rpc.exists())
            rest.write_text("a file")
            refused = subprocess.run([daemon.BINARY, "serve", str(daemon.MODELS), "--http-port", "0", "--grpc-port", "0",
                                      "--metrics-port", "0"], env=environment, capture_output=True, text=True, timeout=20)
            self.assertEqual(refused.returncode, 3)
            self.assertEqual(rest.read_text(), "a file")


if __name__ == "__main__":
    unittest.main()

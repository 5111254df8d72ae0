"""HTTP framing that no client library sends, clients that hold on to what they get, and sockets that fail."""

import contextlib
import errno
import gzip
import json
import mmap
import os
import pathlib
import random
import re
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import unittest
import urllib.request
import zlib

import daemon
from hostile import GROWTH, IRIS, SANITIZED, HostileCase
from soak import scaled
from test_limits import expander

BODY = json.dumps({"input": IRIS}).encode()


def get(path=b"/health", headers=b""):
    return b"GET " + path + b" HTTP/1.1\r\nHost: h\r\n" + headers + b"\r\n"


def post(headers=b"", body=b"", path=b"/predict"):
    return b"POST " + path + b" HTTP/1.1\r\nHost: h\r\n" + headers + b"\r\n" + body


def sized(body, headers=b"", path=b"/predict"):
    return post(b"Content-Length: %d\r\n" % len(body) + headers, body, path)


def chunked(*chunks, end=b"0\r\n\r\n"):
    return post(b"Transfer-Encoding: chunked\r\n", b"".join(b"%x\r\n%s\r\n" % (len(c), c) for c in chunks) + end)


class Headers(HostileCase):
    def test_h01_a_header_line_without_end(self):
        size = scaled(32, 300) << 20
        self.assert_refused([b"GET /health HTTP/1.1\r\nHost: h\r\nX: ", *[b"a" * (1 << 20)] * (size >> 20)], {431})

    def test_h02_a_request_line_without_end(self):
        self.assert_refused([b"GET /", *[b"a" * (1 << 20)] * scaled(32, 200)], {414})
        self.assert_refused(get(b"/" + b"a" * (8 << 10)), {414})

    def test_h03_header_lines_without_end(self):
        self.assertEqual(self.answers(get(headers=b"X: a\r\n" * 99))[0], [200])
        self.assert_refused(get(headers=b"X: a\r\n" * 100), {431})
        self.assert_refused([get(headers=b"")[:-2], *[b"X: a\r\n" * 10000] * scaled(20, 200)], {431})

    def test_h19_a_post_without_a_length(self):
        self.assert_refused(post(), {400}, closes=False)
        self.assertEqual(self.answers(post(path=b"/v2/repository/index"))[0], [200])

    def test_h21_names_and_ends_of_lines(self):
        for line in (b"X Y: a\r\n", b"X\0: a\r\n", b"X\x01: a\r\n", b"X\xc3\xa9: a\r\n", b": a\r\n", b"Content-Length : 3\r\n",
                     b"X: a\rY: b\r\n", b"X: a\n", b"X: a\r\n folded\r\n", b"X: \0\r\n", b"X: \x01\r\n"):
            self.assert_refused(get(headers=line), {400}, name=line)

    def test_h22_hosts(self):
        for head in (b"", b"Host: a\r\nHost: b\r\n"):
            self.assert_refused(b"GET /health HTTP/1.1\r\n" + head + b"\r\n", {400}, name=head)

    def test_h23_escapes_in_values_stay_what_they_are(self):
        statuses, _, received = self.answers(get(headers=b"X-Request-Id: a%0d%0aSet-Cookie:%20b%00\r\n"))
        self.assertEqual(statuses, [200])
        self.assertNotIn(b"\nset-cookie", received.lower())

    def test_h24_addresses_that_clients_make_up(self):
        for name in (b"REMOTE_ADDR", b"X-Forwarded-For", b"Forwarded", b"X-Real-IP"):
            for value in (b"", b"1.2.3.4", b",,,", b"unknown", b"\xff\xfe", b"a" * 8000, b"1.2.3.4, " * 800):
                statuses = self.answers(sized(b"{", name + b": " + value + b"\r\n"))[0]
                self.assertEqual(statuses, [400], (name, value))
        self.assertTrue(self.served.logged(" of 127.0.0.1:"))
        self.assertFalse(any("of 1.2.3.4" in line for line in self.served.stderr_lines))

    def test_h28_other_protocols(self):
        hello = bytes.fromhex("16030100c8010000c40303") + bytes(190)
        for data in (b"GET /health\r\n\r\n", b"GET /health HTTP/1.2\r\nHost: h\r\n\r\n", b"GET /health HTTP/2.0\r\nHost: h\r\n\r\n",
                     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", hello, random.Random(1).randbytes(4096), b"SSH-2.0-OpenSSH_9.2\r\n\r\n"):
            statuses, closed, received = self.answers(data)
            self.assertTrue(closed, data[:20])
            self.assertLessEqual(set(statuses), {400, 505}, (data[:20], received))

    def test_h29_methods(self):
        for method in (b"TRACE", b"CONNECT", b"get", b"G" * 10240, b"PROPFIND"):
            statuses, _, received = self.answers(method + b" /health HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(len(statuses), 1, method[:20])
            self.assertIn(statuses[0], {400, 405, 414, 501}, method[:20])
        statuses, _, received = self.answers(b"DELETE /predict HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(statuses, [405])
        self.assertIn(b"\r\nallow: post", received.lower())

    def test_h30_paths(self):
        for path in (b"//health", b"/./health", b"/%2e%2e/health", b"/health%2f", b"/%5chealth", b"/health;a=b", b"/%252e%252e/health",
                     b"/%c0%af", b"/HEALTH", b"/v2/models/..%2f..%2fetc%2fpasswd"):
            statuses = self.answers(get(path))[0]
            self.assertEqual(len(statuses), 1, path)
            self.assertIn(statuses[0], {400, 404}, path)
        for path in (b"/health%00", b"/%0d%0aX:%20y", b"/%u002e", b"/%", b"/%zz", b"/\xff", b"health", b"*", b"example.com:443"):
            statuses = self.answers(get(path))[0]
            self.assertEqual(len(statuses), 1, path)
            self.assertIn(statuses[0], {400, 404}, path)
        self.assertEqual(self.answers(get(b"/health?" + b"a=b&" * 1900))[0], [200])
        self.assertEqual(self.answers(get(b"http://h/health"))[0], [200])

    def test_h31_ranges(self):
        statuses, _, received = self.answers(get(b"/openapi.json", b"Range: bytes=" + b"0-1," * 1000 + b"0-1\r\nIf-Range: x\r\n"))
        self.assertEqual(statuses, [200])
        self.assertNotIn(b"multipart", received.lower())

    def test_h34_expectations(self):
        statuses, _, _ = self.answers([sized(BODY, b"Expect: 100-continue\r\n")])
        self.assertIn(statuses, ([100, 200], [200]))
        self.assert_refused(post(b"Content-Length: 5\r\nExpect: something\r\n", b"12345"), {417}, closes=False)

    def test_h35_lists_of_connection_options(self):
        for value in (b"Close", b"keep-alive, close", b"CLOSE , x"):
            statuses, closed, _ = self.answers(get(headers=b"Connection: " + value + b"\r\n"))
            self.assertEqual((statuses, closed), ([200], True), value)
        for value in (b"websocket", b"h2c"):
            statuses, closed, _ = self.answers(get(headers=b"Connection: Upgrade\r\nUpgrade: " + value + b"\r\n"))
            self.assertEqual(statuses, [200], value)


class Bodies(HostileCase):
    def test_h10_a_body_beyond_the_limit(self):
        length = b"Content-Length: %d\r\n" % (100 << 20)
        self.assert_refused([post(length), *[b"a" * (1 << 20)] * 8], {413})
        begin = time.monotonic()
        self.assert_refused(post(length + b"Expect: 100-continue\r\n"), {413})
        self.assertLess(time.monotonic() - begin, 4)
        # The message arrives also where the client goes on sending for a while.
        with self.connect() as client:
            client.sendall(post(length) + b"a" * (512 << 10))
            self.assertIn(b" 413 ", client.recv(65536).split(b"\r\n")[0])

    def test_h11_chunks_beyond_the_limit(self):
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        self.assert_refused([post(b"Transfer-Encoding: chunked\r\n"), *[chunk] * 80], {413})

    def test_h12_chunks_of_one_byte(self):
        body = BODY[:-1] + b" " * scaled(100_000, 1_000_000) + b"}"
        data = post(b"Transfer-Encoding: chunked\r\n", b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
        begin = time.monotonic()
        self.assertIn(self.answers(data)[0], ([200], [413]))
        self.assertLess(time.monotonic() - begin, scaled(10, 60))

    def test_h13_sizes_of_chunks(self):
        for size in (b"-2", b"+5", b"0x5", b" 5", b"", b"F" * 16, b"F" * 17, b"5 5", b"g"):
            self.assert_refused(post(b"Transfer-Encoding: chunked\r\n", size + b"\r\n" + BODY[:5] + b"\r\n0\r\n\r\n"), {400, 413}, name=size)

    def test_h14_extensions_of_chunks(self):
        self.assert_refused(post(b"Transfer-Encoding: chunked\r\n", b"5;" + b"a" * (1 << 20) + b"\r\n12345\r\n0\r\n\r\n"), {400, 413})
        self.assert_refused(post(b"Transfer-Encoding: chunked\r\n", b"5;a\nb\r\n12345\r\n0\r\n\r\n"), {400})
        short = b"%x;name=value\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
        self.assertEqual(self.answers(post(b"Transfer-Encoding: chunked\r\n", short))[0], [200])

    def test_h15_ends_of_chunks(self):
        for data in (b"5\r\n12345XX0\r\n\r\n", b"5\r\n12345\n0\r\n\r\n"):
            self.assert_refused(post(b"Transfer-Encoding: chunked\r\n", data), {400}, name=data)
        for data in (b"5\n12345\n0\n\n", b"5\r\n12345\r\n"):  # nothing that ends: until its time is over
            with self.connect() as client:
                client.sendall(post(b"Transfer-Encoding: chunked\r\n", data))
                self.assertEqual(select.select([client], [], [], 0.5)[0], [])
                client.shutdown(socket.SHUT_WR)
                self.assertNotIn(b" 200 ", client.recv(65536))

    def test_h16_trailers(self):
        end = b"0\r\nHost: other\r\nContent-Type: multipart/form-data\r\nConnection: close\r\nX-Request-Id: theirs\r\n\r\n"
        statuses, closed, received = self.answers(chunked(BODY, end=end) * 2, quiet=2)
        self.assertEqual((statuses, closed), ([200, 200], False))
        self.assertNotIn(b"theirs", received)
        self.assert_refused(chunked(BODY, end=b"0\r\nContent-Length: 5\r\n\r\n"), {400})
        self.assert_refused(chunked(BODY, end=b"0\r\n" + b"X: " + b"a" * (64 << 10) + b"\r\n\r\n"), {400, 431})

    def test_h17_lengths(self):
        for value in (b"-1", b"+5", b"5abc", b"0x10", b"", b"10, 20", b"10, 10", b"18446744073709551616", b"1 0"):
            self.assert_refused(post(b"Content-Length: " + value + b"\r\n", b"0123456789"), {400, 413}, name=value)
        self.assert_refused(post(b"Content-Length: 10\r\nContent-Length: 10\r\n", b"0123456789"), {400})
        self.assert_refused(post(b"Content-Length: " + b"0" * 1000 + b"10\r\n", b"0123456789"), {400})

    def test_h18_two_ways_to_say_how_long(self):
        both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(BODY)
        self.assert_refused(post(both, BODY), {400})
        self.assert_refused(b"POST /predict HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400})
        for value in (b"gzip, chunked", b"xchunked", b"chunked, identity", b"chunked, chunked", b"identity"):
            self.assert_refused(post(b"Transfer-Encoding: " + value + b"\r\n", b"0\r\n\r\n"), {400, 501}, name=value)
        self.assert_refused(post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"), {400, 501})

    def test_h20_a_request_in_a_body(self):
        hidden = get(b"/metrics")
        for method in (b"GET", b"HEAD", b"DELETE"):
            head = method + b" /health HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(hidden)
            self.assertEqual(len(self.answers(head + hidden)[0]), 1, method)

    def test_h32_what_is_compressed(self):
        for name, packed in ((b"gzip", gzip.compress(BODY)), (b"deflate", zlib.compress(BODY))):
            self.assertEqual(self.answers(sized(packed, b"Content-Encoding: " + name + b"\r\n"))[0], [200], name)
        bomb = gzip.compress(bytes(scaled(200, 500) << 20), 9)
        self.assertLess(len(bomb), 1 << 20)
        begin = time.monotonic()
        self.assert_refused(sized(bomb, b"Content-Encoding: gzip\r\n"), {413}, closes=False)
        self.assertLess(time.monotonic() - begin, 10)
        for name in (b"br", b"zstd", b"gzip, gzip", b"compress"):
            self.assert_refused(sized(BODY, b"Content-Encoding: " + name + b"\r\n"), {415}, closes=False, name=name)
        self.assert_refused(sized(gzip.compress(BODY)[:-9], b"Content-Encoding: gzip\r\n"), {400}, closes=False)


class Connections(HostileCase):
    options = {"ONNXD_LIMITS_HEADER_TIMEOUT_S": "2", "ONNXD_LIMITS_WRITE_TIMEOUT_S": "2", "ONNXD_LIMITS_CONNECTIONS": "600",
               "ONNXD_LIMITS_CONNECTIONS_PER_CLIENT": "400"}

    def test_h04_a_byte_now_and_then(self):
        clients = [self.connect() for _ in range(scaled(256, 390))]
        begin = time.monotonic()
        line = b"GET /health HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 1000
        answered = set()
        for byte in line:
            for client in clients:
                with contextlib.suppress(OSError):
                    client.send(bytes([byte]))
            self.assertLess(self.honest(), 3)
            if time.monotonic() - begin > 6:
                break
            time.sleep(0.2)
        for client in clients:
            with contextlib.suppress(OSError):
                answered.add(client.recv(64)[:12])
                self.assertEqual(client.recv(1 << 16)[-0:] and b"", b"")
            client.close()
        self.assertLessEqual(answered, {b"HTTP/1.1 408", b""})
        self.assertIn(b"HTTP/1.1 408", answered)

    def test_h07_idle_connections(self):
        one = [self.connect() for _ in range(500)]  # more than a client may have
        others = [self.connect(f"127.0.1.{i % 250}") for i in range(200)]
        for client in (one[-1], others[-1]):
            client.sendall(get())
            self.assertIn(b"200 OK", client.recv(65536))
        self.assertLess(self.honest(), 3)
        for client in one + others:
            client.close()

    def test_h08_a_storm_of_connections_that_are_reset(self):
        end = time.monotonic() + scaled(3, 60)
        count = 0
        while time.monotonic() < end:
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                client.connect(("127.0.0.1", self.served.http_port))
            client.close()
            count += 1
        self.assertGreater(count, 1000)
        self.assertLess(self.settled(lambda: self.metric("onnxd_connections"), 5), 5)

    def test_h25_requests_in_one_packet(self):
        one = sized(BODY)
        self.assertEqual(self.answers(one * 5, quiet=2)[0], [200] * 5)
        statuses = self.answers((get(b"/health") + get(b"/none")) * 3, quiet=2)[0]
        self.assertEqual(statuses, [200, 404] * 3)  # in order
        # Of one who reads nothing, no more is read than answers can wait.
        with self.connect(receive_buffer=4096) as client:
            client.settimeout(2)
            sent = 0
            with contextlib.suppress(OSError):
                while sent < 400 << 20:
                    sent += client.send(get(b"/openapi.json") * 100)
            self.assertLess(sent, 64 << 20)

    def test_h26_half_a_connection(self):
        """A client that closes its side is taken for gone, as by nginx: that it only sends no more cannot be told from
        that. Its answer comes if it was quicker."""
        with self.connect() as client:
            client.sendall(sized(BODY, b"Connection: close\r\n"))
            client.shutdown(socket.SHUT_WR)
            received = b""
            while chunk := client.recv(65536):
                received += chunk
        self.assertIn(received[:12], (b"HTTP/1.1 200", b"HTTP/1.1 499", b""))

    def test_h27_a_client_that_goes_anywhere(self):
        request = sized(BODY)
        for cut in range(0, len(request) + 1, 7):
            with self.connect() as client:
                client.sendall(request[:cut])
        self.assertEqual(self.settled(lambda: self.metric("onnxd_inflight_requests"), 1), 0)
        self.assertFalse(any(" error " in line.lower() for line in self.served.stderr_lines), self.served.stderr_lines[-5:])


class Accepting(unittest.TestCase):
    def test_h09_accepting_that_fails(self):
        library = os.environ.get("TEST_FAULTS", str(pathlib.Path(daemon.BINARY).resolve().parents[1] / "tests" / "libfaults.so"))
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(48))
            file.flush()
            with daemon.Daemon(daemon.MODELS, environment={"LD_PRELOAD": library, "FAULTS": file.name}) as served:
                control = mmap.mmap(file.fileno(), 48)
                for number, name in enumerate(("EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "ECONNABORTED", "EPROTO", "EPERM", "EINTR"), 1):
                    control[32:48] = struct.pack("qq", 20, getattr(errno, name))
                    with urllib.request.urlopen(served.url + "/health", timeout=20) as answer:
                        self.assertEqual(answer.status, 200, name)
                    self.assertTrue(served.alive(), name)
                control.close()
                with urllib.request.urlopen(served.url + "/metrics", timeout=20) as answer:
                    survived = int(re.search(r"^onnxd_accept_errors_total (\d+)", answer.read().decode(), re.M)[1])
                # EINTR and ECONNABORTED are tried again without a word.
                self.assertGreaterEqual(survived, 6)
                self.assertLess(len(served.stderr_lines), 150)  # a line each, no storm


class Slow(unittest.TestCase):
    """Bodies that come, and answers that are taken, a byte at a time."""

    @classmethod
    def setUpClass(cls):
        cls.repository = daemon.repository(expander=expander())
        folder = cls.repository.__enter__()
        cls.addClassCleanup(cls.repository.__exit__, None, None, None)
        cls.served = daemon.Daemon(folder, environment={"ONNXD_LIMITS_WRITE_TIMEOUT_S": "2"})
        cls.addClassCleanup(cls.served.close)

    metric = HostileCase.metric
    connect = HostileCase.connect
    settled = HostileCase.settled

    def test_h05_a_body_of_a_byte_a_second(self):
        with self.connect() as client:
            client.sendall(post(b"Content-Length: %d\r\n" % (64 << 20)) + b"{" * (1 << 20))
            self.assertGreaterEqual(self.settled(lambda: -self.metric("onnxd_buffered_request_bytes"), -1), -(65 << 20))
            begin = time.monotonic()
            answer = b""
            while not answer and time.monotonic() - begin < 120:
                with contextlib.suppress(ConnectionError):
                    client.send(b"{")
                if select.select([client], [], [], 1)[0]:
                    answer = client.recv(65536)
            self.assertIn(b" 408 ", answer.split(b"\r\n")[0])
        self.assertLess(time.monotonic() - begin, 110)
        self.assertEqual(self.settled(lambda: self.metric("onnxd_buffered_request_bytes"), 1), 0)

    def test_h06_an_answer_that_nobody_takes(self):
        body = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [0.5]},
                                      {"name": "shape", "datatype": "INT64", "shape": [1], "data": [16_000_000]}]}).encode()
        before = self.served.resident_bytes()
        with self.connect(receive_buffer=4096) as client:
            client.sendall(sized(body, path=b"/v2/models/expander/infer"))
            self.assertTrue(select.select([client], [], [], 60)[0])  # it begins
            # The model is free before the answer has been taken.
            self.assertEqual(self.settled(lambda: self.metric("onnxd_inflight_requests") - 0.5, 0, 30), -0.5)
            time.sleep(4)
            self.assertEqual(self.settled(lambda: self.metric("onnxd_connections") - 2.5, 0, 10) < 0, True)
            received = 0
            with contextlib.suppress(ConnectionError):
                while chunk := client.recv(1 << 20):
                    received += len(chunk)
            self.assertLess(received, 16_000_000 * 3)
        self.assertLess(self.settled(lambda: self.served.resident_bytes() - before, GROWTH), GROWTH)


class BehindNginx(unittest.TestCase):
    """What a proxy of another make and we see in the same bytes: a request that only one of them sees would be
    smuggled past it."""

    @classmethod
    def setUpClass(cls):
        nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
        if nginx is None:
            raise unittest.SkipTest("nginx (Debian's nginx-light package) is not installed")
        cls.served = daemon.embedded()
        cls.addClassCleanup(cls.served.close)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            cls.port = free.getsockname()[1]
        cls.log = pathlib.Path(folder.name, "access.log")
        paths = "".join(f"{kind}_temp_path {folder.name}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        configuration = pathlib.Path(folder.name, "nginx.conf")
        configuration.write_text(f"""
            daemon off; worker_processes 1; pid {folder.name}/pid; error_log {folder.name}/error.log crit;
            events {{ worker_connections 512; }}
            http {{
              {paths}
              log_format seen "$upstream_addr=$upstream_status";
              upstream backend {{ server 127.0.0.1:{cls.served.http_port}; keepalive 1; }}
              server {{
                listen 127.0.0.1:{cls.port}; access_log {cls.log} seen; client_header_timeout 1s;
                client_body_timeout 1s; proxy_ignore_client_abort on;
                location / {{ proxy_pass http://backend; proxy_http_version 1.1; proxy_set_header Connection "";
                             proxy_request_buffering off; proxy_next_upstream off; }}
              }}
            }}""")
        cls.proxy = subprocess.Popen([nginx, "-c", str(configuration)], stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.proxy.wait)
        cls.addClassCleanup(cls.proxy.terminate)
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", cls.port), timeout=1).close()
                break
            time.sleep(0.05)

    def seeds(self):
        hidden = sized(BODY)
        yield sized(BODY)
        yield sized(BODY) + hidden
        yield chunked(BODY[:7], BODY[7:]) + hidden
        yield post(b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(hidden), b"0\r\n\r\n" + hidden)
        yield post(b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n", b"1\r\nA\r\n0\r\n\r\n" + hidden)
        yield sized(hidden) + hidden
        yield post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n" + hidden)
        yield chunked(BODY, end=b"0\r\nContent-Length: 3\r\n\r\n") + hidden

    def mutated(self, random_source, data):
        pieces = [b"\r", b"\n", b"\r\n", b" ", b"\t", b"\0", b"0", b"chunked", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
                  b":", b",", b"5\r\n", b"0\r\n\r\n", b";a", b"+", b"-", b"0x", b"\x0b", b"Connection: close\r\n"]
        for _ in range(random_source.randrange(4)):
            at = random_source.randrange(len(data))
            cut = at + random_source.choice((0, 0, 1, 2))
            data = data[:at] + random_source.choice(pieces) + data[cut:]
        return data

    def seen(self):
        """Requests for inference that the daemon has taken for such."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.served.metrics_port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("onnxd_requests_total{"))

    def forwarded(self):
        """What the proxy has had for an answer to each request that it forwarded."""
        return [line.split("=")[1] for line in self.log.read_text().split() if not line.startswith("-=")]

    def test_h38_as_many_requests_as_the_proxy_forwards(self):
        source = random.Random(38)
        seeds = list(self.seeds())
        for _ in range(scaled(300, 20000)):
            data = self.mutated(source, source.choice(seeds))
            known, before = len(self.forwarded()), self.seen()
            with socket.create_connection(("127.0.0.1", self.port), timeout=10) as client:
                with contextlib.suppress(OSError):
                    client.sendall(data)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65536):
                        pass
            time.sleep(0.005)  # the log is written after the answer
            forwarded, seen = self.forwarded()[known:], self.seen() - before
            self.assertLessEqual(seen, len(forwarded), data)
            self.assertGreaterEqual(seen, forwarded.count("200"), data)
        self.assertIn("200", self.forwarded())


if __name__ == "__main__":
    unittest.main()

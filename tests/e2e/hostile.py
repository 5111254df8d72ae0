"""What every hostile case leaves behind: a daemon that lives, answers, and has not grown."""

import contextlib
import json
import pathlib
import re
import select
import shutil
import socket
import time
import unittest
import urllib.error
import urllib.request

import daemon

IRIS = [[5.1, 3.5, 1.4, 0.2], [6.3, 3.3, 6.0, 2.5]]
SANITIZED = "asan" in daemon.BINARY
GROWTH = (256 if SANITIZED else 20) << 20  # bytes; sanitizers keep what was freed
LONGEST_LINE = 2048
FORBIDDEN = re.compile(r"AddressSanitizer|runtime error:|LeakSanitizer|[\x00-\x08\x0b-\x1f\x7f]")


class HostileCase(unittest.TestCase):
    """One daemon for the cases of a class; `options` are its environment, `models` what it serves besides."""

    options = {}

    @staticmethod
    def models():
        return {}

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(daemon.repository(**cls.models()))
        for model in daemon.MODELS.iterdir():
            if (model / "1").is_dir():
                shutil.copytree(model, pathlib.Path(folder, model.name))
        cls.served = daemon.Daemon(folder, "--default-model", "iris_forest", environment=cls.options)
        cls.addClassCleanup(cls.served.close)
        for _ in range(20):
            cls.honest(cls)

    def setUp(self):
        self.lines = len(self.served.stderr_lines)
        self.resident = self.served.resident_bytes()

    def tearDown(self):
        self.assertTrue(self.served.alive(), self.served.stderr_lines[-20:])
        self.assertLess(self.honest(), 5)
        self.assertLess(self.settled(lambda: self.served.resident_bytes() - self.resident, GROWTH), GROWTH)
        for line in self.served.stderr_lines[self.lines:]:
            self.assertLessEqual(len(line), LONGEST_LINE)
            self.assertIsNone(FORBIDDEN.search(line.rstrip("\n")), line)

    def settled(self, value, below, seconds=10):
        """The value as soon as it is below, else after that time."""
        end = time.monotonic() + seconds
        while (found := value()) >= below and time.monotonic() < end:
            time.sleep(0.1)
        return found

    def honest(self):
        """Seconds that a request of an honest client takes."""
        begin = time.monotonic()
        request = urllib.request.Request(self.served.url + "/predict", json.dumps({"input": IRIS}).encode())
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert answer.status == 200
        return time.monotonic() - begin

    def post(self, path, body, headers=None):
        """(status, what the answer's JSON says, the answer)"""
        data = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        request = urllib.request.Request(self.served.url + path, data, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                status, content = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, content = error.code, error.read()
        with contextlib.suppress(ValueError):
            return status, json.loads(content), content
        return status, None, content

    def assert_bad(self, path, body, text="", headers=None, codes=(400,), name=None):
        """Refused in the protocol's form, in words that hold no more than 64 bytes of what came."""
        status, answer, content = self.post(path, body, headers)
        name = name or str(body)[:200]
        self.assertIn(status, codes, (name, content[:300]))
        self.assertEqual(list(answer), ["error"], name)
        self.assertIn(text, answer["error"], name)
        self.assertLess(len(content), 1024, name)
        self.assertNotRegex(content, rb"/(work|tmp|home|usr)/|0x[0-9a-f]{6}|std::|boost")

    def metric(self, name):
        """The sum of a metric's series."""
        with urllib.request.urlopen(self.served.url + "/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if re.match(name + r"[{ ]", line))

    def connect(self, source="127.0.0.1", receive_buffer=None):
        client = socket.socket()
        client.bind((source, 0))
        if receive_buffer:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        client.settimeout(20)
        client.connect(("127.0.0.1", self.served.http_port))
        return client

    def answers(self, data, quiet=0.2):
        """What comes back to these bytes until the daemon closes, or is silent for so long: statuses, whether it
        closed, the bytes."""
        received, closed = b"", False
        with self.connect() as client:
            with contextlib.suppress(OSError):
                for part in [data] if isinstance(data, bytes) else data:
                    client.sendall(part)
            with contextlib.suppress(OSError):
                while select.select([client], [], [], quiet if received else 5)[0]:
                    chunk = client.recv(1 << 20)
                    if not chunk:
                        closed = True
                        break
                    received += chunk
            # A reset after the answer closes it, too.
            closed = closed or client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0
        return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", received)], closed, received

    def assert_refused(self, data, codes, closes=True, name=None):
        """Exactly one answer, with one of these statuses, in the protocol's form, which ends the connection."""
        statuses, closed, received = self.answers(data)
        self.assertEqual(len(statuses), 1, (name, received[:300]))
        self.assertIn(statuses[0], codes, (name, received[:300]))
        if closes:
            self.assertTrue(closed or b"connection: close" in received.lower(), (name, received[:300]))
        body = received.split(b"\r\n\r\n", 1)[1]
        if body:
            self.assertEqual(list(json.loads(body)), ["error"], name)
            self.assertNotRegex(body, rb"/(work|tmp|home|usr)/|0x[0-9a-f]{6}|std::|boost")

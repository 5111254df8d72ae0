"""Configurations that are wrong, signals at any time, disks that are full, and deaths in between."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import resource
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import daemon
from repositories import RepositoryCase, factor_model, heavy_model
from soak import scaled


def run(*arguments, timeout=30, environment=None, **options):
    """(exit code, standard error) of `onnxd serve`, which must end by itself."""
    done = subprocess.run([daemon.BINARY, "serve", *map(str, arguments)], capture_output=True, timeout=timeout,
                          env={**os.environ, **(environment or {})}, **options)
    return done.returncode, done.stderr.decode(errors="replace")


class Configuration(unittest.TestCase):
    def refused(self, content):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "onnxd.yaml"
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
            begin = time.monotonic()
            code, text = run("--config", path)
            self.assertLess(time.monotonic() - begin, 10)
        self.assertEqual(code, 2, (content[:80], text))
        self.assertEqual(len(text.strip().splitlines()), 1, text)  # one line
        return text

    def test_files_that_are_none(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            os.mkfifo(folder / "fifo")
            (folder / "large").write_bytes(b"#" * (2 << 20))
            for path in ("missing", ".", "fifo", "large"):
                code, text = run("--config", folder / path)
                self.assertEqual(code, 2, path)
                self.assertIn(str(folder), text)
        for content in (b"\x7fELF\x00\x01", "server:\n  http_port: 1\n".encode("utf-16"), b"\xff\xfe\x00"):
            self.refused(content)
        with tempfile.NamedTemporaryFile() as empty:  # says nothing, so that a model is missing
            self.assertEqual(run("--config", empty.name)[0], 2)

    def test_texts_that_expand_nest_or_repeat(self):
        bomb = "a: &a [x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20))
        for text in ("[" * 100_000, "{a: " * 100_000, "- " * 50_000, bomb, "a: &a [*a]\n", "server: !!python/object:os.system x\n",
                     "server: {}\n---\nlog: {}\n", "server:\n  bind: x\n  bind: y\n", "server:\n\tbind: x\n",
                     "servr:\n  bind: x\n", "? [a]\n: b\n", "server: |\n  x\n"):
            self.refused(text)

    def test_numbers_that_are_none(self):
        for key, value in (("http_port", "-1"), ("http_port", "70000"), ("http_port", "010"), ("http_port", "1e3"),
                           ("http_port", "0x50"), ("http_port", "yes"), ("http_port", "1.0"), ("io_threads", "0"),
                           ("http_port", "9" * 40), ("http_port", "'80 '"), ("http_port", "~"), ("http_port", "null")):
            self.assertIn(f"server.{key}", self.refused(f"server:\n  {key}: {value}\n"))
        for value in ("10GB", "10 gib", "-1", "1_000", ".5"):
            self.assertIn("limits.body_bytes", self.refused(f"limits:\n  body_bytes: {value}\n"))

    def test_limits_that_contradict_each_other(self):
        self.assertIn("limits.body_bytes", self.refused("limits:\n  body_bytes: 2000000000\n"))
        self.assertIn("limits.memory_bytes", self.refused("limits:\n  memory_bytes: 2000000\n"))
        self.assertIn("priority", self.refused("batching:\n  priority_levels: 2\n  default_priority_level: 9\n"))

    def test_ports_that_cannot_be_had(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            for flag in ("--http-port", "--grpc-port", "--metrics-port"):
                ports = {"--http-port": 0, "--grpc-port": 0, "--metrics-port": 0, flag: port}
                code, text = run(daemon.MODELS, *[part for pair in ports.items() for part in pair])
                self.assertEqual(code, 3)
                self.assertIn(str(port), text)
        code, text = run(daemon.MODELS, "--bind", "203.0.113.7", "--http-port", 0, "--grpc-port", 0, "--metrics-port", 0)
        self.assertEqual(code, 3)
        self.assertIn("203.0.113.7", text)


class Signals(RepositoryCase):
    def test_terminating_it_under_load_fails_no_request(self):
        """As behind a balancer: clients leave when the probe says so, or when their connection is to close."""
        for _ in range(scaled(2, 50)):
            served = self.serve(ONNXD_LIMITS_DRAIN_DELAY_S="1")
            failures, answered, stop = [], [0], threading.Event()

            def client():
                connection = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=10)
                body = json.dumps({"input": [[1, 1, 1, 1]]})
                try:
                    while not stop.is_set():
                        connection.request("POST", "/predict/m", body)
                        response = connection.getresponse()
                        response.read()
                        if response.status != 200:
                            failures.append(response.status)
                        answered[0] += 1
                        if response.headers.get("Connection") == "close":
                            return
                except Exception as error:  # any failure counts
                    failures.append(repr(error))
                finally:
                    connection.close()

            threads = [threading.Thread(target=client) for _ in range(16)]
            for thread in threads:
                thread.start()
            time.sleep(0.5)
            self.assertEqual(served.terminate(), 0)
            stop.set()
            for thread in threads:
                thread.join()
            self.assertEqual(failures, [])
            self.assertGreater(answered[0], 100)

    def test_a_stuck_client_does_not_hold_it_up(self):
        self.put(1, daemon.slow_model(), "slow")
        served = self.serve(ONNXD_LIMITS_DRAIN_TIMEOUT_S="1")
        with socket.create_connection(("127.0.0.1", served.http_port)) as stuck:
            stuck.sendall(b"POST /predict/m HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf")
            time.sleep(0.2)
            begin = time.monotonic()
            self.assertEqual(served.terminate(), 0)
            self.assertLess(time.monotonic() - begin, 8)

    def test_while_it_starts_loads_and_unloads(self):
        for i in range(4):
            self.put(1, heavy_model(5, i + 2), f"m{i}")
        rng = random.Random(4)
        for _ in range(scaled(8, 300)):
            process = subprocess.Popen(
                [daemon.BINARY, "serve", str(self.folder), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, "ONNXD_LIMITS_DRAIN_DELAY_S": "0"})
            time.sleep(rng.uniform(0.02, 0.3))
            process.send_signal(signal.SIGTERM)
            self.assertIn(process.wait(20), (0, -signal.SIGTERM))  # before it listens for it
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            calls = [pool.submit(self.status, served, f"/v2/repository/models/m{i % 4}/{verb}", b"")
                     for i in range(16) for verb in ("load", "unload")]
            time.sleep(0.05)
            self.assertEqual(served.terminate(), 0)
            for call in calls:
                call.exception()

    def test_killed_at_any_time_it_starts_again_with_the_same_models(self):
        environment = {"ONNXD_MODELS_CONTROL_MODE": "explicit", "ONNXD_MODELS_STATE_DIR": str(self.folder / ".state"),
                       "ONNXD_RUNTIME_CACHE_DIR": str(self.folder / ".cache")}
        self.put(1, factor_model(7), "n")
        served = self.serve(**environment)
        self.assertEqual(self.post(served, "/v2/repository/models/n/load")[0], 200)
        rng = random.Random(9)
        for _ in range(scaled(8, 1000)):
            self.assertEqual(self.answer(served, "/predict/n"), 7)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                pool.submit(lambda: self.status(served, "/v2/repository/models/m/load", b""))
                pool.submit(lambda: self.status(served, "/v2/repository/models/m/unload", b""))
                time.sleep(rng.uniform(0, 0.03))
                served.process.kill()
            served.close()
            served = self.serve(**environment)
            names = {m["name"] for m in self.post(served, "/v2/repository/index")[1]}
            self.assertIn("n", names)
            self.assertLessEqual(names, {"m", "n"})

    def test_other_signals(self):
        served = self.serve()
        for number in (signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            served.process.send_signal(number)
            time.sleep(0.05)
            self.assertEqual(self.answer(served), 1, number)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            served.process.send_signal(signal.SIGSTOP)
            late = pool.submit(self.status, served, headers={"X-Request-Timeout-Ms": "100"}, timeout=60)
            time.sleep(scaled(1, 30))
            served.process.send_signal(signal.SIGCONT)
            self.assertIn(late.result()[0], (200, 503, 504))
        self.assertEqual(self.answer(served), 1)


class Disks(RepositoryCase):
    def started(self, stderr):
        """A daemon whose stderr is not read along, and its address."""
        process = subprocess.Popen(
            [daemon.BINARY, "serve", str(self.folder), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
            stdout=subprocess.PIPE, stderr=stderr, env={**os.environ, "ONNXD_LIMITS_DRAIN_DELAY_S": "0"})

        def close():
            process.kill()
            process.communicate()

        self.addCleanup(close)

        class Served:
            url = "http://" + process.stdout.readline().decode().split("http://")[1].split(",")[0]

        process.stdout.readline()
        return process, Served

    def test_logs_that_cannot_be_written(self):
        with open("/dev/full", "w") as full:
            process, served = self.started(full)
        for _ in range(20):
            self.status(served, "/predict/m", b"{")
        self.assertEqual(self.answer(served), 1)
        process.terminate()
        self.assertEqual(process.wait(20), 0)

    def test_logs_that_nobody_reads(self):
        """A collector that stands still holds up neither requests nor the end."""
        process, served = self.started(subprocess.PIPE)
        unknown = json.dumps({"x" * 200: 1}).encode()
        for _ in range(5):  # a line each, at most 100 a second
            for _ in range(110):
                self.assertEqual(self.status(served, "/predict/m", unknown)[0], 400)
            time.sleep(1)
        self.assertEqual(self.answer(served), 1)
        self.assertGreater(len(os.read(process.stderr.fileno(), 1 << 20)), 50_000)  # the pipe was full
        self.assertEqual(self.status(served, "/predict/m", unknown)[0], 400)
        rest = os.read(process.stderr.fileno(), 1 << 16).decode()
        self.assertRegex(rest, r"\d+ lines of log were lost")
        process.terminate()
        self.assertEqual(process.wait(20), 0)

    def test_a_cache_and_a_state_that_cannot_be_written(self):
        """No file may grow beyond a few bytes, as on a full disk."""
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

        process = subprocess.Popen(
            [daemon.BINARY, "serve", str(self.folder), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=limit,
            env={**os.environ, "ONNXD_MODELS_CONTROL_MODE": "explicit", "ONNXD_MODELS_STATE_DIR": str(self.folder / ".state"),
                 "ONNXD_RUNTIME_CACHE_DIR": str(self.folder / ".cache")})
        try:
            line = process.stdout.readline()

            class Served:
                pass

            Served.url = "http://" + line.split("http://")[1].split(",")[0]
            process.stdout.readline()
            self.assertEqual(self.post(Served, "/v2/repository/models/m/load")[0], 200)
            self.assertEqual(self.answer(Served), 1)
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
        self.assertFalse((self.folder / ".state" / "loaded_models").exists())
        again = self.serve(ONNXD_MODELS_STATE_DIR=str(self.folder / ".state"),
                           ONNXD_RUNTIME_CACHE_DIR=str(self.folder / ".cache"))
        self.assertEqual(self.answer(again), 1)


if __name__ == "__main__":
    unittest.main()

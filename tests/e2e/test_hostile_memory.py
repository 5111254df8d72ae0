"""Allocations and files that fail, one at a time and anywhere, and models beyond what the memory holds."""

import contextlib
import mmap
import os
import pathlib
import random
import socket
import struct
import time
import unittest

import numpy
import tritonclient.grpc

import daemon
from repositories import RepositoryCase, factor_model, heavy_model
from soak import scaled

LIBRARY = os.environ.get(
    "TEST_FAULTS", str(pathlib.Path(daemon.BINARY).resolve().parents[1] / "tests" / "libfaults.so"))
MEMORY, FILES = 0, 16  # where their numbers stand
MEGABYTE = 1 << 20


class Faults(RepositoryCase):
    def start(self, **environment):
        control = self.folder / ".control"
        control.write_bytes(bytes(32))
        self.file = control.open("r+b")
        self.addCleanup(self.file.close)
        self.control = mmap.mmap(self.file.fileno(), 32)
        self.addCleanup(self.control.close)
        # What a connection was about to do may be lost: then it ends with its time.
        self.served = self.serve(LD_PRELOAD=LIBRARY, FAULTS=str(control), ONNXD_LIMITS_IDLE_TIMEOUT_S="1",
                                 ONNXD_LIMITS_HEADER_TIMEOUT_S="1", **environment)

    def fail_at(self, number, what=MEMORY):
        self.control[what:what + 8] = struct.pack("q", number)

    def count(self, what):
        return struct.unpack("q", self.control[what + 8:what + 16])[0]

    def each(self, operation, count, usable=None, what=MEMORY):
        """Lets the first, second, .. allocation of an operation fail; what it answers then is in `usable`."""
        for _ in range(3):
            operation()
        before = self.count(what)
        operation()
        most = self.count(what) - before + 8
        # All of them where they are few, else an even choice.
        numbers = range(1, most + 1) if most <= count else sorted(
            random.Random(1).sample(range(1, most + 1), count))
        for number in numbers:
            self.fail_at(number, what)
            try:
                result = operation()
            except (OSError, tritonclient.grpc.InferenceServerException) as error:
                result = repr(error)
            self.fail_at(0, what)
            self.assertTrue(self.served.alive(), (number, self.served.stderr_lines[-5:]))
            if usable is not None and isinstance(result, int):
                self.assertIn(result, usable, number)
            self.assertEqual(self.answer(self.served), 1, number)  # as if nothing had been
        self.assertTrue(self.eventually(lambda: self.metric(self.served, "onnxd_inflight_requests") == 0))

    def test_of_inference_over_rest(self):
        self.start()
        body = b'{"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}'
        self.each(lambda: self.status(self.served)[0], scaled(40, 10**6), {200, 413, 500, 503})
        self.each(lambda: self.status(self.served, "/v2/models/m/infer", body)[0], scaled(40, 10**6), {200, 413, 500, 503})

    def test_of_inference_over_grpc(self):
        self.start()
        tensor = tritonclient.grpc.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(numpy.ones((1, 4), numpy.float32))

        def infer():
            with contextlib.closing(tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{self.served.grpc_port}")) as client:
                client.infer("m", [tensor], client_timeout=5)

        self.each(infer, scaled(25, 10**6))

    def test_of_metrics_health_and_connections(self):
        self.start()
        self.each(lambda: self.get(self.served, "/metrics")[0], scaled(25, 10**6), {200, 500, 503})
        self.each(lambda: self.get(self.served, "/health")[0], scaled(25, 10**6), {200, 500, 503})

        def connect():
            with socket.create_connection(("127.0.0.1", self.served.http_port)):
                pass

        self.each(connect, scaled(40, 10**6))

    def test_of_loading_and_of_reading_the_configuration(self):
        self.put(1, factor_model(3), "n")
        self.start(ONNXD_MODELS_CONTROL_MODE="explicit", ONNXD_MODELS_STATE_DIR=str(self.folder / ".state"))
        self.assertEqual(self.post(self.served, "/v2/repository/models/m/load")[0], 200)

        def load_and_unload():
            status = self.post(self.served, "/v2/repository/models/n/load")[0]
            self.post(self.served, "/v2/repository/models/n/unload")
            return status

        self.each(load_and_unload, scaled(40, 10**6), {200, 413, 500, 503})
        self.each(load_and_unload, 10**6, {200, 400, 404, 500, 503}, FILES)
        self.assertEqual(self.post(self.served, "/v2/repository/models/n/load")[0], 200)
        self.assertEqual(self.answer(self.served, "/predict/n"), 3)
        self.each(lambda: self.post(self.served, "/v2/config/reload")[0], scaled(25, 10**6), {200, 400, 404, 413, 500, 503})

    def test_of_following_the_repository(self):
        self.start(ONNXD_MODELS_POLL_INTERVAL_S="1")
        rng = random.Random(2)
        for version in range(2, scaled(4, 100)):
            self.fail_at(rng.randrange(1, 3000))
            self.put(version, factor_model(version))
            time.sleep(1.5)
            self.fail_at(0)
            self.assertTrue(self.served.alive(), self.served.stderr_lines[-5:])
        self.put(1000, factor_model(1000))
        self.assertTrue(self.eventually(lambda: self.answer(self.served) == 1000))


class MoreThanFits(RepositoryCase):
    first = heavy_model(20, 1)

    def setUp(self):
        super().setUp()
        self.settings("pinned: true\n")  # the others come and go
        self.names = ["m", *(f"m{i}" for i in range(2, 8))]
        for i, name in enumerate(self.names[1:], 2):
            self.put(1, heavy_model(20, i), name)

    def load_until_refused(self, served):
        """Again and again; the largest resident memory that was seen."""
        refused, peak, end = 0, 0, time.monotonic() + scaled(3, 3600)
        while True:
            for name in self.names:
                status, document = self.post(served, f"/v2/repository/models/{name}/load")
                self.assertIn(status, (200, 413), document)
                if status != 200:
                    refused += 1
                    self.assertIn("limits.memory_bytes", document["error"])
                peak = max(peak, served.resident_bytes())
            self.assertEqual(self.answer(served), 1)
            if time.monotonic() > end:
                break
        self.assertGreater(refused, 3)
        return peak

    def test_loading_until_refused_leaves_the_process_in_its_limit(self):
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit", ONNXD_LIMITS_MEMORY_BYTES=str(64 * MEGABYTE),
                            ONNXD_LIMITS_BODY_BYTES=str(MEGABYTE))
        self.assertLess(self.load_until_refused(served), 64 * MEGABYTE * 1.05 + 40 * MEGABYTE)  # and the program itself

    def test_loading_until_refused_in_a_control_group(self):
        group = pathlib.Path("/sys/fs/cgroup/memory")
        limit = "memory.limit_in_bytes" if group.exists() else "memory.max"
        group = (group if group.exists() else group.parent) / f"onnxd_test_{os.getpid()}"
        try:
            group.mkdir()
            self.addCleanup(group.rmdir)
            (group / limit).write_text(str(96 * MEGABYTE))
        except OSError as error:
            self.skipTest(f"no control group of its own: {error}")
        enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        served = self.serve(prefix=enter, ONNXD_MODELS_CONTROL_MODE="explicit",
                            ONNXD_LIMITS_BODY_BYTES=str(MEGABYTE))
        self.addCleanup(served.close)  # before the group goes
        self.load_until_refused(served)
        self.assertTrue(served.alive())


if __name__ == "__main__":
    unittest.main()

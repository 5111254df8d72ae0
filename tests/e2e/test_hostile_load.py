"""What many clients do at once: overload, quotas, deadlines, disconnects, and all verbs side by side."""

import concurrent.futures
import contextlib
import json
import random
import socket
import struct
import threading
import time
import unittest

import numpy
import tritonclient.grpc
from onnx import TensorProto, helper

import daemon
from repositories import RepositoryCase, factor_model
from soak import scaled


def reset(connection):
    """Closes with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


class Load(RepositoryCase):
    def slow_body(self, rows=1):
        return json.dumps({"input": [[0.5] * 700] * rows}).encode()

    def with_slow(self, **environment):
        self.put(1, daemon.slow_model(), "slow")
        return self.serve(**environment)

    def lone_time(self, served):
        begin = time.monotonic()
        self.assertEqual(self.status(served, "/predict/slow", self.slow_body(), timeout=60)[0], 200)
        return time.monotonic() - begin

    def counted(self, served, code, model="m"):
        return self.metric(
            served, f'onnxd_requests_total{{code="{code}",model="{model}",protocol="http",version="1"}}')

    def clients(self, count, work, seconds):
        """Runs work(i, until) in threads; the list of what they raised."""
        failures = []
        until = time.monotonic() + seconds

        def guarded(i):
            try:
                work(i, until)
            except Exception as error:  # reported by the caller
                failures.append(repr(error))

        threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return failures


class Overload(Load):
    def test_a_request_that_can_never_fit_is_refused_for_good(self):
        served = self.with_slow(ONNXD_RUNTIME_MAX_RUN_BYTES=str(1 << 20), ONNXD_LIMITS_BODY_BYTES="8388608")
        for _ in range(3):
            status, document, headers = self.status(served, "/predict/slow", self.slow_body(1000))
            self.assertEqual(status, 413, document)
            self.assertNotIn("Retry-After", headers)
        with socket.create_connection(("127.0.0.1", served.http_port)) as connection:
            connection.sendall(b"POST /predict/m HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
            self.assertIn(b" 413 ", connection.recv(1000))
        self.assertEqual(self.answer(served), 1)

    def test_ten_times_its_capacity(self):
        served = self.with_slow(ONNXD_LIMITS_QUEUE_REQUESTS="8", ONNXD_BATCHING_MODE="off")
        self.lone_time(served)
        seen = {}

        def client(i, until):
            while time.monotonic() < until:
                status, document, headers = self.status(
                    served, "/predict/slow", self.slow_body(), {"X-Request-Timeout-Ms": "2000"}, timeout=60)
                seen[status] = seen.get(status, 0) + 1
                if status == 503:
                    self.assertIn("Retry-After", headers, document)
                    time.sleep(0.02)

        self.assertEqual(self.clients(32, client, scaled(3, 600)), [])
        self.assertLessEqual(set(seen), {200, 503, 504})
        self.assertGreater(seen[200], 0)
        self.assertGreater(seen[503], 0)
        self.lone_time(served)

    def test_a_quick_model_beside_a_slow_one(self):
        served = self.with_slow()
        self.lone_time(served)

        def client(i, until):
            while time.monotonic() < until:
                if i < 6:
                    self.assertEqual(self.status(served, "/predict/slow", self.slow_body(100), timeout=120)[0], 200)
                else:
                    self.assertEqual(self.answer(served), 1)

        self.assertEqual(self.clients(10, client, scaled(3, 60)), [])
        self.assertGreater(self.counted(served, "OK"), self.counted(served, "OK", "slow"))

    def test_a_client_over_its_quota_gets_429_and_others_are_served(self):
        served = self.with_slow(ONNXD_LIMITS_REQUESTS_PER_CLIENT="2", ONNXD_BATCHING_MODE="off")
        statuses = []

        def client(i, until):
            while time.monotonic() < until:
                status, document, headers = self.status(served, "/predict/slow", self.slow_body(40), timeout=60)
                statuses.append(status)
                if status == 429:
                    self.assertIn("Retry-After", headers)
                    self.assertIn("requests_per_client", document["error"])
                    time.sleep(0.05)

        grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}")
        refused = []

        def grpc_client(until):
            tensor = tritonclient.grpc.InferInput("x", [1, 700], "FP32")
            tensor.set_data_from_numpy(numpy.zeros((1, 700), numpy.float32))
            while time.monotonic() < until:
                try:
                    grpc.infer("slow", [tensor])
                except tritonclient.grpc.InferenceServerException as error:
                    refused.append(error.status())
                time.sleep(0.05)

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            other = pool.submit(grpc_client, time.monotonic() + scaled(2, 20))
            self.assertEqual(self.clients(6, client, scaled(2, 20)), [])
            other.result()
        grpc.close()
        self.assertEqual(set(statuses), {200, 429})
        self.assertEqual(set(refused) - {"StatusCode.RESOURCE_EXHAUSTED"}, set())
        # Probes and other addresses are not held up.
        self.assertEqual(self.get(served, "/health/live")[0], 200)
        with socket.create_connection(("127.0.0.1", served.http_port), source_address=("127.0.0.2", 0)) as connection:
            body = b'{"input": [[1, 1, 1, 1]]}'
            connection.sendall(b"POST /predict/m HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            self.assertIn(b" 200 ", connection.recv(1000))


class Deadlines(Load):
    def test_in_the_queue_while_running_and_while_written(self):
        self.put(1, daemon.slow_model(700, 2000), "slow")
        served = self.serve(ONNXD_BATCHING_MODE="off", ONNXD_RUNTIME_EXECUTORS="1", ONNXD_LIMITS_WRITE_TIMEOUT_S="1")
        lone = self.lone_time(served)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            long = pool.submit(self.status, served, "/predict/slow", self.slow_body(60), {}, 120)
            time.sleep(lone / 2)
            begin = time.monotonic()
            waiting = self.status(served, body=b'{"input": [[1, 1, 1, 1]]}', headers={"X-Request-Timeout-Ms": "30"})
            self.assertIn(waiting[0], (503, 504))
            self.assertLess(time.monotonic() - begin, 5)
            self.assertEqual(long.result()[0], 200)
        # Between two nodes: far too little time for this many rows, and nobody else asks.
        begin = time.monotonic()
        self.assertEqual(
            self.status(served, "/predict/slow", self.slow_body(200), {"X-Request-Timeout-Ms": "60"}, 60)[0], 504)
        # An answer that nobody takes ends its connection.
        with socket.create_connection(("127.0.0.1", served.http_port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
            with contextlib.suppress(OSError):
                for _ in range(2000):
                    connection.sendall(one)
            time.sleep(2)
        self.assertEqual(self.answer(served), 1)

    def test_a_client_that_hangs_up_leaves_the_queue_and_the_executor(self):
        served = self.with_slow(ONNXD_BATCHING_MODE="off", ONNXD_RUNTIME_EXECUTORS="1")
        lone = self.lone_time(served)
        body = self.slow_body(400)
        for _ in range(scaled(4, 100)):
            connection = socket.create_connection(("127.0.0.1", served.http_port))
            connection.sendall(b"POST /predict/slow HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(lone)
            random.choice((reset, socket.socket.close))(connection)
        self.assertTrue(self.eventually(lambda: self.metric(served, "onnxd_inflight_requests") == 0))
        self.assertGreater(self.counted(served, "CANCELLED", "slow"), 0)
        self.lone_time(served)

    def test_cancel_deadline_and_completion_race(self):
        served = self.with_slow()
        lone = self.lone_time(served)
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}")
        tensor = tritonclient.grpc.InferInput("x", [1, 700], "FP32")
        tensor.set_data_from_numpy(numpy.zeros((1, 700), numpy.float32))
        count, outcomes, done = scaled(150, 20000), [], threading.Semaphore(0)

        def finished(result, error):
            outcomes.append("OK" if error is None else error.status())
            done.release()

        rng = random.Random(5)
        for _ in range(count):
            call = client.async_infer("slow", [tensor], finished, client_timeout=lone * rng.uniform(0.3, 3))
            if rng.random() < 0.3:
                time.sleep(lone * rng.uniform(0, 0.3))
                call.cancel()
        for _ in range(count):
            self.assertTrue(done.acquire(timeout=60))
        time.sleep(0.2)
        self.assertEqual(len(outcomes), count)  # one each
        self.assertLessEqual(set(outcomes), {"OK", "StatusCode.CANCELLED", "StatusCode.DEADLINE_EXCEEDED",
                                             "StatusCode.UNAVAILABLE"})
        self.assertTrue(self.eventually(lambda: self.metric(served, "onnxd_inflight_requests") == 0))
        client.close()
        self.lone_time(served)


class Batches(Load):
    def test_members_of_a_batch_do_not_touch_each_other(self):
        """Other shapes, NaNs and requests that fail, beside rows that must come out as when alone."""
        rng = numpy.random.default_rng(3)
        weights = rng.standard_normal((16, 16)).astype(numpy.float32)
        self.put(1, daemon.model_of(
            [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Softmax", ["a"], ["s"]),
             helper.make_node("Gather", ["t", "i"], ["g"]), helper.make_node("Mul", ["s", "g"], ["y"])],
            [("x", TensorProto.FLOAT, ["batch", "length", 16]), ("i", TensorProto.INT64, ["batch", 1, 1])],
            [("y", TensorProto.FLOAT, ["batch", "length", 16])],
            [("w", weights), ("t", numpy.array([1, 2], numpy.float32))]), "mixed")
        served = self.serve(ONNXD_RUNTIME_EXECUTORS="1")

        def ask(length, index, nan=False):
            x = numpy.full((1, length, 16), 0.25 * length, numpy.float32).tolist()
            if nan:
                x[0][0][0] = "NaN"
            body = json.dumps({"inputs": {"x": x, "i": [[[index]]]}}).replace('"NaN"', "1e999" if nan else "0").encode()
            return self.status(served, "/predict/mixed", body, timeout=60)[:2]

        alone = {length: ask(length, 1)[1]["prediction"] for length in (1, 2, 5)}

        def client(i, until):
            rng = random.Random(i)
            while time.monotonic() < until:
                length = rng.choice((1, 2, 5))
                kind = rng.random()
                if kind < 0.2:
                    status = ask(length, 7)[0]
                    self.assertEqual(status, 400)  # only this one
                elif kind < 0.3:
                    self.assertIn(ask(length, 1, nan=True)[0], (200, 400))
                else:
                    status, document = ask(length, 1)
                    self.assertEqual(status, 200, document)
                    # Products of more rows may sum in another order.
                    numpy.testing.assert_allclose(document["prediction"], alone[length], rtol=1e-5)

        self.assertEqual(self.clients(16, client, scaled(3, 60)), [])

    def test_no_answer_carries_what_was_another_clients(self):
        """Each client's numbers are its own; an answer with any other number has leaked memory."""
        served = self.serve()

        def client(i, until):
            own, body = float(i + 2), json.dumps({"input": [[float(i + 2)] * 4] * (i % 5 + 1)}).encode()
            while time.monotonic() < until:
                if random.random() < 0.1:
                    with contextlib.suppress(OSError):
                        connection = socket.create_connection(("127.0.0.1", served.http_port))
                        connection.sendall(b"POST /predict/m HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
                                           % (len(body), body[:random.randrange(len(body) + 1)]))
                        reset(connection)
                    continue
                status, document, _ = self.status(served, body=body)
                self.assertEqual(status, 200)
                self.assertEqual({value for row in document["prediction"] for value in row}, {own})

        self.assertEqual(self.clients(16, client, scaled(3, 60)), [])


class Everything(Load):
    def test_all_verbs_at_once_on_one_model(self):
        self.put(1, factor_model(1), "n")
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit")
        self.assertEqual(self.post(served, "/v2/repository/models/m/load")[0], 200)
        verbs = [
            lambda: self.status(served), lambda: self.status(served, "/v2/models/m/infer", b"{}"),
            lambda: self.get(served, "/v2/models/m"), lambda: self.get(served, "/v2/models/m/config"),
            lambda: self.get(served, "/metrics"), lambda: self.post(served, "/v2/repository/index"),
            lambda: self.get(served, "/health"),
            lambda: self.post(served, "/v2/repository/models/m/load"),
            lambda: self.post(served, "/v2/repository/models/m/unload"),
            lambda: self.post(served, "/v2/repository/models/n/load"),
            lambda: self.post(served, "/v2/config/reload"),
        ]
        allowed = {200, 400, 404, 503}

        def client(i, until):
            rng = random.Random(i)
            while time.monotonic() < until:
                # Most of them ask for answers.
                verb = rng.choice(verbs) if rng.random() < 0.4 else verbs[0]
                result = verb()
                self.assertIn(result[0], allowed, result)
                if verb is verbs[0] and result[0] == 200:
                    self.assertEqual(result[1]["prediction"], [[1, 1, 1, 1]])

        self.assertEqual(self.clients(32, client, scaled(4, 600)), [])
        self.assertTrue(served.alive())
        self.assertEqual(self.post(served, "/v2/repository/models/m/load")[0], 200)
        self.assertEqual(self.answer(served), 1)
        self.assertTrue(self.eventually(lambda: self.metric(served, "onnxd_inflight_requests") == 0))

    def test_unloading_what_is_queued_running_and_written(self):
        served = self.with_slow(ONNXD_MODELS_CONTROL_MODE="explicit")
        self.assertEqual(self.post(served, "/v2/repository/models/slow/load")[0], 200)
        statuses = []

        def client(i, until):
            while time.monotonic() < until:
                if i == 0:
                    self.post(served, "/v2/repository/models/slow/load")
                    time.sleep(random.random() * 0.3)
                    self.post(served, "/v2/repository/models/slow/unload")
                else:
                    status, document, _ = self.status(served, "/predict/slow", self.slow_body(), timeout=60)
                    statuses.append(status)
                    if status == 200:
                        self.assertEqual(len(document["prediction"][0]), 700)

        self.assertEqual(self.clients(9, client, scaled(3, 60)), [])
        self.assertLessEqual(set(statuses), {200, 404, 503})
        self.assertIn(200, statuses)
        self.assertTrue(self.eventually(lambda: self.metric(served, "onnxd_memory_bytes") == 0))

    def test_short_connections_that_break_anywhere_are_all_accounted_for(self):
        # A client that waits for an answer to half a request waits for the daemon's patience.
        served = self.serve(ONNXD_LIMITS_HEADER_TIMEOUT_S="1", ONNXD_LIMITS_IDLE_TIMEOUT_S="1")
        body = b'{"input": [[1, 1, 1, 1]]}'
        request = b"POST /predict/m HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"

        def client(i, until):
            rng = random.Random(i)
            for _ in range(scaled(10, 10000)):
                port, text = (served.http_port, request) if rng.random() < 0.7 else (served.grpc_port, preface)
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 20) as connection:
                    sent = rng.choice((len(text), rng.randrange(len(text))))
                    connection.sendall(text[:sent])
                    if sent == len(text) or rng.random() < 0.05:
                        connection.recv(100)
                    rng.choice((reset, socket.socket.close))(connection)

        self.assertEqual(self.clients(scaled(20, 100), client, 0), [])
        for protocol in ("http", "grpc"):
            name = f'onnxd_connections{{protocol="{protocol}"}}'
            self.assertTrue(self.eventually(lambda: self.metric(served, name) <= 1), protocol)
        for name in ("onnxd_inflight_requests", "onnxd_buffered_request_bytes", "onnxd_queue_depth"):
            self.assertTrue(self.eventually(lambda: self.metric(served, name) == 0), name)
        self.assertEqual(self.answer(served), 1)

    def test_admin_calls_are_answered_while_it_is_overloaded(self):
        self.put(1, factor_model(1), "n")
        served = self.with_slow(ONNXD_MODELS_CONTROL_MODE="explicit", ONNXD_LIMITS_QUEUE_REQUESTS="8")
        self.assertEqual(self.post(served, "/v2/repository/models/slow/load")[0], 200)
        slowest = []

        def client(i, until):
            while time.monotonic() < until:
                if i > 0:
                    self.status(served, "/predict/slow", self.slow_body(), timeout=60)
                    continue
                for path in ("/v2/repository/index", "/v2/repository/models/n/load", "/v2/repository/models/n/unload",
                             "/v2/config/reload"):
                    begin = time.monotonic()
                    self.assertEqual(self.post(served, path)[0], 200)
                    slowest.append(time.monotonic() - begin)

        self.assertEqual(self.clients(24, client, scaled(3, 60)), [])
        self.assertGreater(len(slowest), 4)
        print(f"slowest of {len(slowest)} admin calls: {max(slowest):.3f} s")


if __name__ == "__main__":
    unittest.main()

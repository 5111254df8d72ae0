"""The limit of memory: what is counted, refused, given up and brought back."""

import concurrent.futures
import contextlib
import select
import socket
import unittest

from repositories import RepositoryCase, heavy_model

MEGABYTE = 1 << 20


class Limit(RepositoryCase):
    first = heavy_model(30, 1)

    def limited(self, megabytes, **environment):
        return self.serve(ONNXD_LIMITS_MEMORY_BYTES=str(megabytes * MEGABYTE),
                          ONNXD_LIMITS_BODY_BYTES=str(MEGABYTE), ONNXD_MODELS_MIN_RESIDENT_S="0", **environment)

    def used(self, served, name="onnxd_memory_bytes"):
        return self.metric(served, name) / MEGABYTE

    def test_every_model_is_counted(self):
        served = self.limited(200)
        self.answer(served)
        of_model = [self.used(served, f'onnxd_model_memory_bytes{{kind="{kind}",model="m",version="1"}}')
                    for kind in ("weights", "arena")]
        self.assertGreater(of_model[0], 30)
        self.assertGreater(of_model[1], 0)
        self.assertAlmostEqual(sum(of_model), self.used(served), 3)
        self.assertLess(self.used(served), 40)
        self.assertEqual(self.used(served, "onnxd_memory_limit_bytes"), 200)

    def test_models_take_turns_where_not_all_fit(self):
        for name in "abc":
            self.put(1, heavy_model(30, ord(name)), name)
        served = self.limited(110)
        expected = {name: ord(name) for name in "abc"} | {"m": 1}
        for _ in range(2):
            for name, factor in expected.items():
                self.assertEqual(self.answer(served, f"/predict/{name}"), factor)
                self.assertLessEqual(self.used(served), 110)
        self.assertGreater(sum(self.metric(served, f'onnxd_model_evictions_total{{model="{name}"}}')
                               for name in expected), 0)
        index = {m["name"]: m for m in self.post(served, "/v2/repository/index")[1]}
        self.assertEqual({m["state"] for m in index.values()}, {"READY"})
        self.assertTrue(any("left the memory" in m["reason"] for m in index.values()))
        self.assertLess(served.resident_bytes(), 250 * MEGABYTE)

    def test_requests_for_all_of_them_at_once(self):
        for name in "abc":
            self.put(1, heavy_model(30, ord(name)), name)
        served = self.limited(110)

        def call(i):
            name = "abcm"[i % 4]
            status, document, headers = self.status(served, f"/predict/{name}", timeout=60)
            if status == 503:  # no room beside what is busy
                self.assertIn("Retry-After", headers)
                return None
            self.assertEqual(status, 200, document)
            return document["prediction"][0][0] == (ord(name) if name != "m" else 1)

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            results = list(pool.map(call, range(200)))
        self.assertNotIn(False, results)
        self.assertGreater(results.count(True), 20)
        self.assertLessEqual(self.used(served), 110)

    def test_an_evicted_model_is_waited_for_until_the_deadline(self):
        for name in "ab":
            self.put(1, heavy_model(30, ord(name)), name)
        served = self.limited(75)
        evicted = [m["name"] for m in self.post(served, "/v2/repository/index")[1] if m["reason"]]
        self.assertTrue(evicted)
        path = f"/predict/{evicted[0]}"
        status, document, _ = self.status(served, path, headers={"X-Request-Timeout-Ms": "1"})
        self.assertEqual(status, 504, document)
        self.assertEqual(self.status(served, path)[0], 200)

    def test_an_update_that_does_not_fit_is_refused_with_the_figures(self):
        served = self.limited(80)
        self.put(2, heavy_model(31, 2))
        self.assertTrue(served.logged("limits.memory_bytes"))
        self.assertEqual(self.answer(served), 1)
        reason = self.post(served, "/v2/repository/index")[1][1]["reason"]
        self.assertRegex(reason, r"needs about \d+ bytes; \d+ of \d+ \(limits.memory_bytes\) are in use")

    def test_unload_first_makes_room(self):
        self.settings("update_policy: unload_first\n")
        served = self.limited(80)
        self.put(2, heavy_model(31, 2))

        def second_serves():
            status, document, _ = self.status(served)  # refused while neither is there
            return status == 200 and document["model_version"] == "2"

        self.assertTrue(self.eventually(second_serves))

    def test_bodies_beyond_it_are_refused_before_they_are_read_and_larger_ones_for_good(self):
        served = self.limited(70)
        header = b"POST /predict/m HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", served.http_port))) for _ in range(60)]
            for one in sockets:
                one.sendall(header % (MEGABYTE - 1))
            refused = select.select(sockets, [], [], 5)[0]
            self.assertTrue(refused)
            self.assertLess(len(refused), 40)
            answer = refused[0].recv(1000)
            self.assertIn(b" 503 ", answer)
            self.assertIn(b"Retry-After", answer)
            self.assertLessEqual(self.used(served), 70)
        self.assertEqual(self.status(served, body=b" " * (MEGABYTE + 1))[0], 413)
        self.assertTrue(self.eventually(lambda: self.status(served)[0] == 200))

    def test_memory_of_what_was_unloaded_goes_back(self):
        served = self.limited(400, ONNXD_MODELS_CONTROL_MODE="explicit")
        before = served.resident_bytes()
        for _ in range(3):
            self.assertEqual(self.post(served, "/v2/repository/models/m/load")[0], 200)
            self.assertGreater(served.resident_bytes(), before + 25 * MEGABYTE)
            self.assertEqual(self.post(served, "/v2/repository/models/m/unload")[0], 200)
            self.assertTrue(self.eventually(lambda: served.resident_bytes() < before + 8 * MEGABYTE),
                            (before, served.resident_bytes()))


if __name__ == "__main__":
    unittest.main()

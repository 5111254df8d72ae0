"""Answers that are kept for equal requests."""

import concurrent.futures
import json
import unittest

from onnx import TensorProto, helper

import daemon
from repositories import RepositoryCase, factor_model

CACHED = "response_cache:\n  enabled: true\n"


class ResponseCache(RepositoryCase):
    def setUp(self):
        super().setUp()
        self.settings(CACHED)

    def ask(self, served, x, path="/predict/m"):
        return self.status(served, path, json.dumps({"input": [[x, 1, 1, 1]]}).encode())[1]["prediction"][0][0]

    def results(self, served):
        return {result: int(self.metric(served, f'onnxd_response_cache_requests_total{{model="m",result="{result}"}}'))
                for result in ("hit", "miss", "joined")}

    def runs(self, served):
        return int(self.metric(served, 'onnxd_batch_size_count{model="m",version="1"}'))

    def test_an_equal_request_is_not_computed_again(self):
        served = self.serve()
        before = self.runs(served)
        self.assertEqual([self.ask(served, x) for x in (1, 2, 1, 2, 1)], [1, 2, 1, 2, 1])
        results = self.results(served)
        # An answer is kept right after it was given: who asks meanwhile waits for that.
        self.assertEqual((results["miss"], results["hit"] + results["joined"]), (2, 3))
        self.assertEqual(self.runs(served) - before, 2)

    def test_other_inputs_outputs_versions_are_other_requests(self):
        self.put(2, factor_model(2))
        self.settings(CACHED + "versions: all\n")
        served = self.serve()
        self.assertEqual(self.ask(served, 3), 6)
        for version, wanted in (("1", 3), ("2", 6)):
            document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [3, 1, 1, 1]}]}
            status, answer = self.post(served, f"/v2/models/m/versions/{version}/infer", document)
            self.assertEqual((status, answer["outputs"][0]["data"][0]), (200, wanted))
        results = self.results(served)
        self.assertEqual((results["miss"], results["hit"] + results["joined"]), (2, 1))

    def test_equal_requests_at_once_are_computed_once(self):
        self.put(1, daemon.slow_model(), "slow")
        self.settings(CACHED, "slow")
        served = self.serve()
        body = json.dumps({"input": [[1] * 700]}).encode()
        self.status(served, "/predict/slow", json.dumps({"input": [[2] * 700]}).encode())
        name = 'onnxd_batch_size_count{model="slow",version="1"}'
        before = self.metric(served, name)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda _: self.status(served, "/predict/slow", body, timeout=60)[:2], range(16)))
        predictions = [answer["prediction"] for status, answer in answers if status == 200]
        self.assertEqual(predictions, [[[1] * 700]] * 16)
        self.assertEqual(self.metric(served, name) - before, 1)

    def test_a_replaced_version_gives_no_old_answers(self):
        served = self.serve()
        self.assertEqual(self.ask(served, 5), 5)
        self.put(1, factor_model(3))
        self.assertTrue(self.eventually(lambda: self.ask(served, 5) == 15))

    def test_an_answer_is_given_only_so_long(self):
        self.settings(CACHED + "  ttl_s: 1\n")
        served = self.serve()
        self.ask(served, 1)
        self.assertTrue(self.eventually(lambda: self.ask(served, 1) == 1 and self.results(served)["miss"] > 1))

    def test_it_takes_so_much_memory_and_no_more(self):
        served = self.serve(ONNXD_LIMITS_RESPONSE_CACHE_BYTES="20000")
        for x in range(100):
            self.ask(served, x)
        self.assertLessEqual(self.metric(served, "onnxd_response_cache_bytes"), 20000)
        self.assertGreater(self.metric(served, "onnxd_response_cache_bytes"), 15000)
        self.assertGreater(self.metric(served, "onnxd_response_cache_evictions_total"), 50)
        self.assertEqual(self.ask(served, 99), 99)
        self.assertEqual(self.results(served)["hit"], 1)
        served = self.serve(ONNXD_LIMITS_RESPONSE_CACHE_BYTES="0")
        self.ask(served, 1)
        self.ask(served, 1)
        self.assertEqual(self.results(served), {"hit": 0, "miss": 0, "joined": 0})

    def test_failures_are_not_kept(self):
        self.put(1, daemon.model_of(
            [helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64), helper.make_node("Gather", ["x", "i"], ["y"], axis=1)],
            [("x", TensorProto.FLOAT, ["n", 4])], [("y", TensorProto.FLOAT, None)]))
        served = self.serve()
        for _ in range(2):
            self.assertEqual(self.status(served, body=b'{"input": [[9, 1, 1, 1]]}')[0], 400)
        self.assertEqual(self.results(served), {"hit": 0, "miss": 2, "joined": 0})

    def test_an_ensemble_has_one_of_its_own(self):
        (self.folder / "e").mkdir()
        self.settings("", "m")
        self.settings(CACHED + "ensemble:\n  steps:\n  - {model: m, inputs: {x: x}, outputs: {y: y}}\n", "e")
        served = self.serve()
        before = self.runs(served)
        self.assertEqual([self.ask(served, 4, "/predict/e") for _ in range(3)], [4, 4, 4])
        self.assertEqual(self.runs(served) - before, 1)


if __name__ == "__main__":
    unittest.main()

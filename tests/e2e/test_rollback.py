"""Versions that answer worse than others are taken back, and stay away until they are released."""

import http.client
import json
import pathlib
import subprocess
import tempfile
import unittest

import numpy
from onnx import TensorProto, helper

import daemon
from repositories import RepositoryCase, factor_model

BODY = json.dumps({"input": [[1, 1, 1, 1]]})
FLOATS = ["batch", 4]
SPLIT = "labels:\n  stable: 3\n  canary: 4\nsplit:\n  stable: 50\n  canary: 50\n"


def failing_model():
    """Reads a row that is not there where the first element is over 0."""
    return daemon.model_of(
        [helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
         helper.make_node("Gather", ["rows", "i"], ["y"])],
        [("x", TensorProto.FLOAT, FLOATS)], [("y", TensorProto.FLOAT, FLOATS)],
        [("rows", numpy.zeros(1, numpy.float32))])


def renamed_model():
    return daemon.model_of([helper.make_node("Neg", ["other"], ["y"])], [("other", TensorProto.FLOAT, FLOATS)],
                           [("y", TensorProto.FLOAT, FLOATS)])


def slow_model():
    """y = 0 * x, after much work that does not end in a constant."""
    size = 384
    nodes = [helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0), helper.make_node("Mul", ["sum", "w"], ["w0"])]
    nodes += [helper.make_node("MatMul", [f"w{i}", "w"], [f"w{i + 1}"]) for i in range(8)]
    nodes += [helper.make_node("ReduceMax", ["w8"], ["max"], keepdims=0), helper.make_node("Mul", ["max", "zero"], ["nothing"]),
              helper.make_node("Mul", ["x", "nothing"], ["y"])]
    return daemon.model_of(nodes, [("x", TensorProto.FLOAT, FLOATS)], [("y", TensorProto.FLOAT, FLOATS)],
                           [("w", numpy.full([size, size], 1e-3, numpy.float32)), ("zero", numpy.array(0, numpy.float32))])


class Rollback(RepositoryCase):
    """Version 3 of model `m` is good."""

    def setUp(self):
        super().setUp()
        self.put(3, factor_model(3))
        self.settings(SPLIT)

    def ask(self, served, requests, body=BODY):
        """The status and the version of each answer; the version is empty for failures."""
        client = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=10)
        answers = []
        for _ in range(requests):
            client.request("POST", "/predict/m", body)
            response = client.getresponse()
            answers.append((response.status, json.loads(response.read()).get("model_version", "")))
        client.close()
        return answers

    def rolled_back(self, served):
        return self.get(served, "/v2/models/m/rollout")[1]["rolled_back"]

    def is_away(self, served, version="4"):
        return self.get(served, f"/v2/models/m/versions/{version}/ready")[0] != 200

    def models(self, served, *arguments):
        done = subprocess.run([daemon.BINARY, "models", *arguments, "--url", served.url], capture_output=True, text=True,
                              timeout=10)
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr


class BadCanary(Rollback):
    def test_it_goes_within_a_hundred_bad_answers_and_stays_away_after_kill_9(self):
        self.put(4, failing_model())
        with tempfile.TemporaryDirectory() as state:
            served = self.serve(ONNXD_MODELS_STATE_DIR=state)
            bad = [status for status, _ in self.ask(served, 2000) if status != 200]
            self.assertGreaterEqual(len(bad), 20)
            self.assertLessEqual(len(bad), 100)
            self.assertTrue(self.eventually(lambda: self.is_away(served)))
            (entry,) = self.rolled_back(served)
            self.assertEqual(entry["version"], "4")
            self.assertRegex(entry["reason"], "^[0-9]+ of its last [0-9]+ requests failed, of version 3's 0 of")
            self.assertIn('onnxd_model_rollbacks_total{model="m",reason="errors"} 1', self.get(served, "/metrics")[1])
            served.process.kill()
            served.process.wait()
            served = self.serve(ONNXD_MODELS_STATE_DIR=state)
            self.assertEqual(set(self.ask(served, 200)), {(200, "3")})
            self.assertEqual(self.rolled_back(served), [entry])
            self.assertTrue(self.is_away(served))

    def test_who_names_it_is_told_why_it_is_away(self):
        self.put(4, failing_model())
        served = self.serve()
        self.ask(served, 200)
        self.assertTrue(self.eventually(lambda: self.is_away(served)))
        for version in ("4", "canary"):
            status, document = self.post(served, "/predict/m", {"version": version, "input": [[1] * 4]})
            self.assertEqual(status, 503)
            self.assertRegex(document["error"], "model 'm' version '4' was rolled back: [0-9]+ of its last")
        (line,) = [entry for entry in self.post(served, "/v2/repository/index", {})[1] if entry["version"] == "4"]
        self.assertEqual(line["state"], "UNAVAILABLE")
        self.assertIn("rolled back", line["reason"])

    def test_the_same_files_under_another_number_stay_away_and_mended_ones_serve(self):
        self.put(4, failing_model())
        served = self.serve()
        self.ask(served, 200)
        self.assertTrue(self.eventually(lambda: self.is_away(served)))
        self.put(5, (self.folder / "m" / "4" / "model.onnx").read_bytes())
        self.settings(SPLIT.replace("canary: 4", "canary: 5"))
        self.assertTrue(self.eventually(lambda: "its files are those of version 4" in str(
            self.post(served, "/v2/repository/index", {})[1])))
        self.assertEqual(set(self.ask(served, 100)), {(200, "3")})
        self.put(6, factor_model(6))
        self.settings(SPLIT.replace("canary: 4", "canary: 6"))
        self.assertTrue(self.eventually(lambda: (200, "6") in self.ask(served, 20)))
        self.put(4, factor_model(4))
        self.settings(SPLIT)
        self.assertTrue(self.eventually(lambda: (200, "4") in self.ask(served, 20)))

    def test_released_it_serves_and_is_judged_again(self):
        self.put(4, failing_model())
        served = self.serve()
        self.ask(served, 200)
        self.assertTrue(self.eventually(lambda: self.is_away(served)))
        self.assertEqual(self.models(served, "release", "m", "4")["rolled_back"], [])
        self.assertFalse(self.is_away(served))
        self.assertIn(400, {status for status, _ in self.ask(served, 400)})
        self.assertTrue(self.eventually(lambda: self.is_away(served)))

    def test_other_inputs_are_the_versions_fault(self):
        self.put(4, renamed_model())
        served = self.serve()
        self.ask(served, 400, json.dumps({"inputs": {"x": [[1, 1, 1, 1]]}}))
        self.assertTrue(self.eventually(lambda: self.is_away(served)))

    def test_what_clients_do_wrong_is_not(self):
        self.put(4, factor_model(4))
        served = self.serve()
        for body in ("{", json.dumps({"input": [["text"]]}), json.dumps({"inputs": {"none": [[1]]}})):
            self.assertEqual({status for status, _ in self.ask(served, 200, body)}, {400})
        self.assertEqual(self.rolled_back(served), [])
        self.assertFalse(self.is_away(served))

    def test_a_slow_one_goes_where_the_settings_say_so(self):
        self.put(4, slow_model())
        self.settings(SPLIT + "rollback:\n  latency_percent: 400\n")
        served = self.serve()
        self.assertTrue(self.eventually(lambda: self.ask(served, 200) and self.is_away(served)))
        self.assertIn("answers took over 400% of the", self.rolled_back(served)[0]["reason"])

    def test_error_percent_0_leaves_it(self):
        self.put(4, failing_model())
        self.settings(SPLIT + "rollback:\n  error_percent: 0\n")
        served = self.serve()
        answers = self.ask(served, 400)
        self.assertAlmostEqual(answers.count((400, "")), 200, delta=10)
        self.assertEqual(self.rolled_back(served), [])


class ByRequest(Rollback):
    def setUp(self):
        super().setUp()
        self.put(4, factor_model(4))

    def test_the_canary_goes_at_once(self):
        served = self.serve()
        self.assertEqual({version for _, version in self.ask(served, 20)}, {"3", "4"})
        document = self.models(served, "rollback", "m")
        (entry,) = document["rolled_back"]
        self.assertEqual((entry["version"], entry["reason"]), ("4", "by request"))
        self.assertRegex(entry["contents"], "^[0-9a-f]{32}$")
        self.assertFalse(document["persistent"])
        self.assertEqual(set(self.ask(served, 20)), {(200, "3")})
        self.assertTrue(self.is_away(served))
        self.assertEqual(self.models(served, "release", "m", "4")["rolled_back"], [])
        self.assertEqual({version for _, version in self.ask(served, 20)}, {"3", "4"})

    def test_without_a_split_the_newest_goes_and_an_older_one_is_loaded(self):
        self.settings("")
        served = self.serve()
        self.assertEqual(self.answer(served), 4)
        self.assertTrue(self.is_away(served, "3"))
        self.models(served, "rollback", "m")
        self.assertEqual(self.answer(served), 3)
        self.assertIn("no version '4' of a model 'm' serves", self.models(served, "rollback", "m", "4"))
        self.models(served, "rollback", "m")
        self.assertEqual(self.answer(served), 1)
        self.assertIn("has no version beside 1", self.models(served, "rollback", "m"))
        self.assertEqual(self.answer(served), 1)
        self.models(served, "release", "m", "4")
        self.assertEqual(self.answer(served), 4)

    def test_a_damaged_file_is_said_and_holds_nothing(self):
        with tempfile.TemporaryDirectory() as state:
            served = self.serve(ONNXD_MODELS_STATE_DIR=state)
            self.assertTrue(self.models(served, "rollback", "m")["persistent"])
            served.close()
            file = pathlib.Path(state) / "quarantine"
            file.write_text(file.read_text()[:-3])
            served = self.serve(ONNXD_MODELS_STATE_DIR=state)
            self.assertTrue(served.logged("quarantine is damaged"))
            self.assertFalse(self.is_away(served))

    def test_what_means_nothing_is_refused(self):
        served = self.serve()
        path = "/v2/repository/models/m/"
        for verb, body, code, reason in (
                ("rollback", {"version": 9}, 404, "no version '9' of a model 'm' serves"),
                ("rollback", {"version": True}, 400, "'version'"),
                ("rollback", {"number": 4}, 400, "may have \"version\""),
                ("release", {}, 400, "must have \"version\""),
                ("release", {"version": 4}, 404, "was rolled back")):
            status, document = self.post(served, path + verb, body)
            self.assertEqual(status, code, (verb, body))
            self.assertIn(reason, document["error"])
        self.assertEqual(self.post(served, "/v2/repository/models/none/rollback", {})[0], 404)
        self.assertEqual(self.get(served, path + "rollback")[0], 405)


if __name__ == "__main__":
    unittest.main()

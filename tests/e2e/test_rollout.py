"""Labels of versions, and shares of the requests that name none."""

import collections
import http.client
import json
import pathlib
import subprocess
import tempfile
import threading
import unittest

import grpc
import numpy
import tritonclient.grpc

import daemon
import protos
from repositories import RepositoryCase, factor_model

BODY = json.dumps({"input": [[1, 1, 1, 1]]})
LABELS = "labels:\n  stable: 3\n  canary: 4\n"


class Rollout(RepositoryCase):
    """Version N of model `m` answers N."""

    def setUp(self):
        super().setUp()
        for version in (3, 4, 5):
            self.put(version, factor_model(version))

    def answers(self, served, headers_of, requests):
        """How often each version answered, over one connection."""
        client = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=10)
        counts = collections.Counter()
        for i in range(requests):
            client.request("POST", "/predict/m", BODY, headers_of(i))
            document = json.load(client.getresponse())
            self.assertEqual(document["prediction"][0][0], float(document["model_version"]))
            counts[document["model_version"]] += 1
        client.close()
        return counts

    @staticmethod
    def key(name, file):
        return subprocess.run([daemon.BINARY, "keys", "create", name, "--role", "predict", "--file", file],
                              capture_output=True, text=True, timeout=10, check=True).stdout.strip()

    def version_for(self, served, key):
        (version, count), = self.answers(served, lambda _: {"X-Route-Key": key}, 3).items()
        self.assertEqual(count, 3)
        return version


class Labels(Rollout):
    def test_a_label_stands_wherever_a_version_does(self):
        self.settings(LABELS)
        served = self.serve()
        self.assertEqual(self.answer(served), 5)
        self.assertEqual(self.post(served, "/predict/m", {"version": "canary", "input": [[1] * 4]})[1]["prediction"][0][0], 4)
        tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}
        status, document = self.post(served, "/v2/models/m/versions/stable/infer", {"inputs": [tensor]})
        self.assertEqual((status, document["model_version"], document["outputs"][0]["data"][0]), (200, "3", 3))
        for path in ("", "/ready", "/config", "/stats"):
            self.assertEqual(self.get(served, f"/v2/models/m/versions/canary{path}")[0], 200, path)
        self.assertEqual(self.get(served, "/v2/models/m/versions/beta/ready")[0], 404)
        status, document = self.post(served, "/v2/models/m/versions/beta/infer", {"inputs": [tensor]})
        self.assertEqual(status, 404)
        self.assertIn("version 'beta'", document["error"])

    def test_over_grpc_too(self):
        self.settings(LABELS)
        served = self.serve()
        client = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}")
        tensor = tritonclient.grpc.InferInput("x", [1, 4], "FP32")
        tensor.set_data_from_numpy(numpy.ones([1, 4], numpy.float32))
        answer = client.infer("m", [tensor], model_version="canary")
        self.assertEqual(answer.get_response().model_version, "4")
        self.assertEqual(answer.as_numpy("y")[0, 0], 4)
        self.assertTrue(client.is_model_ready("m", "stable"))
        client.close()

    def test_a_label_moves_without_a_failed_request(self):
        self.settings(LABELS)
        served = self.serve()
        done, failed, seen = threading.Event(), [], set()

        def ask():
            while not done.is_set():
                status, document, _ = self.status(served, "/v2/models/m/versions/stable/infer", json.dumps({
                    "inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 1, 1, 1]}]}).encode())
                (failed if status != 200 else [seen.add(document["model_version"])]).append(document)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        self.put(6, factor_model(6))
        self.settings("labels:\n  stable: 6\n")
        moved = self.eventually(lambda: "6" in seen)
        done.set()
        for thread in threads:
            thread.join()
        self.assertTrue(moved)
        self.assertEqual(failed, [])


class Split(Rollout):
    def setUp(self):
        super().setUp()
        self.settings(LABELS + "split:\n  stable: 90\n  canary: 10\n")

    def test_shares_are_within_two_percent_of_ten_thousand_requests(self):
        served = self.serve()
        counts = self.answers(served, lambda i: {"X-Route-Key": f"user-{i}"}, 10_000)
        self.assertEqual(set(counts), {"3", "4"})
        self.assertAlmostEqual(counts["4"], 1_000, delta=200)
        counts = self.answers(served, lambda _: {}, 1_000)
        self.assertAlmostEqual(counts["4"], 100, delta=5)

    def test_a_key_keeps_its_version_on_every_replica_and_over_grpc(self):
        served, replica = self.serve(), self.serve()
        infer = protos.unary(grpc.insecure_channel(f"127.0.0.1:{replica.grpc_port}"), "inference.GRPCInferenceService",
                             "ModelInfer")
        request = protos.message("inference.ModelInferRequest")(model_name="m")
        request.inputs.add(name="x", datatype="FP32", shape=[1, 4]).contents.fp32_contents.extend([1] * 4)
        seen = set()
        for i in range(50):
            version = self.version_for(served, f"user-{i}")
            self.assertEqual(self.version_for(replica, f"user-{i}"), version)
            answer = infer(request, timeout=10, metadata=[("x-route-key", f"user-{i}")])
            self.assertEqual(answer.model_version, version)
            seen.add(version)
        self.assertEqual(seen, {"3", "4"})

    def test_a_share_that_grows_keeps_its_keys(self):
        served = self.serve()
        before = {f"user-{i}" for i in range(100) if self.version_for(served, f"user-{i}") == "4"}
        self.assertTrue(before)
        self.settings(LABELS + "split:\n  stable: 40\n  canary: 60\n")
        self.assertTrue(self.eventually(lambda: self.answers(served, lambda _: {}, 20)["4"] >= 10))
        after = {f"user-{i}" for i in range(100) if self.version_for(served, f"user-{i}") == "4"}
        self.assertLess(before, after)

    def test_who_names_a_version_gets_it(self):
        served = self.serve()
        for version in ("3", "4", "5", "stable", "canary"):
            document = self.post(served, "/predict/m", {"version": version, "input": [[1] * 4]})[1]
            self.assertEqual(document["model_version"], {"stable": "3", "canary": "4"}.get(version, version))

    def test_a_share_that_does_not_load_leaves_its_requests_to_the_first(self):
        self.put(7, b"not a model")
        self.settings("split:\n  3: 50\n  7: 50\n")
        served = self.serve()
        self.assertEqual(set(self.answers(served, lambda _: {}, 100)), {"3"})

    def test_an_api_key_is_a_route_key(self):
        with tempfile.TemporaryDirectory() as secrets:
            file = pathlib.Path(secrets) / "keys"
            text_of = {f"client{i}": self.key(f"client{i}", file) for i in range(20)}
            served = self.serve(ONNXD_ACCESS_KEY_FILE=file)
        versions = {}
        for name, text in text_of.items():
            (versions[name], _), = self.answers(served, lambda _: {"X-API-Key": text}, 3).items()
            # What the client says itself counts first.
            routed = self.answers(served, lambda _: {"X-API-Key": text, "X-Route-Key": "client0"}, 1)
            self.assertEqual(list(routed), [versions["client0"]])
        self.assertEqual(set(versions.values()), {"3", "4"})


class Requests(Rollout):
    """Labels and shares changed by request lie over what the model.yaml says."""

    CHANGE = "/v2/repository/models/m/rollout"

    def setUp(self):
        super().setUp()
        self.settings(LABELS)

    def rollout(self, served):
        status, document = self.get(served, "/v2/models/m/rollout")
        self.assertEqual(status, 200)
        return document

    def test_a_change_takes_effect_loads_what_it_names_and_is_taken_back(self):
        served = self.serve()
        self.assertEqual(self.status(served, "/v2/models/m/versions/1/ready", None)[0], 404)
        change = {"labels": {"canary": 1, "new": "5"}, "split": {"new": 3, "canary": 1}}
        status, document = self.post(served, self.CHANGE, change)
        self.assertEqual(status, 200, document)
        self.assertEqual(document, {
            "model": "m", "labels": {"canary": "1", "new": "5", "stable": "3"}, "split": {"new": 3, "canary": 1},
            "changed_by_request": {"labels": {"canary": "1", "new": "5"}, "split": {"new": 3, "canary": 1}},
            "rolled_back": [], "shadow": {"version": "", "percent": 100, "tolerance": 0.001, "differences": []},
            "persistent": False})
        self.assertEqual(self.rollout(served), document)
        counts = self.answers(served, lambda _: {}, 100)
        self.assertAlmostEqual(counts["1"], 25, delta=4)
        self.assertEqual(set(counts), {"1", "5"})
        status, document = self.post(served, self.CHANGE, {"labels": {"canary": None, "new": None}, "split": None})
        self.assertEqual((status, document["labels"], document["split"]), (200, {"canary": "4", "stable": "3"}, {}))
        self.assertEqual(self.answer(served), 5)
        self.assertTrue(self.eventually(lambda: self.get(served, "/v2/models/m/versions/1/ready")[0] == 404))

    def test_the_files_changes_show_where_no_request_said_otherwise(self):
        served = self.serve()
        self.assertEqual(self.post(served, self.CHANGE, {"labels": {"canary": 5}})[0], 200)
        self.settings("labels:\n  stable: 4\n  canary: 4\n")
        self.assertTrue(self.eventually(lambda: self.rollout(served)["labels"] == {"stable": "4", "canary": "5"}))

    def test_it_outlasts_kill_9_where_there_is_a_state_dir(self):
        with tempfile.TemporaryDirectory() as state:
            served = self.serve(ONNXD_MODELS_STATE_DIR=state)
            status, document = self.post(served, self.CHANGE, {"labels": {"canary": 1}, "split": {"canary": 1}})
            self.assertEqual((status, document["persistent"]), (200, True))
            served.process.kill()
            served.process.wait()
            served = self.serve(ONNXD_MODELS_STATE_DIR=state)
            self.assertEqual(self.answer(served), 1)
            self.assertEqual(self.rollout(served)["changed_by_request"]["split"], {"canary": 1})
            served.close()
            (pathlib.Path(state) / "rollouts").write_text("onnxd rollouts 1\nlabel m canary 1\n")
            served = self.serve(ONNXD_MODELS_STATE_DIR=state)
            self.assertTrue(served.logged("rollouts is damaged"))
            self.assertEqual(self.answer(served), 5)

    def test_what_means_nothing_is_refused_and_changes_nothing(self):
        served = self.serve()
        before = self.rollout(served)
        for change, code, reason in (
                ({"labels": {"canary": 9}}, 404, "model 'm' has no version 9"),
                ({"labels": {"canary": "newest"}}, 400, "'labels.canary'"),
                ({"labels": {"4": 4}}, 400, "a label is a letter"),
                ({"labels": {"canary": True}}, 400, "must be the number"),
                ({"labels": ["canary"]}, 400, "an object"),
                ({"split": {"beta": 1}}, 400, "no version has this label"),
                ({"split": {"9": 1}}, 404, "has no version 9"),
                ({"split": {"3": 0}}, 400, "all shares are zero"),
                ({"split": {"3": -1}}, 400, "'split.3'"),
                ({"split": {"3": 0.5}}, 400, "'split.3'"),
                ({"shares": {}}, 400, "the body may have"),
                ([], 400, "object")):
            status, document = self.post(served, self.CHANGE, change)
            self.assertEqual(status, code, change)
            self.assertIn(reason, document["error"], change)
        self.assertEqual(self.post(served, "/v2/repository/models/none/rollout", {"split": {"3": 1}})[0], 404)
        self.assertEqual(self.get(served, "/v2/models/none/rollout")[0], 404)
        self.assertEqual(self.rollout(served), before)

    def test_from_the_command_line(self):
        served = self.serve()

        def models(*arguments):
            done = subprocess.run([daemon.BINARY, "models", *arguments, "--url", served.url], capture_output=True,
                                  text=True, timeout=10)
            return json.loads(done.stdout) if done.returncode == 0 else done.stderr
        self.assertEqual(models("label", "m", "canary", "5")["labels"], {"canary": "5", "stable": "3"})
        self.assertEqual(models("split", "m", "stable=9", "canary=1")["split"], {"stable": 9, "canary": 1})
        self.assertEqual(models("rollout", "m")["changed_by_request"],
                         {"labels": {"canary": "5"}, "split": {"stable": 9, "canary": 1}})
        self.assertEqual(models("split", "m")["split"], {})
        self.assertEqual(models("label", "m", "canary")["labels"]["canary"], "4")
        self.assertIn("has no version 8", models("label", "m", "canary", "8"))
        self.assertIn("'stable' is not VERSION=WEIGHT", models("split", "m", "stable"))


if __name__ == "__main__":
    unittest.main()

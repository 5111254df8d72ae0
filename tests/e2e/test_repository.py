"""Models that come, change and go while the daemon serves."""

import json
import pathlib
import shutil
import threading
import time
import unittest
import urllib.error
import urllib.request

import numpy
import onnx
from onnx import TensorProto, helper

from repositories import RepositoryCase, factor_model


class Following(RepositoryCase):
    def test_versions_change_under_load_and_no_request_fails(self):
        served = self.serve()
        stop, failures, seen = threading.Event(), [], [set() for _ in range(4)]

        def client(own):
            while not stop.is_set():
                try:
                    own.add(self.answer(served))
                except Exception as error:  # anything at all is a failure
                    failures.append(repr(error))

        clients = [threading.Thread(target=client, args=(own,)) for own in seen]
        for thread in clients:
            thread.start()
        for version in (2, 3, 4):
            self.put(version, factor_model(version))
            self.assertTrue(self.eventually(lambda: all(version in own for own in seen)), served.stderr_lines)
        self.put(4, factor_model(40))  # in place
        self.assertTrue(self.eventually(lambda: all(40 in own for own in seen)), served.stderr_lines)
        stop.set()
        for thread in clients:
            thread.join()
        self.assertEqual(failures, [])
        self.assertTrue(set.union(*seen) <= {1, 2, 3, 4, 40})

    def test_a_bad_version_leaves_the_old_one_serving_and_is_not_tried_again(self):
        served = self.serve()
        self.put(2, b"\x08\x08nonsense")
        self.assertTrue(served.logged("model 'm' version 2"))
        time.sleep(1.5)
        self.assertEqual(self.answer(served), 1)
        self.assertEqual(sum("nonsense" in line or "version 2" in line for line in served.stderr_lines), 1)
        with urllib.request.urlopen(f"http://127.0.0.1:{served.metrics_port}/metrics") as response:
            self.assertIn('onnxd_model_loads_total{model="m",result="failed"} 1', response.read().decode())
        self.put(2, factor_model(2))
        self.assertTrue(self.eventually(lambda: self.answer(served) == 2))

    def test_a_version_that_is_still_being_written_waits(self):
        served = self.serve()
        whole = factor_model(2).SerializeToString()
        folder = self.folder / "m" / "2"
        folder.mkdir()
        with open(folder / "model.onnx", "wb") as file:
            for byte in range(0, len(whole), max(1, len(whole) // 6)):
                file.write(whole[byte:byte + max(1, len(whole) // 6)])
                file.flush()
                time.sleep(0.5)
                self.assertEqual(self.answer(served), 1)
        self.assertTrue(self.eventually(lambda: self.answer(served) == 2))
        self.assertFalse([line for line in served.stderr_lines if " error " in line])

    def test_a_removed_version_gives_way_to_the_one_before(self):
        self.put(2, factor_model(2))
        served = self.serve()
        self.assertEqual(self.answer(served), 2)
        shutil.rmtree(self.folder / "m" / "2")
        self.assertTrue(self.eventually(lambda: self.answer(served) == 1))

    def test_models_come_and_go(self):
        served = self.serve()
        hidden = self.folder / ".n"
        (hidden / "1").mkdir(parents=True)
        onnx.save(factor_model(7), hidden / "1" / "model.onnx")
        hidden.rename(self.folder / "n")

        def code(path):
            try:
                return self.answer(served, path)
            except urllib.error.HTTPError as error:
                return error.code

        self.assertTrue(self.eventually(lambda: code("/predict/n") == 7))
        shutil.rmtree(self.folder / "n")
        self.assertTrue(self.eventually(lambda: code("/predict/n") == 404))
        self.assertEqual(code("/predict/m"), 1)

    def test_a_repository_that_goes_away_leaves_its_models_serving(self):
        served = self.serve(ONNXD_MODELS_POLL_INTERVAL_S="1")
        moved = self.folder.with_name(self.folder.name + ".moved")
        self.folder.rename(moved)
        self.assertTrue(served.logged("no such model or repository"))
        self.assertEqual(self.answer(served), 1)
        moved.rename(self.folder)

    def test_the_index_says_what_serves_and_why_something_does_not(self):
        served = self.serve()
        self.put(2, b"\x08\x08nonsense")
        self.assertTrue(served.logged("model 'm' version 2"))
        status, index = self.post(served, "/v2/repository/index")
        self.assertEqual(status, 200)
        self.assertEqual([(entry["name"], entry["version"], entry["state"]) for entry in index],
                         [("m", "1", "READY"), ("m", "2", "UNAVAILABLE")])
        self.assertEqual(index[0]["reason"], "")
        self.assertTrue(index[1]["reason"])
        self.assertEqual(len(self.post(served, "/v2/repository/index", {"ready": True})[1]), 1)
        self.assertEqual(self.post(served, "/v2/models/m/versions/2/infer", {})[0], 503)
        self.assertEqual(self.post(served, "/v2/repository/index", {"what": 1})[0], 400)
        self.assertEqual(self.post(served, "/v2/repository/models/m/load")[0], 400)  # it polls

    def test_models_are_loaded_and_unloaded_by_request(self):
        self.put(2, factor_model(2))
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit")
        with urllib.request.urlopen(served.url + "/health/ready") as response:
            self.assertEqual(response.status, 200)
        self.assertEqual(self.post(served, "/v2/repository/index"), (200, []))
        self.assertEqual(self.post(served, "/v2/repository/models/m/load"), (200, None))
        self.assertEqual(self.answer(served), 2)
        self.put(3, factor_model(3))
        time.sleep(1)
        self.assertEqual(self.answer(served), 2)
        self.assertEqual(self.post(served, "/v2/repository/models/m/load"), (200, None))
        self.assertEqual(self.answer(served), 3)
        self.put(4, b"nonsense")
        status, document = self.post(served, "/v2/repository/models/m/load")
        self.assertEqual(status, 400)
        self.assertIn("version 4", document["error"])
        self.assertEqual(self.answer(served), 3)
        self.assertEqual(self.post(served, "/v2/repository/models/m/unload"), (200, None))
        self.assertEqual(self.post(served, "/v2/models/m/infer", {})[0], 404)
        for name in ("none", "..", ".incoming", "a%2Fb", "x" * 300):
            self.assertIn(self.post(served, f"/v2/repository/models/{name}/load")[0], (400, 404), name)
        self.assertEqual(self.post(served, "/v2/repository/models/m/unload")[0], 404)
        self.assertEqual(self.post(served, "/v2/repository/models/m/load", {"parameters": {"config": "{}"}})[0], 400)

    def test_loads_and_unloads_under_load_lose_nothing_of_other_models(self):
        hidden = self.folder / ".n"
        (hidden / "1").mkdir(parents=True)
        onnx.save(factor_model(7), hidden / "1" / "model.onnx")
        hidden.rename(self.folder / "n")
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit")
        for name in "mn":
            self.assertEqual(self.post(served, f"/v2/repository/models/{name}/load")[0], 200)
        stop, failures = threading.Event(), []

        def client():
            while not stop.is_set():
                try:
                    if self.answer(served, "/predict/n") != 7:
                        failures.append("wrong")
                except Exception as error:  # anything at all is a failure
                    failures.append(repr(error))

        clients = [threading.Thread(target=client) for _ in range(4)]
        for thread in clients:
            thread.start()
        for _ in range(20):
            for verb in ("unload", "load"):
                self.assertEqual(self.post(served, f"/v2/repository/models/m/{verb}")[0], 200)
        stop.set()
        for thread in clients:
            thread.join()
        self.assertEqual(failures, [])

    def test_all_versions_serve_where_the_configuration_says_so(self):
        self.put(2, factor_model(2))
        served = self.serve(ONNXD_MODELS_VERSIONS="all")
        with urllib.request.urlopen(f"{served.url}/v2/models/m") as response:
            self.assertEqual(json.load(response)["versions"], ["1", "2"])

    def test_a_fixed_repository_is_not_followed(self):
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="fixed")
        self.put(2, factor_model(2))
        time.sleep(3.5)
        self.assertEqual(self.answer(served), 1)


if __name__ == "__main__":
    unittest.main()

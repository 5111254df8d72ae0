"""What can be configured of one model, and what can be changed while serving."""

import pathlib
import re
import signal
import tempfile
import unittest
import urllib.request

import tritonclient.grpc
import tritonclient.http

from repositories import RepositoryCase, factor_model


class ModelFile(RepositoryCase):
    def test_the_configuration_answer_has_what_holds(self):
        self.settings("batching:\n  max_batch_size: 16\n  preferred_batch_size: [4, 8]\n  max_queue_delay_us: 100\n"
                      "  priority_levels: 2\n  timeout_action: delay\n")
        served = self.serve()
        self.assertTrue(served.logged("requests may share runs"))
        status, config = self.get(served, "/v2/models/m/config")
        self.assertEqual(status, 200)
        self.assertEqual(config["max_batch_size"], 16)
        self.assertEqual(config["input"], [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}])
        batching = config["dynamic_batching"]
        self.assertEqual(batching["preferred_batch_size"], [4, 8])
        self.assertEqual(batching["max_queue_delay_microseconds"], 100)
        self.assertEqual(batching["priority_levels"], 2)
        self.assertEqual(batching["default_queue_policy"]["timeout_action"], "DELAY")
        self.assertEqual(config["version_policy"], {"latest": {"num_versions": 1}})

    def test_histograms_have_the_buckets_it_names(self):
        self.settings("duration_buckets_us: [500, 2000000]\n")
        served = self.serve()
        self.answer(served)
        with urllib.request.urlopen(served.url + "/metrics", timeout=10) as metrics:
            bounds = re.findall(r'onnxd_request_duration_seconds_bucket\{model="m",protocol="http",version="1",le="([^"]+)"',
                                metrics.read().decode())
        self.assertEqual(bounds, ["0.0005", "2", "+Inf"])

    def test_it_says_why_requests_run_alone(self):
        self.settings("batching:\n  mode: off\n")
        served = self.serve()
        self.assertTrue(served.logged("requests run alone"))
        config = self.get(served, "/v2/models/m/config")[1]
        self.assertEqual(config["max_batch_size"], 1)
        self.assertEqual(config["parameters"]["requests_run_alone"]["string_value"], "batching.mode is off")

    def test_a_change_of_the_file_loads_the_model_anew(self):
        served = self.serve()
        self.assertTrue(served.logged("requests may share runs, up to 256"))
        self.settings("batching:\n  max_batch_size: 8\n")
        self.assertTrue(served.logged("requests may share runs, up to 8"))
        self.settings("batching:\n  max_batch_sise: 8\n")
        self.assertTrue(served.logged("did you mean 'batching.max_batch_size'?"))
        self.assertEqual(self.answer(served), 1)  # the old one serves on
        index = self.post(served, "/v2/repository/index")[1]
        self.assertIn("max_batch_sise", index[0]["reason"])

    def test_what_contradicts_the_model_is_refused(self):
        import onnx
        from onnx import TensorProto, helper
        import daemon
        fixed = daemon.model_of([helper.make_node("Relu", ["x"], ["y"])],
                                [("x", TensorProto.FLOAT, [2, 4])], [("y", TensorProto.FLOAT, [2, 4])])
        onnx.save(fixed, self.folder / "m" / "1" / "model.onnx")
        self.settings("batching:\n  max_batch_size: 8\n")
        served = self.serve()
        status, document = self.post(served, "/v2/models/m/infer", {})
        self.assertEqual(status, 503)
        self.assertIn("model.yaml wants batches of up to 8 rows", document["error"])

    def test_several_repositories(self):
        with tempfile.TemporaryDirectory() as other:
            self.put(1, factor_model(7), "n", pathlib.Path(other))
            served = self.serve(self.folder, other)
            self.assertEqual(self.answer(served, "/predict/n"), 7)
            self.assertEqual(self.answer(served), 1)
            self.put(1, factor_model(9), "m", pathlib.Path(other))
            self.assertTrue(served.logged("stands in two repositories"))
            self.assertEqual(self.answer(served), 1)


class Reload(RepositoryCase):
    def setUp(self):
        super().setUp()
        self.file = self.folder / ".onnxd.yaml"
        self.configure("")

    def configure(self, text):
        self.file.write_text(f"models:\n  repository: {self.folder}\n{text}")

    def serve_file(self):
        return self.serve("--config", self.file)

    def test_new_values_take_effect(self):
        served = self.serve_file()
        self.assertTrue(served.logged("up to 256 rows"))
        self.configure("batching:\n  max_batch_size: 32\nlog:\n  level: debug\n")
        self.assertEqual(self.post(served, "/v2/config/reload"),
                         (200, {"changed": ["batching.max_batch_size", "log.level"]}))
        self.assertTrue(served.logged("up to 32 rows"))
        self.assertTrue(self.eventually(
            lambda: self.get(served, "/v2/models/m/config")[1]["max_batch_size"] == 32))
        self.assertEqual(self.post(served, "/v2/config/reload"), (200, {"changed": []}))

    def test_by_signal(self):
        served = self.serve_file()
        self.configure("batching:\n  max_batch_size: 32\n")
        served.process.send_signal(signal.SIGHUP)
        self.assertTrue(served.logged("new: batching.max_batch_size"))
        self.assertEqual(self.answer(served), 1)

    def test_all_or_nothing(self):
        served = self.serve_file()
        self.configure("  poll_interval_s: 1\nlimits:\n  connections: 7\n")
        status, document = self.post(served, "/v2/config/reload")
        self.assertEqual(status, 400)
        self.assertIn("need a restart: limits.connections", document["error"])
        self.configure("  poll_interval_s: 1\n")
        self.assertEqual(self.post(served, "/v2/config/reload")[1], {"changed": ["models.poll_interval_s"]})

    def test_a_wrong_file_changes_nothing(self):
        served = self.serve_file()
        for text, said in (("batching: 3\n", "must be a map"), ("  versions: newest\n", "newest"),
                           ("\0", "not a text file"), ("limits:\n  body_bytes: 99999999999\n", "limits.body_bytes")):
            self.configure(text)
            status, document = self.post(served, "/v2/config/reload")
            self.assertEqual(status, 400, text)
            self.assertIn(said, document["error"])
            self.assertTrue(served.logged("the configuration stays as it was"))
        self.file.unlink()
        self.assertEqual(self.post(served, "/v2/config/reload")[0], 404)
        self.assertEqual(self.answer(served), 1)
        self.assertEqual(self.metric(served, 'onnxd_config_reloads_total{result="failed"}'), 5)


class State(RepositoryCase):
    def test_a_restart_serves_what_was_loaded_by_request(self):
        self.put(1, factor_model(7), "n")
        environment = {"ONNXD_MODELS_CONTROL_MODE": "explicit", "ONNXD_MODELS_STATE_DIR": str(self.folder / ".state")}
        served = self.serve(**environment)
        self.assertEqual(self.post(served, "/v2/repository/models/n/load")[0], 200)
        served.process.kill()
        again = self.serve(**environment)
        self.assertEqual(self.answer(again, "/predict/n"), 7)
        self.assertEqual(len(self.post(again, "/v2/repository/index")[1]), 1)
        again.process.kill()
        (self.folder / ".state" / "loaded_models").write_text("half a li")
        last = self.serve(**environment)
        self.assertTrue(last.logged("is damaged"))
        self.assertEqual(self.post(last, "/v2/repository/index")[1], [])

    def test_what_a_newer_onnxd_remembers_is_refused_by_name(self):
        """An older one would take it for nothing, and serve what was rolled back."""
        for name, kind in (("rollouts", "rollouts"), ("quarantine", "quarantine"), ("loaded_models", "loaded models")):
            with self.subTest(name), tempfile.TemporaryDirectory() as state:
                path = pathlib.Path(state) / name
                path.write_text(f"onnxd {kind} 2\nof another time\n")
                with self.assertRaisesRegex(RuntimeError, f"{path} is of format 2, and this onnxd knows 1"):
                    self.serve(ONNXD_MODELS_STATE_DIR=state)
                self.assertEqual(path.read_text(), f"onnxd {kind} 2\nof another time\n")
                path.rename(pathlib.Path(state) / "aside")
                self.assertEqual(self.answer(self.serve(ONNXD_MODELS_STATE_DIR=state)), 1)

    def test_a_folder_that_cannot_be_written_is_said_and_loads_work(self):
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit", ONNXD_MODELS_STATE_DIR="/proc/nowhere")
        self.assertEqual(self.post(served, "/v2/repository/models/m/load")[0], 200)
        self.assertTrue(served.logged("a restart will not load"))
        self.assertEqual(self.answer(served), 1)


class TritonClients(RepositoryCase):
    def test_repository_calls(self):
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit")
        clients = (tritonclient.http.InferenceServerClient(f"127.0.0.1:{served.http_port}"),
                   tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}"))
        for client in clients:
            client.load_model("m")
            self.assertTrue(client.is_model_ready("m"))
            index = client.get_model_repository_index()
            models = index if isinstance(index, list) else [
                {"name": m.name, "state": m.state} for m in index.models]
            self.assertEqual([(m["name"], m["state"]) for m in models], [("m", "READY")])
            client.unload_model("m")
            self.assertFalse(client.is_model_ready("m"))
            client.load_model("m", config='{"max_batch_size": 3}')
            self.assertTrue(client.is_model_ready("m"))
            client.unload_model("m")
            for call in (lambda: client.load_model("nobody"),
                         lambda: client.load_model("m", config='{"max_batch": 3}'),
                         lambda: client.load_model("m", files={"file:1/model.onnx": b"x"})):
                with self.assertRaises(tritonclient.utils.InferenceServerException):
                    call()
            self.assertFalse(client.is_model_ready("m"))
            client.close()


if __name__ == "__main__":
    unittest.main()

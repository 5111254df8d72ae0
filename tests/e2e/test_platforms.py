"""Containers of SageMaker, Vertex AI and Azure ML: the environment, paths and requests of each, by their documentation."""

import json
import pathlib
import struct
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import daemon
from repositories import RepositoryCase, factor_model

ROW = [1, 2, 3, 4]
TENSOR = {"name": "x", "shape": [1, 4], "datatype": "FP32", "data": ROW}


class Invocations(RepositoryCase):
    first = factor_model(2)

    def setUp(self):
        super().setUp()
        self.served = self.serve()

    def test_ping_is_readiness(self):
        self.assertEqual(self.get(self.served, "/ping"), (200, {"ready": True}))
        self.assertEqual(self.post(self.served, "/ping", {})[0], 405)

    def test_the_body_says_its_protocol(self):
        answers = [2, 4, 6, 8]
        for body, member, answer in (
                ({"instances": [ROW], "parameters": {"any": 1}}, "predictions", [answers]),
                ({"inputs": [ROW]}, "outputs", [answers]),
                ({"inputs": {"x": [ROW]}}, "outputs", [answers]),
                ({"input": [ROW]}, "prediction", [answers])):
            status, document = self.post(self.served, "/invocations", body)
            self.assertEqual((status, document[member]), (200, answer), body)
        status, document, _ = self.status(self.served, "/invocations", json.dumps({"instances": [ROW]}).encode(),
                                          {"X-Vertex-Ai-Triton-Redirect": "none"})
        self.assertEqual(status, 200)  # said to nobody but Vertex AI's route
        status, document = self.post(self.served, "/invocations", {"id": "7", "inputs": [TENSOR]})
        self.assertEqual((status, document["id"], document["outputs"][0]["data"]), (200, "7", answers))
        for body in ({}, {"input": "text"}, {"inputs": []}, {"instances": []}, {"inputs": [{"name": "x"}]}, []):
            self.assertEqual(self.post(self.served, "/invocations", body)[0], 400, body)
        self.assertEqual(self.get(self.served, "/invocations")[0], 405)

    def test_sagemakers_binary_tensors(self):
        head = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "parameters": {"binary_data_size": 16}}],
                           "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
        kind = "application/vnd.sagemaker-triton.binary+json;json-header-size="
        request = urllib.request.Request(self.served.url + "/invocations", head + struct.pack("<4f", *ROW),
                                         {"Content-Type": f"{kind}{len(head)}"})
        with urllib.request.urlopen(request, timeout=10) as response:
            self.assertTrue(response.headers["Content-Type"].startswith(kind))
            length, body = int(response.headers["Content-Type"][len(kind):]), response.read()
        self.assertEqual(json.loads(body[:length])["outputs"][0]["name"], "y")
        self.assertEqual(struct.unpack("<4f", body[length:]), (2, 4, 6, 8))
        request = urllib.request.Request(self.served.url + "/invocations", head, {"Content-Type": kind + "x"})
        with self.assertRaises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(request, timeout=10)
        self.assertEqual(failed.exception.code, 400)
        failed.exception.close()

    def test_of_several_models_none_is_meant(self):
        self.put(1, factor_model(3), name="other")
        self.assertTrue(self.eventually(lambda: self.post(self.served, "/invocations", {"instances": [ROW]})[0] == 400))
        self.assertIn("several models", self.post(self.served, "/invocations", {"instances": [ROW]})[1]["error"])


class Platforms(RepositoryCase):
    first = factor_model(2)

    def test_vertex_ai(self):
        served = self.serve(AIP_HTTP_PORT="0", AIP_PREDICT_ROUTE="/v1/endpoints/7/deployedModels/8:predict",
                            AIP_HEALTH_ROUTE="/v1/endpoints/7/deployedModels/8")
        self.assertEqual(self.get(served, "/v1/endpoints/7/deployedModels/8")[0], 200)
        path = "/v1/endpoints/7/deployedModels/8:predict"
        status, document = self.post(served, path, {"instances": [ROW], "parameters": {}})
        self.assertEqual((status, document), (200, {"predictions": [[2, 4, 6, 8]]}))
        status, document, _ = self.status(served, path, json.dumps({"inputs": [TENSOR]}).encode(),
                                          {"X-Vertex-Ai-Triton-Redirect": "v2/models/m/infer"})
        self.assertEqual((status, document["outputs"][0]["data"]), (200, [2, 4, 6, 8]))
        self.assertEqual(self.status(served, path, b"{}", {"X-Vertex-Ai-Triton-Redirect": "none"})[0], 404)

    def test_azure_ml(self):
        served = daemon.Daemon(environment={"AZUREML_MODEL_DIR": str(self.folder), "ONNXD_SERVER_PREDICT_ROUTE": "/score"})
        self.addCleanup(served.close)
        self.assertEqual(self.get(served, "/")[0], 200)
        self.assertEqual(self.post(served, "/score", {"input": [ROW]})[1]["prediction"], [[2, 4, 6, 8]])

    def test_other_options_come_before_the_platforms(self):
        served = self.serve(AIP_HTTP_PORT="1", ONNXD_SERVER_HTTP_PORT="0", AIP_HEALTH_ROUTE="/well")
        self.assertEqual(self.get(served, "/well")[0], 200)

    def test_a_route_is_nobodys_way_around_the_keys(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = pathlib.Path(folder) / "keys"
            narrow = subprocess.run(
                [daemon.BINARY, "keys", "create", "narrow", "--role", "predict", "--models", "other*", "--file", keys],
                capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            served = self.serve(ONNXD_ACCESS_KEY_FILE=keys, AIP_PREDICT_ROUTE="/score", AIP_HEALTH_ROUTE="/well")
        body = json.dumps({"instances": [ROW]}).encode()
        self.assertEqual(self.get(served, "/well")[0], 200)
        self.assertEqual(self.status(served, "/score", body)[0], 401)
        for headers in ({"X-API-Key": narrow}, {"X-API-Key": narrow, "X-Vertex-Ai-Triton-Redirect": "v2/models/m/infer"},
                        {"X-API-Key": narrow, "X-Vertex-Ai-Triton-Redirect": "v2/repository/models/m/rollback"}):
            status, document, _ = self.status(served, "/score", body, headers)
            self.assertEqual(status, 403, document)


if __name__ == "__main__":
    unittest.main()

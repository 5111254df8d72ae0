"""What a newcomer opens: /, /docs and /openapi.json."""

import html.parser
import json
import pathlib
import re
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import openapi_spec_validator

import daemon


class Page(html.parser.HTMLParser):
    """Where a page's elements point to."""

    def __init__(self, text):
        super().__init__()
        self.links = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.links += [value for name, value in attributes if name in ("href", "src", "action")]


class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = daemon.embedded()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()

    def get(self, path, headers={}):
        with urllib.request.urlopen(urllib.request.Request(self.daemon.url + path, headers=headers), timeout=20) as answer:
            return answer.headers, answer.read().decode()

    def test_the_root_leads_there(self):
        index = json.loads(self.get("/")[1])
        for name in ("docs", "openapi", "health", "metrics"):
            self.assertTrue(self.get(index[name])[1])

    def test_the_description_is_valid_and_its_examples_run(self):
        document = json.loads(self.get("/openapi.json")[1])
        openapi_spec_validator.validate(document)
        examples = 0
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
                data = body and json.dumps(body).encode()
                request = urllib.request.Request(self.daemon.url + path, data, method=method.upper())
                with urllib.request.urlopen(request, timeout=20) as answer:
                    self.assertEqual(answer.status, 200, path)
                examples += body is not None
        self.assertEqual(examples, 3)
        self.assertEqual([model["name"] for model in document["x-models"]], ["digits_cnn", "digits_rows", "iris_forest"])
        self.assertEqual(document["x-models"][2]["inputs"], [{"name": "measurements", "datatype": "FP32", "shape": [-1, 4]}])

    def test_names_and_shapes_of_all_kinds_stay_valid(self):
        with daemon.repository(**{"text": daemon.identity_model(8), "flag": daemon.identity_model(9)}) as folder:
            (pathlib.Path(folder) / "text").rename(pathlib.Path(folder) / "text \"<b>")
            with daemon.Daemon(folder) as served, urllib.request.urlopen(served.url + "/openapi.json", timeout=20) as answer:
                openapi_spec_validator.validate(json.loads(answer.read()))

    def test_the_page_needs_no_other_host(self):
        headers, text = self.get("/docs")
        self.assertEqual(headers["Content-Type"], "text/html; charset=utf-8")
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        self.assertEqual(Page(text).links, ["openapi.json"])
        self.assertFalse(re.search(r"https?://|//[a-z]+\.", text))

    def test_with_keys_only_the_page_is_for_everybody(self):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/keys"
            created = subprocess.run([daemon.BINARY, "keys", "create", "a", "--role", "predict", "--models", "iris*", "--file",
                                      file], capture_output=True, text=True, check=True)
            with daemon.Daemon(daemon.MODELS, environment={"ONNXD_ACCESS_KEY_FILE": file}) as served:
                self.assertEqual(urllib.request.urlopen(served.url + "/docs", timeout=20).status, 200)
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(served.url + "/openapi.json", timeout=20)
                self.assertEqual(refused.exception.code, 401)
                request = urllib.request.Request(served.url + "/openapi.json", headers={"X-API-Key": created.stdout.strip()})
                document = json.loads(urllib.request.urlopen(request, timeout=20).read())
                self.assertEqual([model["name"] for model in document["x-models"]], ["iris_forest"])
                self.assertNotIn("/predict/digits_cnn", document["paths"])


if __name__ == "__main__":
    unittest.main()

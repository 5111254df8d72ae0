"""The page /docs in a real browser, and pages of other origins."""

import http.server
import pathlib
import subprocess
import tempfile
import threading
import unittest

import daemon
from browser import BINARY, Browser

MODELS = sorted(path.parent.parent.name for path in daemon.MODELS.glob("*/1/model.onnx"))


@unittest.skipUnless(BINARY, "chromium is not installed")
class Docs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def serve(self, **environment):
        served = daemon.Daemon(daemon.MODELS, environment=environment)
        self.addCleanup(served.close)
        return served

    def text(self, selector):
        return self.browser.run(f"document.querySelector('{selector}').textContent")

    def test_each_models_example_runs(self):
        served = self.serve()
        self.browser.open(served.url + "/docs")
        self.browser.wait(f"document.querySelectorAll('section').length === {len(MODELS)}")
        self.assertEqual(self.text("#state"), f"{len(MODELS)} models")
        for model in MODELS:
            section = f"section[data-model={model}]"
            self.assertIn("input", self.text(f"{section} table"))
            self.browser.run(f"document.querySelector('{section} button').click()")
            self.browser.wait(f"/^[0-9]/.test(document.querySelector('{section} pre').textContent)")
            answer = self.text(f"{section} pre")
            self.assertRegex(answer, r"^200 in [0-9.]+ ms\n\{\"prediction", model)
            self.assertIn(f'"model":"{model}"', answer)

    def test_an_input_that_is_wrong_shows_why(self):
        self.browser.open(self.serve().url + "/docs")
        section = "section[data-model=iris_forest]"
        self.browser.wait(f"document.querySelector('{section}') !== null")
        self.browser.run(f"document.querySelector('{section} textarea').value = '{{\"input\": [[1, 2]]}}'")
        self.browser.run(f"document.querySelector('{section} button').click()")
        self.browser.wait(f"document.querySelector('{section} pre').className === 'failed'")
        self.assertRegex(self.text(f"{section} pre"), r"^400 in .*\n.*measurements")

    def test_a_key_that_is_typed_in(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "keys"
            key = subprocess.run([daemon.BINARY, "keys", "create", "page", "--role", "predict", "--file", file],
                                 capture_output=True, text=True, check=True).stdout.strip()
            self.browser.open(self.serve(ONNXD_ACCESS_KEY_FILE=str(file)).url + "/docs")
            self.browser.wait("document.querySelector('#state').textContent.includes('key')")
            self.browser.run(f"document.querySelector('#key').value = '{key}'")
            self.browser.run("document.querySelector('#look').click()")
            self.browser.wait("document.querySelectorAll('section').length > 0")

    def test_nothing_comes_from_other_hosts(self):
        served = self.serve()
        self.browser.open(served.url + "/docs")
        self.browser.wait("document.querySelectorAll('section').length > 0")
        loaded = self.browser.run("performance.getEntries().map(entry => entry.name).filter(name => /^https?:/.test(name))")
        self.assertTrue(loaded)
        for url in loaded:
            self.assertTrue(url.startswith(served.url), url)

    def test_pages_of_other_origins_ask_only_where_they_may(self):
        handler = type("Empty", (http.server.BaseHTTPRequestHandler,), {
            "do_GET": lambda self: (self.send_response(200), self.send_header("Content-Type", "text/html"),
                                    self.end_headers()),
            "log_message": lambda *_: None})
        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as page:
            threading.Thread(target=page.serve_forever, daemon=True).start()
            self.addCleanup(page.shutdown)
            origin = f"http://127.0.0.1:{page.server_port}"
            for allowed, expected in (("", "TypeError"), (origin, 200), ("*", 200), ("https://app.example.com", "TypeError")):
                served = self.serve(ONNXD_SERVER_CORS_ORIGINS=allowed)
                self.browser.open(origin)
                asked = self.browser.run(
                    f"fetch('{served.url}/predict/iris_forest', {{method: 'POST', headers: {{'X-API-Key': 'k', "
                    "'Content-Type': 'application/json'}, body: '{\"input\": [[1, 1, 1, 1]]}'})"
                    ".then(reply => reply.status, error => error.name)")
                self.assertEqual(asked, expected, allowed)


if __name__ == "__main__":
    unittest.main()

"""The sub-commands that ask a running server, or about its configuration."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import daemon


def onnxd(*arguments, environment=None, text=None):
    return subprocess.run([daemon.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=60, input=text,
                          env={**os.environ, **(environment or {})})


class Client(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.socket = f"{cls.folder.name}/rest"
        cls.daemon = daemon.Daemon(daemon.MODELS, environment={"ONNXD_SERVER_HTTP_SOCKET": cls.socket})

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()
        cls.folder.cleanup()

    def ask(self, *arguments, **options):
        return onnxd(*arguments, environment={"ONNXD_URL": self.daemon.url}, **options)

    def test_health(self):
        for arguments in ((), ("--ready",)):
            self.assertEqual(self.ask("health", *arguments).returncode, 0)
            self.assertEqual(onnxd("health", self.daemon.url, *arguments).returncode, 0)
            self.assertEqual(onnxd("health", f"unix:{self.socket}", *arguments).returncode, 0)
        nobody = onnxd("health", "http://127.0.0.1:1", "--timeout", 2)
        self.assertEqual(nobody.returncode, 1)
        self.assertIn("http://127.0.0.1:1", nobody.stderr)
        for wrong in ("ftp://x", "127.0.0.1", ""):
            self.assertEqual(onnxd("health", wrong).returncode, 1, wrong)

    def test_a_server_that_is_not_ready(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "bad" / "1" / "model.onnx"
            file.parent.mkdir(parents=True)
            file.write_text("no model")
            with daemon.Daemon(folder) as unready:
                self.assertEqual(onnxd("health", unready.url).returncode, 0)
                self.assertEqual(onnxd("health", "--ready", unready.url).returncode, 1)

    def test_predict(self):
        rows = [[5.1, 3.5, 1.4, 0.2]]
        for document in (rows, {"input": rows}, {"measurements": rows}, {"inputs": {"measurements": rows}}):
            done = self.ask("predict", "iris_forest", "--input", "-", text=json.dumps(document))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["predictions"]["label"], [0])
        file = pathlib.Path(self.folder.name) / "input.json"
        file.write_text(json.dumps(rows))
        self.assertEqual(self.ask("predict", "iris_forest", "--input", file).returncode, 0)
        for model, text, reason in (("none", "[1]", "none"), ("iris_forest", "[[1, 2]]", "float[batch, 4]"),
                                    ("iris_forest", "{", "no JSON"), ("a/../b", "[1]", "400")):
            done = self.ask("predict", model, "--input", "-", text=text)
            self.assertEqual(done.returncode, 1)
            self.assertIn(reason, done.stderr)
        self.assertEqual(self.ask("predict", "iris_forest", "--input", "/no/file").returncode, 1)

    def test_models(self):
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_MODELS_CONTROL_MODE": "explicit"}) as served:
            def ask(*arguments):
                return onnxd("models", *arguments, "--url", served.url)
            self.assertEqual(ask("list").stdout, "")
            self.assertEqual(ask("load", "iris_forest").returncode, 0)
            self.assertEqual(ask("list").stdout, "iris_forest 1 READY\n")
            self.assertEqual(ask("unload", "iris_forest").returncode, 0)
            self.assertEqual(ask("list").stdout, "")
            failed = ask("load", "none")
            self.assertEqual(failed.returncode, 1)
            self.assertIn("none", failed.stderr)

    def test_keys_are_sent(self):
        file = f"{self.folder.name}/keys"
        key = onnxd("keys", "create", "reader", "--role", "read", "--file", file).stdout.strip()
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_ACCESS_KEY_FILE": file}) as guarded:
            self.assertIn("401", onnxd("models", "list", "--url", guarded.url).stderr)
            environment = {"ONNXD_URL": guarded.url, "ONNXD_API_KEY": key}
            self.assertEqual(onnxd("models", "list", environment=environment).returncode, 0)
            self.assertIn("403", onnxd("models", "unload", "digits_cnn", environment=environment).stderr)

    def test_the_configuration_as_it_would_be(self):
        file = pathlib.Path(self.folder.name) / "onnxd.yaml"
        file.write_text("server:\n  http_port: 9000\nlimits:\n  connections: 7\n")
        environment = {"ONNXD_LIMITS_CONNECTIONS": "8", "ONNXD_MODELS_REPOSITORY": "/a folder: with \"signs\""}
        done = onnxd("config", "print", file, environment=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("  http_port: 9000  # file\n", done.stdout)
        self.assertIn("  connections: 8  # environment\n", done.stdout)
        self.assertIn("  grpc_port: 8001  # default\n", done.stdout)
        # What is printed is a configuration file of the same values.
        again = pathlib.Path(self.folder.name) / "again.yaml"
        again.write_text(done.stdout)
        self.assertEqual(onnxd("config", "check", again).stdout, "ok\n")
        values = [line.split("  #")[0] for line in done.stdout.splitlines()]
        printed = onnxd("config", "print", again).stdout.splitlines()
        self.assertEqual([line.split("  #")[0] for line in printed], values)
        for text, reason in (("server:\n  http_prt: 1\n", "http_port"), ("limits:\n  connections: 0\n", "connections")):
            file.write_text(text)
            for verb in ("check", "print"):
                wrong = onnxd("config", verb, file)
                self.assertEqual(wrong.returncode, 2)
                self.assertIn(reason, wrong.stderr)


if __name__ == "__main__":
    unittest.main()

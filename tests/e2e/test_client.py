"""The sub-commands that ask a running server, or about its configuration."""

import json
import os
import pathlib
import shlex
import socket as socket_module
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
        cls.grpc_socket = f"{cls.folder.name}/grpc"
        cls.daemon = daemon.Daemon(daemon.MODELS, environment={
            "ONNXD_SERVER_HTTP_SOCKET": cls.socket, "ONNXD_SERVER_GRPC_SOCKET": cls.grpc_socket})
        cls.grpc_url = f"http://127.0.0.1:{cls.daemon.grpc_port}"

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
        for wrong in ("ftp://x", "127.0.0.1"):
            self.assertEqual(onnxd("health", wrong).returncode, 1, wrong)

    def test_the_command_line_counts_before_the_environment(self):
        nobody = {"ONNXD_URL": "http://127.0.0.1:1", "ONNXD_API_KEY": "none"}
        for arguments in (("health", self.daemon.url), ("health", "--url", self.daemon.url),
                          ("models", "list", "--url", self.daemon.url),
                          ("predict", "iris_forest", "--grpc", "--url", self.grpc_url, "--input", "-")):
            done = onnxd(*arguments, environment=nobody, text="[[5.1, 3.5, 1.4, 0.2]]")
            self.assertEqual(done.returncode, 0, done.stderr)
        with tempfile.TemporaryDirectory() as folder:
            one, other = f"{folder}/one", f"{folder}/other"
            created = onnxd("keys", "create", "a", "--role", "read", "--file", one, environment={"ONNXD_ACCESS_KEY_FILE": other})
            self.assertEqual(created.returncode, 0, created.stderr)
            self.assertTrue(pathlib.Path(one).exists() and not pathlib.Path(other).exists())
            self.assertEqual(onnxd("keys", "list", environment={"ONNXD_ACCESS_KEY_FILE": one}).returncode, 0)
        self.assertEqual(onnxd("keys", "list").returncode, 2)

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

    def test_predict_over_grpc(self):
        def ask(*arguments, **options):
            return onnxd("predict", *arguments, "--grpc", environment={"ONNXD_URL": self.grpc_url}, **options)
        rows = [[5.1, 3.5, 1.4, 0.2]]
        rest = json.loads(self.ask("predict", "iris_forest", "--input", "-", text=json.dumps(rows)).stdout)
        for document in (rows, rows[0], {"input": rows}, {"measurements": rows}, {"inputs": {"measurements": rows}}):
            done = ask("iris_forest", "--input", "-", text=json.dumps(document))
            self.assertEqual(done.returncode, 0, done.stderr)
            answer = json.loads(done.stdout)
            self.assertEqual(set(answer), set(rest))
            self.assertEqual((answer["predictions"], answer["model"]), (rest["predictions"], rest["model"]))
        for model, text, reason in (
                ("none", "[1]", "none"), ("iris_forest", "[[1, 2]]", "measurements"), ("iris_forest", "{", "no JSON"),
                ("iris_forest", "[[1, 2], [3]]", "not of one shape"), ("iris_forest", "[[true, 1, 1, 1]]", "boolean"),
                ("iris_forest", '[["a", 1, 1, 1]]', "string"), ("iris_forest", '{"x": [1]}', "no input 'x'")):
            done = ask(model, "--input", "-", text=text)
            self.assertEqual(done.returncode, 1, text)
            self.assertIn(reason, done.stderr)
        socket = ask("iris_forest", "--input", "-", "--url", f"unix:{self.grpc_socket}", text=json.dumps(rows))
        self.assertEqual(json.loads(socket.stdout)["predictions"], rest["predictions"])

    def test_predict_over_grpc_says_who_does_not_answer(self):
        def ask(url, *arguments):
            return onnxd("predict", "m", "--grpc", "--input", "-", "--url", url, *arguments, text="[1]")
        for url, reason in (("http://127.0.0.1:1", "refused"), ("unix:/no/socket", "No such file"),
                            ("unix:/" + "x" * 200, "too long a path"), ("ftp://x", "no URL"),
                            ("http://", "HOST:PORT"), (self.daemon.url, "")):
            done = ask(url, "--timeout", 2)
            self.assertEqual(done.returncode, 1, url)
            self.assertIn(url, done.stderr)
            self.assertIn(reason, done.stderr)
        with socket_module.create_server(("127.0.0.1", 0)) as silent:
            done = ask(f"http://127.0.0.1:{silent.getsockname()[1]}", "--timeout", 1)
        self.assertIn("did not answer in time", done.stderr)

    def test_large_messages_over_grpc(self):
        with daemon.repository(m=daemon.identity_model(1)) as folder, daemon.Daemon(folder) as served:
            done = onnxd("predict", "m", "--grpc", "--input", "-", "--url", f"http://127.0.0.1:{served.grpc_port}",
                         text=json.dumps([0.5] * 700_000))
            self.assertEqual(json.loads(done.stdout)["prediction"], [0.5] * 700_000)

    def test_completion(self):
        script = onnxd("completion", "bash").stdout
        def completed(*words):
            quoted = " ".join(shlex.quote(word) for word in ("onnxd", *words))
            done = subprocess.run(
                ["bash", "-c", f"{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words)}; _onnxd; echo ${{COMPREPLY[*]}}"],
                capture_output=True, text=True, timeout=10, check=True)
            return done.stdout.split()
        self.assertEqual(completed("ser"), ["serve"])
        self.assertEqual(set(completed("models", "")) & {"list", "load", "unload", "serve"}, {"list", "load", "unload"})
        self.assertEqual(completed("models", "load", "x", "--ti"), ["--timeout"])
        self.assertEqual(completed("predict", "m", "--gr"), ["--grpc"])
        self.assertEqual(completed("serve", "file."), [])
        self.assertIn("__fish_seen_subcommand_from models; and __fish_seen_subcommand_from load' -l timeout",
                      onnxd("completion", "fish").stdout)
        self.assertIn("bashcompinit", onnxd("completion", "zsh").stdout)
        self.assertEqual(onnxd("completion", "csh").returncode, 2)

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

    def test_a_models_own_file_is_checked(self):
        for file in sorted((daemon.ROOT / "deploy" / "gitops" / "models").glob("*/model.yaml")):
            done = onnxd("config", "check", file)
            self.assertEqual((done.returncode, done.stdout), (0, "ok\n"), done.stderr)
        for name, text, reason in (("model.yaml", "labels: 3\n", "model.yaml:1:9: section 'labels' must be a map"),
                                   ("config.pbtxt", "max_batch: 3", "config.pbtxt:1:10: ")):
            file = pathlib.Path(self.folder.name) / name
            file.write_text(text)
            done = onnxd("config", "check", file)
            self.assertEqual(done.returncode, 2)
            self.assertIn(reason, done.stderr)

    def test_what_git_holds_is_published(self):
        """deploy/gitops/publish, with a made-up `aws` that says what it was asked for."""
        tools = pathlib.Path(self.folder.name) / "tools"
        tools.mkdir()
        (tools / "aws").write_text('#!/bin/sh\necho "$@"\n')
        (tools / "aws").chmod(0o755)
        publish = daemon.ROOT / "deploy" / "gitops" / "publish"
        environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "ONNXD": daemon.BINARY}

        def run(*arguments):
            return subprocess.run([publish, *arguments], capture_output=True, text=True, env=environment, timeout=60)

        models = daemon.ROOT / "deploy" / "gitops" / "models"
        done = run(models, "s3://bucket/models")
        self.assertEqual(done.stdout, f"s3 sync {models} s3://bucket/models --exclude * --include */model.yaml "
                                      "--include */config.pbtxt --delete\n", done.stderr)
        bad = pathlib.Path(self.folder.name) / "bad"
        (bad / "m").mkdir(parents=True)
        (bad / "m" / "model.yaml").write_text("splitt: {}\n")
        done = run(bad, "s3://bucket/models")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("did you mean 'split'?", done.stderr)
        self.assertEqual(run(models).returncode, 2)

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

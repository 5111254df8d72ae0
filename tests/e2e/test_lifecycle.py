"""Starting, configuring and stopping the daemon."""

import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import numpy
import tritonclient.grpc
from onnx import TensorProto, helper

import daemon


def serve(*arguments, environment=None):
    return subprocess.run(
        [daemon.BINARY, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=30,
        env={**os.environ, **(environment or {})},
    )


class LogFormat(unittest.TestCase):
    """`log.format: auto`: for whom the log is written depends on who reads it."""

    def log_of_a_start(self, stderr):
        process = subprocess.Popen(
            [daemon.BINARY, "serve", str(daemon.MODELS), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
            stdout=subprocess.PIPE, stderr=stderr, text=True, env={**os.environ, "ONNXD_LIMITS_DRAIN_DELAY_S": "0"})
        self.addCleanup(process.stdout.close)
        for _ in range(2):  # the ports; the models
            process.stdout.readline()
        process.terminate()
        process.wait(30)

    def test_a_pipe_gets_json(self):
        with tempfile.TemporaryFile("w+") as file:
            self.log_of_a_start(file)
            file.seek(0)
            lines = [json.loads(line) for line in file]
        self.assertTrue(any("iris_forest" in line["message"] for line in lines), lines)

    def test_a_terminal_gets_text(self):
        ours, its = os.openpty()
        try:
            self.log_of_a_start(its)
            log = os.read(ours, 1 << 16).decode()
        finally:
            os.close(ours)
            os.close(its)
        self.assertRegex(log, r"(?m)^\d{4}-\d{2}-\d{2}T\S+ info ")
        self.assertNotIn("{", log.splitlines()[0])


class Start(unittest.TestCase):
    def test_a_busy_port_is_named_with_its_holder(self):
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            done = serve(daemon.MODELS, "--http-port", port, "--grpc-port", 0, "--metrics-port", 0)
        self.assertEqual(done.returncode, 3)
        self.assertIn(f"127.0.0.1:{port}", done.stderr)
        self.assertIn(f"pid {os.getpid()}", done.stderr)

    def test_a_single_file_that_fails_exits_with_4(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "bad.onnx"
            path.write_bytes(b"\x08\x08nonsense")
            done = serve(path, "--http-port", 0, "--grpc-port", 0, "--metrics-port", 0)
        self.assertEqual(done.returncode, 4)
        self.assertIn("INVALID_ARGUMENT", done.stderr)

    def test_usage_errors_exit_with_2(self):
        for arguments in ((), ("/nowhere",), ("--nonsense",), (daemon.MODELS, "--http-port", "70000"),
                          (daemon.MODELS, "--bind", "nowhere"), (daemon.MODELS, "--providers", "tpu")):
            self.assertEqual(serve(*arguments).returncode, 2, arguments)

    def test_a_wrong_configuration_names_the_line(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("server:\n  prot: 1\n")
            file.flush()
            done = serve("--config", file.name)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{file.name}:2:3: unknown key 'server.prot'", done.stderr)

    def test_a_later_start_finds_prepared_models(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "cache"
            answers = []
            for found in ("missing", "found"):
                with daemon.Daemon(daemon.MODELS / "iris_forest" / "1" / "model.onnx", "--cache", cache,
                                   "--model-name", "iris") as served:
                    request = urllib.request.Request(f"{served.url}/predict/iris", b'{"input": [[5.1, 3.5, 1.4, 0.2]]}')
                    answers.append(json.load(urllib.request.urlopen(request))["predictions"])
                    metrics = urllib.request.urlopen(f"{served.url}/metrics").read().decode()
                    self.assertIn(f'onnxd_prepared_models_total{{result="{found}"}} 1', metrics)
                    self.assertEqual(served.terminate(), 0)
            self.assertEqual(answers[0], answers[1])
            self.assertEqual(len(list(cache.glob("*.prepared"))), 1)

    def test_a_cache_folder_that_others_may_write_is_not_used(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o777)
            with daemon.Daemon(daemon.MODELS, "--cache", folder) as served:
                self.assertTrue(served.logged("writable for that user alone"))
                self.assertIn("iris_forest", served.ready_line)
            self.assertEqual(list(pathlib.Path(folder).iterdir()), [])

    def test_a_precision_that_is_not_faster_here_is_said_and_fp32_computes(self):
        flags = pathlib.Path("/proc/cpuinfo").read_text()
        if "amx_bf16" in flags:
            self.skipTest("this processor is faster with bf16x3")
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_RUNTIME_PRECISION": "bf16x3"}) as served:
            self.assertTrue(served.logged("precision bf16x3 is not faster than fp32 on this machine"))
            self.assertIn("iris_forest", served.ready_line)

    def test_a_plugin_that_does_not_load_leaves_the_others_serving(self):
        with daemon.Daemon(daemon.MODELS, "--plugins", f"/nowhere.so,{daemon.EXAMPLE_PLUGIN}") as served:
            self.assertTrue(served.logged("plug-in '/nowhere.so' does not load"))
            self.assertIn("iris_forest", served.ready_line)

    def test_a_bad_model_leaves_the_others_serving(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("good", "bad"):
                path = pathlib.Path(folder) / name / "1"
                path.mkdir(parents=True)
                (path / "model.onnx").write_bytes(
                    (daemon.MODELS / "iris_forest/1/model.onnx").read_bytes()[: None if name == "good" else 500])
            with daemon.Daemon(folder) as running:
                self.assertEqual(running.ready_line, "ready: good\n")
                self.assertTrue(running.logged("'bad'"))

    def test_file_environment_and_flag_in_rising_priority(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(f"models:\n  repository: {daemon.MODELS}\n  default_model: digits_cnn\n")
            file.flush()
            with daemon.Daemon("--config", file.name,
                               environment={"ONNXD_MODELS_DEFAULT_MODEL": "iris_forest",
                                            "ONNXD_SERVICE_HOST": "10.0.0.1"}) as running:
                body = json.dumps({"input": [[1, 2, 3, 4]]}).encode()
                with urllib.request.urlopen(running.url + "/predict", data=body) as answer:
                    self.assertEqual(json.loads(answer.read())["model"], "iris_forest")

    def test_a_failed_accept_does_not_end_the_listener(self):
        source = r"""
            #define _GNU_SOURCE
            #include <dlfcn.h>
            #include <errno.h>
            #include <sys/socket.h>
            #include <unistd.h>
            static int faults[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM, ECONNABORTED, EPROTO, EPERM, EINTR};
            static int calls;
            int accept(int fd, struct sockaddr *address, socklen_t *length) {
              int (*real)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "accept");
              int got = real(fd, address, length);
              if (got >= 0 && calls < 8) { close(got); errno = faults[calls++]; return -1; }
              return got;
            }
            int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags) {
              return accept(fd, address, length);
            }
        """
        with tempfile.TemporaryDirectory() as folder:
            library = pathlib.Path(folder) / "faults.so"
            (pathlib.Path(folder) / "faults.c").write_text(source)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", library, f"{folder}/faults.c", "-ldl"], check=True)
            with daemon.Daemon(daemon.MODELS, environment={"LD_PRELOAD": str(library)}) as running:
                answered = 0
                for _ in range(12):
                    try:
                        urllib.request.urlopen(running.url + "/health/live", timeout=5).close()
                        answered += 1
                    except OSError:
                        pass
                self.assertGreaterEqual(answered, 4)
                with urllib.request.urlopen(running.url + "/metrics") as answer:
                    self.assertRegex(answer.read().decode(), r"onnxd_accept_errors_total [1-9]")


class ServiceManager(unittest.TestCase):
    def test_it_hears_of_start_life_and_stop(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(f"{folder}/notify")
            manager.settimeout(10)
            environment = {"NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_USEC": "200000"}
            with daemon.Daemon(daemon.MODELS, environment=environment) as running:
                self.assertEqual([manager.recv(100) for _ in range(3)], [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"])
                self.assertEqual(running.terminate(), 0)
                last = b""
                while last != b"STOPPING=1":
                    last = manager.recv(100)

    def test_one_that_went_away_disturbs_nobody(self):
        with daemon.Daemon(daemon.MODELS, environment={"NOTIFY_SOCKET": "/nowhere/notify"}) as running:
            self.assertEqual(running.terminate(), 0)


class Readiness(unittest.TestCase):
    def test_of_all_models_or_any(self):
        for readiness, expected in (("any", 200), ("all", 503)):
            with daemon.repository(good=daemon.identity_model(1)) as folder:
                bad = pathlib.Path(folder) / "bad" / "1"
                bad.mkdir(parents=True)
                (bad / "model.onnx").write_bytes(b"nonsense")
                with daemon.Daemon(folder, environment={"ONNXD_MODELS_READINESS": readiness}) as running:
                    try:
                        code = urllib.request.urlopen(running.url + "/health/ready", timeout=10).status
                    except urllib.error.HTTPError as error:
                        code = error.code
                self.assertEqual(code, expected)


class Stop(unittest.TestCase):
    def test_idle(self):
        with daemon.embedded() as running:
            self.assertEqual(running.terminate(), 0)

    def test_with_idle_connections_open(self):
        with daemon.embedded() as running:
            with socket.create_connection(("127.0.0.1", running.http_port)):
                with socket.create_connection(("127.0.0.1", running.grpc_port)):
                    begin = time.monotonic()
                    self.assertEqual(running.terminate(), 0)
                    self.assertLess(time.monotonic() - begin, 5)

    def test_it_serves_on_until_balancers_have_noticed(self):
        def code(path, body=None):
            try:
                return urllib.request.urlopen(running.url + path, body, timeout=5).status
            except urllib.error.HTTPError as error:
                return error.code

        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_DRAIN_DELAY_S": "2"}) as running:
            row = json.dumps({"input": [[5.1, 3.5, 1.4, 0.2]]}).encode()
            connection = http.client.HTTPConnection("127.0.0.1", running.http_port, timeout=5)

            def kept():
                connection.request("POST", "/predict/iris_forest", row)
                answer = connection.getresponse()
                answer.read()
                return answer.status, answer.headers["Connection"]

            self.assertEqual(code("/health/ready"), 200)
            self.assertEqual(kept(), (200, None))
            begin = time.monotonic()
            running.process.send_signal(signal.SIGTERM)
            while code("/health/ready") == 200:
                self.assertLess(time.monotonic() - begin, 1)
            self.assertEqual(kept(), (200, "close"))
            over_grpc = tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{running.grpc_port}")
            self.assertFalse(over_grpc.is_server_ready())
            self.assertTrue(over_grpc.is_server_live())
            over_grpc.close()
            self.assertEqual(code("/health/live"), 200)
            self.assertEqual(running.process.wait(30), 0)
            self.assertGreater(time.monotonic() - begin, 1.9)
            connection.close()

    def test_while_models_load(self):
        weights = numpy.random.default_rng(1).random((1500, 1500), numpy.float32)
        model = daemon.model_of([helper.make_node("MatMul", ["x", "w"], ["y"])],
                                [("x", TensorProto.FLOAT, ["n", 1500])], [("y", TensorProto.FLOAT, ["n", 1500])],
                                [("w", weights)])
        with daemon.repository(**{f"m{i}": model for i in range(40)}) as folder:
            process = subprocess.Popen(
                [daemon.BINARY, "serve", folder, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            self.assertIn("listens", process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 0)
            self.assertNotIn("ready", out)

    def test_with_several_threads_for_a_run(self):
        """None of which takes the signal."""
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_RUNTIME_THREADS": "4"}) as running:
            running.process.send_signal(signal.SIGHUP)
            self.assertTrue(running.logged("configuration"))
            self.assertEqual(running.terminate(20), 0)

    def test_a_second_signal_ends_the_wait(self):
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_DRAIN_DELAY_S": "60"}) as running:
            running.process.send_signal(signal.SIGTERM)
            self.assertTrue(running.logged("draining"))
            self.assertEqual(running.terminate(20), 0)

    def test_requests_in_flight_are_answered(self):
        with daemon.repository(slow=daemon.slow_model()) as folder, daemon.Daemon(folder) as running:
            body = json.dumps({"input": [[0.5] * 700] * 300}).encode()
            answers = []

            def call():
                with urllib.request.urlopen(running.url + "/predict", data=body, timeout=60) as answer:
                    answers.append(len(json.loads(answer.read())["prediction"]))

            threads = [threading.Thread(target=call) for _ in range(4)]
            for thread in threads:
                thread.start()
            metrics = f"http://127.0.0.1:{running.metrics_port}/metrics"
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:  # until all four are inside
                with urllib.request.urlopen(metrics) as text:
                    if re.search(rb"^onnxd_inflight_requests{.*} 4$", text.read(), re.MULTILINE) or answers:
                        break
            self.assertEqual(running.terminate(60), 0)
            for thread in threads:
                thread.join()
            self.assertEqual(answers, [300] * 4)


if __name__ == "__main__":
    unittest.main()

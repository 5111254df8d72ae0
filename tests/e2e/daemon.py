"""Starts the real daemon for a test and stops it again."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TEST_ONNXD_BINARY", str(ROOT / "build" / "release" / "tools" / "onnxd"))
MODELS = ROOT / "models"
EXAMPLE_PLUGIN = str(pathlib.Path(BINARY).resolve().parents[1] / "tests" / "libclamped_affine.so")


class Daemon:
    """A running `onnxd serve` on free ports of the loopback interface."""

    def __init__(self, *arguments, environment=None, prefix=()):
        """`prefix`: a command that becomes the daemon."""
        self.process = subprocess.Popen(
            [*prefix, BINARY, "serve", *map(str, arguments), "--http-port", "0", "--grpc-port", "0",
             "--metrics-port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "ONNXD_LIMITS_DRAIN_DELAY_S": "0", "ONNXD_LOG_FORMAT": "text", **(environment or {})},
        )
        line = self.process.stdout.readline()
        ports = re.findall(r":(\d+)", line)
        if len(ports) != 3:
            _, errors = self.process.communicate()
            raise RuntimeError(f"onnxd did not start: {line} {errors}")
        self.http_port, self.grpc_port, self.metrics_port = map(int, ports)
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.stderr_lines = []
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        self._reader.start()
        self.ready_line = self.process.stdout.readline()

    def _read_stderr(self):
        for line in self.process.stderr:
            self.stderr_lines.append(line)

    def last_words(self):
        """All of stderr, of a daemon that has ended."""
        self._reader.join(10)
        return "".join(self.stderr_lines)

    def logged(self, text, timeout=10):
        """Whether a line with `text` appears on stderr, which a thread reads along."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if any(text in line for line in self.stderr_lines):
                return True
            time.sleep(0.02)
        return False

    def terminate(self, timeout=30):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def alive(self):
        return self.process.poll() is None

    def resident_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def close(self):
        if self.alive():
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def embedded():
    """The daemon as scripts/serve starts it, on other ports."""
    return Daemon(MODELS, "--default-model", "iris_forest")


@contextlib.contextmanager
def repository(**models):
    """A temporary repository of the given ModelProtos, version 1 each."""
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models.items():
            path = pathlib.Path(folder) / name / "1"
            path.mkdir(parents=True)
            onnx.save(model, path / "model.onnx")
        yield folder


def model_of(nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(
        nodes, "test",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
        [numpy_helper.from_array(array, name) for name, array in initializers],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def identity_model(datatype):
    return model_of(
        [helper.make_node("Identity", ["x"], ["y"])],
        [("x", datatype, ["n"])], [("y", datatype, ["n"])],
    )


def slow_model(size=700, repeats=60):
    """A chain of matrix products that takes a while, for tests of draining and deadlines."""
    weights = numpy.eye(size, dtype=numpy.float32)
    nodes = [
        helper.make_node("MatMul", [f"h{i}" if i else "x", "w"], [f"h{i + 1}"]) for i in range(repeats)
    ]
    nodes.append(helper.make_node("Identity", [f"h{repeats}"], ["y"]))
    return model_of(
        nodes, [("x", TensorProto.FLOAT, ["n", size])], [("y", TensorProto.FLOAT, ["n", size])],
        [("w", weights)],
    )

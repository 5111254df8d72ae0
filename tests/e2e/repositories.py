"""Repositories that tests change while a daemon serves them."""

import json
import pathlib
import re
import time
import unittest
import urllib.error
import urllib.request

import numpy
import onnx
from onnx import TensorProto, helper

import daemon


def factor_model(factor):
    """y = factor * x."""
    return daemon.model_of(
        [helper.make_node("Mul", ["x", "factor"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch", 4])], [("y", TensorProto.FLOAT, ["batch", 4])],
        [("factor", numpy.array(factor, numpy.float32))])


def heavy_model(megabytes, factor=1):
    """y = factor * x, and weights of that size that nothing else has."""
    weights = numpy.random.default_rng(int(factor)).standard_normal(megabytes << 18).astype(numpy.float32)
    return daemon.model_of(
        [helper.make_node("Mul", ["x", "zero"], ["zeros"]), helper.make_node("Cast", ["zeros"], ["i"], to=TensorProto.INT64),
         helper.make_node("Gather", ["w", "i"], ["row"]), helper.make_node("Mul", ["row", "zero"], ["nothing"]),
         helper.make_node("Mul", ["x", "factor"], ["scaled"]), helper.make_node("Add", ["scaled", "nothing"], ["y"])],
        [("x", TensorProto.FLOAT, ["batch", 4])], [("y", TensorProto.FLOAT, ["batch", 4])],
        [("w", weights), ("zero", numpy.array(0, numpy.float32)),
         ("factor", numpy.array(factor, numpy.float32))])


class RepositoryCase(unittest.TestCase):
    """A repository with version 1 of model `m`, and what to do with it."""

    first = factor_model(1)

    def setUp(self):
        self.repository = daemon.repository(m=self.first)
        self.folder = pathlib.Path(self.repository.__enter__())
        self.addCleanup(self.repository.__exit__, None, None, None)

    def serve(self, *arguments, prefix=(), **environment):
        served = daemon.Daemon(*(arguments or (self.folder,)), environment=environment, prefix=prefix)
        self.addCleanup(served.close)
        return served

    def put(self, version, content, name="m", folder=None):
        """As a careful deployment does: written elsewhere, then moved."""
        folder = folder or self.folder
        hidden = folder / f".incoming{version}"
        hidden.mkdir()
        if isinstance(content, bytes):
            (hidden / "model.onnx").write_bytes(content)
        else:
            onnx.save(content, hidden / "model.onnx")
        target = folder / name / str(version)
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            (hidden / "model.onnx").replace(target / "model.onnx")
            hidden.rmdir()
        else:
            hidden.rename(target)

    def settings(self, text, name="m"):
        (self.folder / name / "model.yaml").write_text(text)

    def answer(self, served, path="/predict/m", timeout=10):
        body = json.dumps({"input": [[1, 1, 1, 1]]}).encode()
        with urllib.request.urlopen(served.url + path, body, timeout=timeout) as response:
            document = json.load(response)
        return document["prediction"][0][0]

    def status(self, served, path="/predict/m", body=b'{"input": [[1, 1, 1, 1]]}', headers={}, timeout=10):
        """(HTTP status, JSON or text of the body, headers)"""
        request = urllib.request.Request(served.url + path, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as response:
                return response.status, self._json(response.read()), response.headers
        except urllib.error.HTTPError as error:
            return error.code, self._json(error.read()), error.headers

    @staticmethod
    def _json(text):
        try:
            return json.loads(text) if text else None
        except ValueError:
            return text.decode()

    def get(self, served, path):
        return self.status(served, path, None)[:2]

    def post(self, served, path, document=None):
        body = b"" if document is None else json.dumps(document).encode()
        return self.status(served, path, body, timeout=20)[:2]

    def metric(self, served, name):
        """The value of a series, by its name with labels as the text has them, or the sum of all of the name."""
        of_name, total = re.compile(re.escape(name) + r"({.*})? "), 0
        with urllib.request.urlopen(f"http://127.0.0.1:{served.metrics_port}/metrics") as response:
            for line in response.read().decode().splitlines():
                if of_name.match(line):
                    total += float(line.split()[-1])
        return total

    def eventually(self, condition, timeout=20):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(0.05)
        return False

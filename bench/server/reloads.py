#!/usr/bin/env python3
"""Versions of a model that replace each other under full load: what failed (goal: nothing).

64 closed-loop clients call y = version * x while each new version is moved into the repository and waited for; then,
with models.control_mode `explicit`, another model is unloaded and loaded again and again beside them.

Needs onnx and numpy. Usage: reloads.py [--versions N] [--cycles N]
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy
import onnx
from onnx import TensorProto, helper

from batching import Daemon, ROOT, parser_of

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import daemon as e2e  # noqa: E402: how it writes models


def put(folder, model, version):
    """Written elsewhere some time ago, then moved."""
    made = e2e.model_of([helper.make_node("Mul", ["x", "factor"], ["y"])],
                        [("x", TensorProto.FLOAT, ["batch", 4])], [("y", TensorProto.FLOAT, ["batch", 4])],
                        [("factor", numpy.array(version, numpy.float32))])
    hidden = folder / f".{model}{version}"
    hidden.mkdir()
    onnx.save(made, hidden / "model.onnx")
    os.utime(hidden / "model.onnx", (time.time() - 60, time.time() - 60))
    (folder / model).mkdir(exist_ok=True)
    hidden.rename(folder / model / str(version))


def post(port, path, body=b""):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", body, timeout=30) as response:
        return response.read()


def under_load(arguments, folder, seconds, port):
    body = folder / ".body"
    body.write_text(json.dumps({"input": [[1, 1, 1, 1]]}))
    return subprocess.Popen([arguments.load, "--port", str(port), "--target", "/predict/m", "--body", str(body),
                             "--clients", "64", "--warmup", "0", "--seconds", str(seconds)],
                            stdout=subprocess.PIPE, text=True)


def report(name, load):
    result = json.loads(load.communicate()[0])
    print(name, {code: entry["count"] for code, entry in result.items() if code.isdigit()},
          f"p99 {result['200']['p99_ms']:.1f} ms, longest {result['200']['max_ms']:.1f} ms", flush=True)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--versions", type=int, default=50)
    parser.add_argument("--cycles", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        put(folder, "m", 1)
        served = Daemon(arguments.onnxd, folder, "auto")
        load = under_load(arguments, folder, arguments.versions * 0.7 + 5, served.port)
        seen = 0
        for version in range(2, arguments.versions + 2):
            put(folder, "m", version)
            end = time.monotonic() + 20
            while time.monotonic() < end:
                answer = json.loads(post(served.port, "/predict/m", b'{"input": [[1, 1, 1, 1]]}'))
                if answer["model_version"] == str(version):
                    assert answer["prediction"] == [[version] * 4], answer
                    seen += 1
                    break
                time.sleep(0.01)
        report(f"{seen} of {arguments.versions} new versions seen;", load)
        served.close()
        put(folder, "n", 1)
        os.environ["ONNXD_MODELS_CONTROL_MODE"] = "explicit"
        process = subprocess.Popen([arguments.onnxd, "serve", name, "--http-port", "0", "--grpc-port", "0",
                                    "--metrics-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        port = int(re.findall(r":(\d+)", process.stdout.readline())[0])
        process.stdout.readline()
        for model in "mn":
            post(port, f"/v2/repository/models/{model}/load")
        load = under_load(arguments, folder, arguments.cycles * 0.1 + 3, port)
        for _ in range(arguments.cycles):
            for verb in ("unload", "load"):
                post(port, f"/v2/repository/models/n/{verb}")
                post(port, "/v2/repository/index")
                time.sleep(0.05)
        report(f"{arguments.cycles} unloads and loads beside;", load)
        process.terminate()


if __name__ == "__main__":
    main()

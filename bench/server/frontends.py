#!/usr/bin/env python3
"""How many requests the frontends answer, and what they add to a run of the model.

A perceptron 10-64-5, one row a request: /predict beside FastAPI with onnxruntime, ModelInfer over gRPC, and both beside
an echo behind the same listeners (bench/server/echo). 64 connections (gRPC: 64 calls in flight on 4), the servers in
turns. Then one connection, one request at a time, and `onnxd bench`: the difference of the medians is what serving
adds, on all processors and on one, where no processor has to wake another. REST goes through bench/server/load, gRPC
through h2load (Debian: nghttp2-client), which share the machine with the server.

Needs onnx, numpy, fastapi, uvicorn[standard] and onnxruntime; --mlserver names the Python of an environment with
mlserver and onnxruntime, whose gRPC is then measured, too.
Usage: frontends.py [--rounds N] [--seconds N] [--mlserver PYTHON]
"""

import json
import os
import pathlib
import re
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from batching import ROOT, parser_of, request_of

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import protos  # noqa: E402

ROW = [0.1 * i for i in range(10)]


def make_model(path):
    random = numpy.random.default_rng(0)
    sizes, nodes, constants, value = (10, 64, 5), [], [], "x"
    for i, (rows, columns) in enumerate(zip(sizes, sizes[1:])):
        constants += [numpy_helper.from_array(random.standard_normal((rows, columns)).astype(numpy.float32), f"w{i}"),
                      numpy_helper.from_array(random.standard_normal(columns).astype(numpy.float32), f"b{i}")]
        nodes.append(helper.make_node("Gemm", [value, f"w{i}", f"b{i}"], [f"h{i}"]))
        value = f"h{i}"
        if i == 0:
            nodes.append(helper.make_node("Relu", [value], ["r"]))
            value = "r"
    graph = helper.make_graph(nodes, "tiny", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 10])],
                              [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["batch", 5])], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def wait_for(url, process):
    for _ in range(200):
        assert process.poll() is None, "the server has ended"
        try:
            return urllib.request.urlopen(url, timeout=1).status
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"{url} does not answer")


class Fastapi:
    def __init__(self, model, port, workers):
        self.name, self.port = f"FastAPI, {workers} worker{'s' * (workers > 1)}", port
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "fastapi_program:app", "--port", str(port), "--workers", str(workers),
             "--log-level", "error"], cwd=pathlib.Path(__file__).parent, env={**os.environ, "MODEL": str(model)})
        wait_for(f"http://127.0.0.1:{port}/health", self.process)


class Onnxd:
    name = "onnxd"

    def __init__(self, binary, model):
        self.process = subprocess.Popen([binary, "serve", str(model), "--http-port", "0", "--grpc-port", "0",
                                         "--metrics-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port, self.grpc_port = map(int, re.findall(r":(\d+)", self.process.stdout.readline())[:2])
        self.process.stdout.readline()


class Mlserver:
    name = "MLServer"

    def __init__(self, python, model, folder):
        self.grpc_port = 18434
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps({
            "http_port": 18433, "grpc_port": self.grpc_port, "metrics_port": 18435, "parallel_workers": 0, "debug": False}))
        (folder / "model-settings.json").write_text(json.dumps({
            "name": "tiny", "implementation": "mlserver_program.OnnxModel", "parameters": {"uri": str(model)}}))
        self.process = subprocess.Popen(
            [python, "-c", "from mlserver.cli import main; main()", "start", str(folder)], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})
        wait_for("http://127.0.0.1:18433/v2/models/tiny/ready", self.process)


class Echo:
    name = "echo"

    def __init__(self, binary):
        self.process = subprocess.Popen([binary], stdout=subprocess.PIPE, text=True)
        self.port, self.grpc_port = map(int, re.findall(r"(\d+)", self.process.stdout.readline()))


def rest(arguments, server, body, clients, target="/predict", header="Content-Type: application/json"):
    done = subprocess.run([arguments.load, "--port", str(server.port), "--target", target, "--header", header, "--body",
                           body, "--clients", str(clients), "--seconds", str(arguments.seconds)],
                          check=True, capture_output=True, text=True)
    answers = json.loads(done.stdout)
    assert set(code for code in answers if code.isdigit()) == {"200"}, answers
    return answers["200"]


def grpc_body(path):
    request = protos.message("inference.ModelInferRequest")(model_name="tiny")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 10])
    request.raw_input_contents.append(numpy.array(ROW, numpy.float32).tobytes())
    message = request.SerializeToString()
    path.write_bytes(b"\0" + struct.pack(">I", len(message)) + message)


def h2load(server, body, *options):
    done = subprocess.run(["h2load", *options, "-d", body, "-H", "content-type: application/grpc", "-H", "te: trailers",
                           f"http://127.0.0.1:{server.grpc_port}/inference.GRPCInferenceService/ModelInfer"],
                          check=True, capture_output=True, text=True)
    succeeded, failed = re.search(r"(\d+) succeeded, (\d+) failed", done.stdout).groups()
    assert succeeded != "0" and failed == "0", done.stdout
    return done.stdout


def grpc(arguments, server, body):
    report = h2load(server, body, "-D", str(int(arguments.seconds)), "--warm-up-time", "1", "-c", "4", "-m", "16")
    return float(re.search(r"([\d.]+) req/s", report)[1])


def lone_call(server, body, log):
    """Median of one call at a time, in ms; the first tenth warms up."""
    h2load(server, body, "-n", "20000", "-c", "1", "-m", "1", f"--log-file={log}")
    times = [int(line.split("\t")[2]) for line in log.read_text().splitlines()]
    log.unlink()
    return statistics.median(times[len(times) // 10:]) / 1e3


def lone_run(arguments, model):
    done = subprocess.run([arguments.onnxd, "bench", model, "--iterations", "20000", "--json"], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)["latency_ms"]["median"]


def print_added(arguments, model, message, folder, processors):
    """What one connection waits for besides the model's run: medians of the rounds, in turns, on these processors."""
    head, body = request_of({"x": numpy.array([ROW], numpy.float32)})
    binary = folder / "binary"
    binary.write_bytes(body)
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors)  # and whatever this process starts
    ours = Onnxd(arguments.onnxd, model)
    added = {"REST, binary tensors": [], "gRPC": [], "nothing but sockets": []}
    for _ in range(arguments.rounds):
        run = lone_run(arguments, model)
        lone = rest(arguments, ours, binary, 1, "/v2/models/tiny/infer", f"Inference-Header-Content-Length: {head}")
        added["REST, binary tensors"].append(lone["p50_ms"] - run)
        added["gRPC"].append(lone_call(ours, message, folder / "log") - run)
        floor = subprocess.run([arguments.ping_pong], check=True, capture_output=True, text=True)
        added["nothing but sockets"].append(float(floor.stdout) / 1e3)
    ours.process.terminate()
    os.sched_setaffinity(0, before)
    print(f"\nOne connection on {len(processors)} processors, us more than `onnxd bench`: " + "; ".join(
        f"{name} {1e3 * statistics.median(times):.0f} ({1e3 * min(times):.0f} to {1e3 * max(times):.0f})"
        for name, times in added.items()))


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--ping-pong", default=str(ROOT / "build/release/bench/server/ping_pong"))
    parser.add_argument("--echo", default=str(ROOT / "build/release/bench/server/echo"))
    parser.add_argument("--mlserver")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, body, message = (pathlib.Path(folder) / name for name in ("tiny.onnx", "body", "message"))
        make_model(model)
        body.write_text(json.dumps({"input": [ROW]}))
        grpc_body(message)
        ours = Onnxd(arguments.onnxd, model)
        echo = Echo(arguments.echo)
        servers = [ours, echo, Fastapi(model, 18431, 1), Fastapi(model, 18432, 2)]
        many = {server.name: [] for server in servers}
        lone = {server.name: [] for server in servers}
        with_grpc = [ours, echo]
        if arguments.mlserver:
            with_grpc.append(Mlserver(arguments.mlserver, model, pathlib.Path(folder) / "mlserver"))
        calls = {server.name: [] for server in with_grpc}
        for _ in range(arguments.rounds):
            for server in servers:
                many[server.name].append(rest(arguments, server, body, 64))
                lone[server.name].append(rest(arguments, server, body, 1))
            for server in with_grpc:
                calls[server.name].append(grpc(arguments, server, message))
        for server in {*servers, *with_grpc}:
            server.process.terminate()
        for processors in (os.sched_getaffinity(0), {min(os.sched_getaffinity(0))}):
            print_added(arguments, model, message, pathlib.Path(folder), processors)
    print("| REST /predict | requests/s, 64 connections | p99 ms | one connection: median ms | onnxd is faster by |")
    print("| --- | --- | --- | --- | --- |")
    for server in servers:
        ratios = [a["per_second"] / b["per_second"] for a, b in zip(many[ours.name], many[server.name])]
        middle = lambda results, key: statistics.median(result[key] for result in results)
        print(f"| {server.name} | {middle(many[server.name], 'per_second'):.0f} | {middle(many[server.name], 'p99_ms'):.1f} | "
              f"{middle(lone[server.name], 'p50_ms'):.3f} | {statistics.median(ratios):.1f} |")
    share = statistics.median(a / b for a, b in zip(calls[ours.name], calls[echo.name]))
    print(f"\ngRPC ModelInfer, 64 calls in flight: {statistics.median(calls[ours.name]):.0f} a second; the echo "
          f"{statistics.median(calls[echo.name]):.0f}, of which that is {share:.2f}")
    if arguments.mlserver:
        times = statistics.median(a / b for a, b in zip(calls[ours.name], calls[Mlserver.name]))
        print(f"MLServer: {statistics.median(calls[Mlserver.name]):.0f} a second; onnxd is {times:.0f} times as fast")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What batching brings: onnxd with batching.mode auto and off, 64 closed-loop clients, in turns.

For a wide multilayer perceptron (512-2048-2048-10) and a 128-token encoder (6 layers of 384, from make_models.py's
`minilm` where --encoder names it): requests per second and p99 of both, medians over the rounds, and their ratios.

Needs onnx and numpy. Usage: batching.py [--rounds N] [--encoder MODEL.onnx]
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make_perceptron(path):
    random = numpy.random.default_rng(1)
    sizes, nodes, weights, name = [512, 2048, 2048, 10], [], [], "x"
    for i in range(3):
        weight = (random.standard_normal((sizes[i], sizes[i + 1])) / sizes[i] ** 0.5).astype(numpy.float32)
        weights += [numpy_helper.from_array(weight, f"w{i}"),
                    numpy_helper.from_array(numpy.zeros(sizes[i + 1], numpy.float32), f"b{i}")]
        nodes.append(helper.make_node("Gemm", [name, f"w{i}", f"b{i}"], [f"h{i}"]))
        name = f"h{i}"
        if i < 2:
            nodes.append(helper.make_node("Relu", [name], [f"r{i}"]))
            name = f"r{i}"
    graph = helper.make_graph(nodes, "perceptron",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 512])],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 10])], weights)
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def request_of(inputs, **parameters):
    """Header and body of an Open Inference request with binary tensors."""
    listed, data = [], b""
    for name, array in inputs.items():
        kind = {"float32": "FP32", "int64": "INT64"}[array.dtype.name]
        listed.append({"name": name, "datatype": kind, "shape": list(array.shape),
                       "parameters": {"binary_data_size": array.nbytes}})
        data += array.tobytes()
    head = json.dumps({"inputs": listed, "parameters": {"binary_data_output": True, **parameters}}).encode()
    return len(head), head + data


class Daemon:
    """onnxd with one model in a repository of its own."""

    def __init__(self, onnxd, repository, mode, *options):
        self.process = subprocess.Popen(
            [onnxd, "serve", str(repository), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "ONNXD_BATCHING_MODE": mode, "ONNXD_LIMITS_DRAIN_DELAY_S": "0"})
        self.port = int(re.findall(r":(\d+)", self.process.stdout.readline())[0])
        self.process.stdout.readline()
        for line in self.process.stderr:  # the trial has ended
            if "max_batch_size 1" in line or "may share runs" in line:
                break

    def close(self):
        self.process.terminate()
        self.process.communicate()


def load(binary, port, model, request, *options):
    head, body = request
    with tempfile.NamedTemporaryFile() as file:
        file.write(body)
        file.flush()
        done = subprocess.run(
            [binary, "--port", str(port), "--target", f"/v2/models/{model}/infer", "--body", file.name,
             "--header", f"Inference-Header-Content-Length: {head}", *map(str, options)],
            check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def parser_of(description):
    """For arguments, of which the programs it runs are two."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnxd", default=str(ROOT / "build/release/tools/onnxd"))
    parser.add_argument("--load", default=str(ROOT / "build/release/bench/server/load"))
    return parser


def race(arguments, name, path, request, rounds):
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / name / "1" / "model.onnx"
        target.parent.mkdir(parents=True)
        target.symlink_to(path.resolve())
        daemons = {mode: Daemon(arguments.onnxd, folder, mode) for mode in ("off", "auto")}
        results = {mode: [] for mode in daemons}
        for _ in range(rounds):
            for mode, daemon in daemons.items():
                results[mode].append(load(arguments.load, daemon.port, name, request, "--clients", 64, "--seconds",
                                          arguments.seconds)["200"])
        for daemon in daemons.values():
            daemon.close()
    cells = [name]
    for key in ("per_second", "p99_ms"):
        off, auto = ([round_[key] for round_ in results[mode]] for mode in ("off", "auto"))
        ratio = statistics.median(b / a for a, b in zip(off, auto))
        cells += [f"{statistics.median(off):.1f}", f"{statistics.median(auto):.1f}", f"{ratio:.2f}"]
    print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--encoder", type=pathlib.Path)
    arguments = parser.parse_args()
    print("| model | requests/s off | auto | ratio | p99 ms off | auto | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "made" / "model.onnx"
        make_perceptron(path)
        row = numpy.random.default_rng(2).standard_normal((1, 512)).astype(numpy.float32)
        race(arguments, "perceptron", path, request_of({"x": row}), arguments.rounds)
    if arguments.encoder:
        ids = numpy.ones((1, 128), numpy.int64)
        race(arguments, "encoder", arguments.encoder, request_of({"input_ids": ids, "attention_mask": ids}),
             arguments.rounds)


if __name__ == "__main__":
    main()

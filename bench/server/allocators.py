#!/usr/bin/env python3
"""The C library's allocator, jemalloc and mimalloc under the same daemon.

For each, in turns: answers per second of a model whose requests are images of 600 KB (64 clients), resident memory
after that, and after ten loads and unloads of a model with 100 MB of weights.

Needs onnx, numpy and the libraries (Debian: libjemalloc2, libmimalloc2.0). Usage: allocators.py [--rounds N]
"""

import argparse
import ctypes.util
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time
import urllib.request

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from batching import ROOT, load, request_of
from soak import rss


def save(folder, name, nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, inputs)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs)], initializers)
    path = pathlib.Path(folder) / name / "1"
    path.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path / "model.onnx")


def save_models(folder):
    save(folder, "image", [helper.make_node("ReduceMean", ["x"], ["y"], axes=[2, 3], keepdims=0)],
         ["batch", 3, 224, 224], ["batch", 3])
    weights = numpy.random.default_rng(1).standard_normal((5000, 5000)).astype(numpy.float32)
    save(folder, "weights", [helper.make_node("MatMul", ["x", "w"], ["y"])], ["batch", 5000], ["batch", 5000],
         [numpy_helper.from_array(weights, "w")])


def measure(onnxd, loader, folder, library):
    environment = {**os.environ, "ONNXD_MODELS_CONTROL_MODE": "explicit"}
    if library:
        environment["LD_PRELOAD"] = library
    daemon = subprocess.Popen([onnxd, "serve", folder, "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    port = int(re.findall(r":(\d+)", daemon.stdout.readline())[0])
    daemon.stdout.readline()

    def control(verb, model):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/repository/models/{model}/{verb}", b"", timeout=60).close()

    control("load", "image")
    image = {"x": numpy.random.default_rng(1).random((1, 3, 224, 224), numpy.float32)}
    rate = load(loader, port, "image", request_of(image), "--clients", 64, "--seconds", 5)["200"]["per_second"]
    after_images = rss(daemon.pid)
    for _ in range(10):
        control("load", "weights")
        control("unload", "weights")
    time.sleep(2)
    after_unloads = rss(daemon.pid)
    daemon.terminate()
    daemon.wait()
    return rate, after_images, after_unloads


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnxd", default=str(ROOT / "build/release/tools/onnxd"))
    parser.add_argument("--load", default=str(ROOT / "build/release/bench/server/load"))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    libraries = {"C library": "", "jemalloc": ctypes.util.find_library("jemalloc"),
                 "mimalloc": ctypes.util.find_library("mimalloc")}
    results = {name: [] for name, library in libraries.items() if library is not None}
    with tempfile.TemporaryDirectory() as folder:
        save_models(folder)
        for _ in range(arguments.rounds):
            for name in results:
                results[name].append(measure(arguments.onnxd, arguments.load, folder, libraries[name]))
    print("| allocator | images/s | resident after them, MB | after ten loads and unloads of 100 MB |")
    print("| --- | --- | --- | --- |")
    for name, rounds in results.items():
        print(f"| {name} | " + " | ".join(f"{statistics.median(column):.0f}" for column in zip(*rounds)) + " |")


if __name__ == "__main__":
    main()

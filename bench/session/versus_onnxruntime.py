#!/usr/bin/env python3
"""Times onnxd beside onnxruntime on the same models, threads and inputs' shapes, in turns.

Each round runs one process of either engine; medians over all rounds go into a Markdown table.
Needs onnxruntime and numpy. Usage: versus_onnxruntime.py [--onnxd BINARY] [--threads N] MODEL.onnx...
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

PEER = r"""
import json, sys, time
import numpy, onnxruntime
path, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
options.inter_op_num_threads = 1
options.log_severity_level = 4
session = onnxruntime.InferenceSession(path, options)
random = numpy.random.default_rng(0)
feeds = {}
for value in session.get_inputs():
    shape = [d if isinstance(d, int) else 1 for d in value.shape]
    if "float" in value.type:
        feeds[value.name] = (random.random(shape) * 2 - 1).astype(numpy.float32)
    else:
        kind = {"tensor(int64)": "int64", "tensor(int32)": "int32"}[value.type]
        feeds[value.name] = random.integers(0, 2, shape).astype(kind)
for _ in range(3):
    session.run(None, feeds)
times, end = [], time.monotonic() + seconds
while time.monotonic() < end or len(times) < 5:
    begin = time.perf_counter()
    session.run(None, feeds)
    times.append((time.perf_counter() - begin) * 1000)
print(json.dumps(sorted(times)[len(times) // 2]))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--onnxd", default=str(pathlib.Path(__file__).parents[2] / "build/release/tools/onnxd"))
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    print("| model | onnxruntime | onnxd | ratio |\n| --- | --- | --- | --- |")
    for model in arguments.models:
        ours, theirs = [], []
        for _ in range(arguments.rounds):
            peer = subprocess.run([sys.executable, "-c", PEER, model, arguments.threads, str(arguments.seconds)],
                                  check=True, capture_output=True, text=True)
            theirs.append(json.loads(peer.stdout))
            iterations = max(5, min(20000, int(arguments.seconds * 1000 / theirs[-1])))
            bench = subprocess.run([arguments.onnxd, "bench", model, "--threads", arguments.threads,
                                    "--iterations", str(iterations), "--json"],
                                   check=True, capture_output=True, text=True)
            ours.append(json.loads(bench.stdout)["latency_ms"]["median"])
        a, b = statistics.median(theirs), statistics.median(ours)
        path = pathlib.Path(model)
        name = path.stem if path.stem != "model" else path.parts[-2] if not path.parts[-2].isdigit() else path.parts[-3]
        print(f"| {name} | {a:.3f} | {b:.3f} | {a / b:.2f} |", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Races the loading of models with onnxruntime: a process of either engine in turns, the file in the page cache.

Load is the time to make a session; then comes the first run, in which kernels plan for their shapes, and ours pack most
weights. "Prepared" is ours with --cache, when a process before had prepared the model. Times are medians, in brackets the
least and the most; ratios are medians of those of neighbouring loads (ours / onnxruntime's; below 1 we are faster).

Needs onnx, onnxruntime and numpy. Usage: load_times.py [--rounds N] [--threads N] MODEL.onnx...
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from versus_onnxruntime import write_inputs

PEER = r"""
import json, sys, time
import numpy, onnxruntime
path, folder, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
feeds = {name: numpy.load(f"{folder}/inputs/{i}.npy") for i, name in enumerate(json.load(open(f"{folder}/names.json")))}
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
options.inter_op_num_threads = 1
options.log_severity_level = 4
begin = time.perf_counter()
session = onnxruntime.InferenceSession(path, options)
load = time.perf_counter()
session.run(None, feeds)
print((load - begin) * 1000, (time.perf_counter() - load) * 1000)
"""


def peer_load(path, folder, threads):
    command = [sys.executable, "-c", PEER, str(path), str(folder), str(threads)]
    return [float(text) for text in subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()]


def own_load(binary, path, folder, threads, *more):
    command = [binary, "bench", str(path), "--json", "--iterations", "1", "--threads", str(threads)]
    command += ["--inputs", str(folder / "inputs"), *more]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    return [report["load_ms"], report["first_run_ms"]]


def spread(values):
    return f"{statistics.median(values):.0f} ({min(values):.0f} to {max(values):.0f})"


def race(options, path):
    loads = {"peer": [], "own": [], "prepared": []}
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as cache:
        folder = pathlib.Path(name)
        (folder / "inputs").mkdir()
        sizes = ((name, int(size)) for name, size in (text.split("=") for text in options.dim))
        write_inputs(path, folder, 1, dict(sizes))
        own_load(options.onnxd, path, folder, options.threads, "--cache", cache)
        for _ in range(options.rounds):
            loads["peer"].append(peer_load(path, folder, options.threads))
            loads["own"].append(own_load(options.onnxd, path, folder, options.threads))
            loads["prepared"].append(own_load(options.onnxd, path, folder, options.threads, "--cache", cache))
    cells = [pathlib.Path(path).parent.name]
    cells += [spread([load for load, _ in loads[who]]) for who in loads]
    cells += [f"{statistics.median(own[0] / peer[0] for own, peer in zip(loads[who], loads['peer'])):.2f}"
              for who in ("own", "prepared")]
    cells += [f"{statistics.median(first for _, first in loads[who]):.0f}" for who in loads]
    cells.append(f"{statistics.median(sum(own) / sum(peer) for own, peer in zip(loads['own'], loads['peer'])):.2f}")
    return cells


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnxd", default="build/release/tools/onnxd")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dim", action="append", default=[], help="NAME=SIZE of a symbolic dimension")
    parser.add_argument("models", nargs="+")
    options = parser.parse_args()
    print("| model | load ms: onnxruntime | onnxd | prepared | ratio | ratio, prepared | first run ms: theirs | ours |"
          " prepared | ratio of both |")
    print("| --- " * 10 + "|")
    for path in options.models:
        print("| " + " | ".join(race(options, path)) + " |", flush=True)


if __name__ == "__main__":
    main()

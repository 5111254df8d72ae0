#!/usr/bin/env python3
"""What runtime.threads brings clients: onnxd with one thread for each run, and with all that others leave, in turns.

For a wide multilayer perceptron (512-2048-2048-10) and for each model that is named, whose inputs of free size have
one row: requests per second and the median that one, two, four and 16 closed-loop clients see; medians over the
rounds, and the ratio of requests.

Needs onnx and numpy. Usage: threads.py [--rounds N] [--seconds N] [--size NAME=N ...] [MODEL.onnx ...]
"""

import pathlib
import statistics
import tempfile

import numpy
import onnx

from batching import Daemon, load, make_perceptron, parser_of, request_of

TYPES = {onnx.TensorProto.FLOAT: numpy.float32, onnx.TensorProto.INT64: numpy.int64}


def inputs_of(path, sizes):
    """Small numbers of one row; other free dimensions as `sizes` has them."""
    graph, random, inputs = onnx.load(path, load_external_data=False).graph, numpy.random.default_rng(3), {}
    constants = {constant.name for constant in graph.initializer}
    for value in graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        shape = [dim.dim_value or sizes.get(dim.dim_param, 1) for dim in kind.shape.dim]
        inputs[value.name] = random.integers(0, 2, shape).astype(TYPES[kind.elem_type])
    return inputs


class Server:
    def __init__(self, arguments, threads, name, path):
        self.folder = tempfile.TemporaryDirectory()
        target = pathlib.Path(self.folder.name) / name / "1" / "model.onnx"
        target.parent.mkdir(parents=True)
        target.symlink_to(path.resolve())
        self.daemon = Daemon(arguments.onnxd, self.folder.name, "off", "--threads", str(threads))

    def close(self):
        self.daemon.close()
        self.folder.cleanup()


def race(arguments, name, path):
    request = request_of(inputs_of(path, arguments.sizes))
    servers = [Server(arguments, threads, name, path) for threads in (1, 0)]
    for clients in (1, 2, 4, 16):
        results = [[], []]
        for _ in range(arguments.rounds):
            for server, result in zip(servers, results):
                done = load(arguments.load, server.daemon.port, name, request, "--clients", clients, "--seconds",
                            arguments.seconds)["200"]
                result.append((done["per_second"], done["p50_ms"]))
        ratio = statistics.median(new[0] / old[0] for old, new in zip(*results))
        cells = [f"{statistics.median(one[i] for one in result):.{1 + i}f}" for i in (0, 1) for result in results]
        print(f"| {name} | {clients} | " + " | ".join(cells) + f" | {ratio:.2f} |", flush=True)
    for server in servers:
        server.close()


def main():
    parser = parser_of(__doc__)
    parser.add_argument("models", nargs="*", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--size", action="append", default=[])
    arguments = parser.parse_args()
    arguments.sizes = {name: int(size) for name, size in (one.split("=") for one in arguments.size)}
    print("| model | clients | requests/s with 1 | with all | median ms with 1 | with all | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "made" / "model.onnx"
        make_perceptron(path)
        race(arguments, "perceptron", path)
    for path in arguments.models:
        race(arguments, path.parent.name, path)


if __name__ == "__main__":
    main()

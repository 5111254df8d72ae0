#!/usr/bin/env python3
"""A model at three times its capacity, or more: what is answered, what is refused, and how soon.

Capacity is what closed-loop clients get; a lone request's median time is what one client gets. Then requests arrive
at --times the capacity, each with a timeout of four times the lone request's time. Printed: answers in time per
second as a part of the capacity, which is measured once more after them (goal: 0.9), how long answers took, and how
long refusals took.

Needs onnx and numpy. Usage: overload.py [--rounds N] [--times N] MODEL.onnx   (one float input, the first dimension free)
"""

import pathlib
import statistics
import tempfile

import numpy
import onnx

from batching import Daemon, load, parser_of, request_of


def input_shapes(path):
    graph = onnx.load(path, load_external_data=False).graph
    constants = {initializer.name for initializer in graph.initializer}
    return [(value.name, [dimension.dim_value for dimension in value.type.tensor_type.shape.dim])
            for value in graph.input if value.name not in constants]


def main():
    parser = parser_of(__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--times", type=float, default=3, help="of the capacity")
    arguments = parser.parse_args()
    (name, shape), = input_shapes(arguments.model)
    row = {name: numpy.random.default_rng(1).random((1, *shape[1:]), numpy.float32)}
    print("| lone ms | capacity/s | deadline ms | in time/s | of capacity | p99 ms | longest ms | refused/s | p50 ms | p99 ms |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / "model" / "1" / "model.onnx"
        target.parent.mkdir(parents=True)
        target.symlink_to(arguments.model.resolve())
        daemon = Daemon(arguments.onnxd, folder, "auto")
        goodputs = []
        for _ in range(arguments.rounds):
            seconds = ("--seconds", arguments.seconds)
            send = lambda request, *options: load(arguments.load, daemon.port, "model", request, *seconds, *options)
            lone = send(request_of(row), "--clients", 1)["200"]["p50_ms"]
            find_capacity = lambda: send(request_of(row), "--clients", 8)["200"]["per_second"]
            before = find_capacity()
            timeout = int(4 * lone * 1000)
            result = send(request_of(row, timeout=timeout), "--clients", 256, "--rate", arguments.times * before)
            capacity = (before + find_capacity()) / 2
            good, refused = result["200"], result["503"]
            goodputs.append(good["per_second"] / capacity)
            print("| " + " | ".join([
                f"{lone:.1f}", f"{capacity:.1f}", f"{timeout / 1000:.0f}", f"{good['per_second']:.1f}",
                f"{goodputs[-1]:.2f}", f"{good['p99_ms']:.1f}", f"{good['max_ms']:.1f}",
                f"{refused['per_second']:.1f}", f"{refused['p50_ms']:.2f}", f"{refused['p99_ms']:.2f}"]) + " |",
                " ".join(f"{code}: {entry['per_second']:.1f}/s" for code, entry in result.items()
                         if code.isdigit()), f"unsent {result['unsent']}", flush=True)
        daemon.close()
        print(f"\nMedian of the goodput: {statistics.median(goodputs):.2f} of the capacity")


if __name__ == "__main__":
    main()

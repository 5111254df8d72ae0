#!/usr/bin/env python3
"""What an ensemble costs beside its members: the server's time for a request through three models, by what their runs
take, and by what the same requests take that a client sends to one member after another.

Perceptrons of 512-2048-2048-512, in a chain, asked by one client; requests through the ensemble and to its members in
turn, rounds of each. Times are the server's own (onnxd_request_duration_seconds, onnxd_compute_duration_seconds).

Needs numpy and onnx. Usage: ensemble.py [--rounds N] [--requests N]
"""

import http.client
import pathlib
import re
import statistics
import tempfile
import urllib.request

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

from batching import Daemon, parser_of, request_of

STEPS = 3


def make_member(path, width, seed):
    random = numpy.random.default_rng(seed)
    sizes, nodes, weights, name = [512, width, width, 512], [], [], "x"
    for i in range(3):
        weight = (random.standard_normal((sizes[i], sizes[i + 1])) / sizes[i] ** 0.5).astype(numpy.float32)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes += [helper.make_node("MatMul", [name, f"w{i}"], [f"h{i}"]), helper.make_node("Tanh", [f"h{i}"], [f"t{i}"])]
        name = f"t{i}"
    graph = helper.make_graph(nodes, "member", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 512])],
                              [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 512])], weights)
    path.parent.mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def seconds(port):
    """By metric and model, summed over all else."""
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    sums = {}
    for metric, labels, value in re.findall(r"^onnxd_(request|compute)_duration_seconds_sum{(.*)} (\S+)$", text, re.M):
        model = re.search(r'model="([^"]*)"', labels)[1]
        sums[metric, model] = sums.get((metric, model), 0) + float(value)
    return sums


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--width", type=int, default=2048)
    arguments = parser.parse_args()
    members = [f"m{i}" for i in range(STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        repository = pathlib.Path(folder)
        lines = ["ensemble:", "  steps:"]
        for i, member in enumerate(members):
            make_member(repository / member / "1" / "model.onnx", arguments.width, i)
            lines.append(f"  - {{model: {member}, inputs: {{x: t{i}}}, outputs: {{t2: t{i + 1}}}}}")
        (repository / "chain").mkdir()
        (repository / "chain" / "model.yaml").write_text("\n".join(lines) + "\n")
        daemon = Daemon(arguments.onnxd, repository, "off")
        client = http.client.HTTPConnection("127.0.0.1", daemon.port)

        def ask(model, name, array):
            head, body = request_of({name: array})
            client.request("POST", f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": str(head)})
            answer = client.getresponse()
            content = answer.read()
            assert answer.status == 200, content
            return numpy.frombuffer(content[int(answer.headers["Inference-Header-Content-Length"]):], numpy.float32).reshape(1, 512)

        row = numpy.random.default_rng(9).standard_normal((1, 512)).astype(numpy.float32)

        def in_turn():
            value = row
            for member in members:
                value = ask(member, "x", value)
            return value

        whole = lambda: ask("chain", "t0", row)
        assert numpy.array_equal(in_turn(), whole())
        rounds = []
        for _ in range(arguments.rounds):
            before = seconds(daemon.port)
            for _ in range(arguments.requests):
                whole()
            between = seconds(daemon.port)
            for _ in range(arguments.requests):
                in_turn()
            after = seconds(daemon.port)
            spent = lambda a, b, metric, models: sum(b[metric, model] - a.get((metric, model), 0) for model in models)
            chain = spent(before, between, "request", ["chain"])
            rounds.append((chain, spent(before, between, "compute", members), spent(between, after, "request", members)))
        daemon.close()
    print("equal to its members called in turn, bit by bit")
    print("| ensemble, ms | its members' runs, ms | ratio | members called in turn, ms | ratio |")
    print("| --- | --- | --- | --- | --- |")
    chain, runs, turns = ([r[i] / arguments.requests * 1e3 for r in rounds] for i in range(3))
    ratio = lambda others: statistics.median(a / b for a, b in zip(chain, others))
    print(f"| {statistics.median(chain):.3f} | {statistics.median(runs):.3f} | {ratio(runs):.3f} | "
          f"{statistics.median(turns):.3f} | {ratio(turns):.3f} |")


if __name__ == "__main__":
    main()

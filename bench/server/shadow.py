#!/usr/bin/env python3
"""What a shadow version costs those who are answered: p99 with copies of all requests and with none, in turns.

A perceptron (512-2048-2048-10) whose next version, the same weights, gets a copy of each request. Requests arrive at
parts of the capacity that closed-loop clients get, and from 64 such clients; the ratio is that of paired rounds.

Needs onnx and numpy. Usage: shadow.py [--rounds N]
"""

import pathlib
import re
import shutil
import statistics
import tempfile
import urllib.request

import numpy

from batching import Daemon, load, make_perceptron, parser_of, request_of

PARTS = (0.3, 0.6, None)  # of the capacity; None: 64 closed-loop clients
SETTINGS = "versions: 1\n"


def outcomes(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return dict(re.findall(r'^onnxd_shadow_requests_total{.*outcome="(\w+)".*} (\d+)', text, re.M))


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        daemons = {}
        for name in ("alone", "shadowed"):
            repository = pathlib.Path(folder) / name
            make_perceptron(repository / "m" / "1" / "model.onnx")
            shutil.copytree(repository / "m" / "1", repository / "m" / "2")
            shadow = "shadow:\n  version: 2\n" if name == "shadowed" else "labels:\n  next: 2\n"
            (repository / "m" / "model.yaml").write_text(SETTINGS + shadow)
            daemons[name] = Daemon(arguments.onnxd, repository, "auto")
        row = numpy.random.default_rng(2).standard_normal((1, 512)).astype(numpy.float32)
        send = lambda name, *options: load(arguments.load, daemons[name].port, "m", request_of({"x": row}), "--clients", 64,
                                           "--seconds", arguments.seconds, *options)["200"]
        capacity = send("alone")["per_second"]
        print(f"capacity {capacity:.0f} requests/s")
        print("| of the capacity | p99 ms alone | with copies | ratio | p50 ms alone | with copies | ratio |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for part in PARTS:
            options = () if part is None else ("--rate", part * capacity)
            rounds = []
            for i in range(arguments.rounds):
                turn = list(daemons) if i % 2 == 0 else list(daemons)[::-1]
                answered = {name: send(name, *options) for name in turn}
                rounds.append((answered["alone"], answered["shadowed"]))
            cells = ["all of it" if part is None else f"{part:.0%}"]
            for key in ("p99_ms", "p50_ms"):
                alone, shadowed = ([pair[i][key] for pair in rounds] for i in (0, 1))
                ratio = statistics.median(b / a for a, b in zip(alone, shadowed))
                cells += [f"{statistics.median(alone):.2f}", f"{statistics.median(shadowed):.2f}", f"{ratio:.3f}"]
            print("| " + " | ".join(cells) + " |", flush=True)
        print("copies:", ", ".join(f"{count} {outcome}" for outcome, count in outcomes(daemons["shadowed"].port).items()))
        for daemon in daemons.values():
            daemon.close()


if __name__ == "__main__":
    main()

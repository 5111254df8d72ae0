#!/usr/bin/env python3
"""What a model of about 1 ms suffers from one of about 1 s, and from 62 others, in the same daemon.

Open loop: requests for the quick model (a wide perceptron) come at a fixed rate, in turns while nothing else happens
and while clients keep asking for the slow one; and, for what the machine itself takes, while one client keeps another
daemon busy with the slow one. A request of the slow one has a megabyte, as an image does; with --products 60 it has 13,
and what its clients and sockets take of the same processors is measured as well. Then clients ask for all 64 models at
random; the daemon's threads are counted at the start and meanwhile.

Needs onnx and numpy. Usage: neighbours.py [--rounds N] [--seconds N] [--rate N] [--clients N] [--products N]
"""

import http.client
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

import numpy
import onnx

from batching import Daemon, ROOT, load, make_perceptron, request_of, parser_of
from probes import post, slow_request

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import daemon as e2e  # noqa: E402: its slow model
from repositories import factor_model  # noqa: E402


def threads_of(pid):
    return len(list(pathlib.Path(f"/proc/{pid}/task").iterdir()))


class Clients:
    """Threads that do something again and again while the block lasts."""

    def __init__(self, count, work):
        self.ended = False
        self.threads = [threading.Thread(target=self.run, args=(work,)) for _ in range(count)]

    def run(self, work):
        while not self.ended:
            work()

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.ended = True
        for thread in self.threads:
            thread.join()


def ask_factor(port, model):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", f"/predict/{model}", b'{"input": [[1, 1, 1, 1]]}')
    assert connection.getresponse().status == 200
    connection.close()


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--products", type=int, default=300, help="Matrix products in a row in the slow model")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        make_perceptron(root / "quick" / "1" / "model.onnx")
        slow = e2e.slow_model(700, arguments.products)
        for name, model in [("slow", slow), *((f"m{i}", factor_model(i)) for i in range(62))]:
            (root / name / "1").mkdir(parents=True)
            onnx.save(model, root / name / "1" / "model.onnx")
        served = Daemon(arguments.onnxd, folder, "auto")
        request, took = slow_request(served.port, 0.9)
        quick = request_of({"x": numpy.random.default_rng(1).random((1, 512), numpy.float32)})

        def measure():
            return load(arguments.load, served.port, "quick", quick, "--rate", arguments.rate, "--seconds",
                        arguments.seconds)["200"]

        other = Daemon(arguments.onnxd, folder, "auto")
        alone, beside, apart = [], [], []
        for _ in range(arguments.rounds):
            alone.append(measure())
            with Clients(arguments.clients, lambda: post(served.port, request)):
                beside.append(measure())
            with Clients(1, lambda: post(other.port, request)):
                apart.append(measure())
        other.close()
        print(f"slow: {took * 1e3:.0f} ms and {len(request[1]) / 1e6:.1f} MB a request, {arguments.clients} clients; "
              f"quick: {arguments.rate:.0f} requests/s")
        for key in ("p50_ms", "p99_ms"):
            a, b, c = ([round_[key] for round_ in results] for results in (alone, beside, apart))
            print(f"{key}: {statistics.median(a):.2f} alone; {statistics.median(b):.2f} beside, ratio "
                  f"{statistics.median(y / x for x, y in zip(a, b)):.2f}; {statistics.median(c):.2f} beside another "
                  f"daemon, ratio {statistics.median(y / x for x, y in zip(a, c)):.2f}")
        before, most = threads_of(served.process.pid), 0
        names = [f"m{i}" for i in range(62)]
        with Clients(8, lambda: ask_factor(served.port, random.choice(names))), \
                Clients(2, lambda: post(served.port, quick, "quick")), Clients(2, lambda: post(served.port, request)):
            end = time.monotonic() + arguments.seconds
            while time.monotonic() < end:
                most = max(most, threads_of(served.process.pid))
                time.sleep(0.05)
        print(f"threads with 64 models: {before} before, at most {most} while 12 clients ask for all of them at random")
        served.close()


if __name__ == "__main__":
    main()

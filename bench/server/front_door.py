#!/usr/bin/env python3
"""What the listener costs and stands: the time from its start until it is ready, its memory when idle, and 64 clients
beside 1,000 idle connections.

Needs the Python packages of tests/e2e. Usage: front_door.py [--rounds N] [--seconds N]
"""

import json
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from batching import ROOT, parser_of

BODY = b'{"input": [[5.1, 3.5, 1.4, 0.2]]}'


class Served:
    """onnxd with the models of this repository."""

    def __init__(self, onnxd):
        begin = time.monotonic()
        self.process = subprocess.Popen(
            [onnxd, "serve", str(ROOT / "models"), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.http, self.grpc, _ = map(int, re.findall(r":(\d+)", self.process.stdout.readline()))
        assert self.process.stdout.readline().startswith("ready")
        self.start_ms = (time.monotonic() - begin) * 1e3

    def megabytes(self):
        return int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096 / 1e6

    def close(self):
        self.process.kill()
        self.process.communicate()


def start(arguments):
    times, sizes = [], []
    for _ in range(10):
        served = Served(arguments.onnxd)
        times.append(served.start_ms)
        time.sleep(1)
        sizes.append(served.megabytes())
        served.close()
    print(f"start to ready: median {statistics.median(times):.0f} ms, longest {max(times):.0f} (goal 150); "
          f"idle: {max(sizes):.1f} MB resident (goal 60)")


def idle(arguments):
    served = Served(arguments.onnxd)
    with tempfile.NamedTemporaryFile() as body:
        body.write(BODY)
        body.flush()

        def active():
            done = subprocess.run(
                [arguments.load, "--port", str(served.http), "--target", "/predict/iris_forest", "--body", body.name,
                 "--clients", "64", "--seconds", str(arguments.seconds)], check=True, capture_output=True, text=True)
            return json.loads(done.stdout)["200"]

        alone, beside = [], []
        for _ in range(arguments.rounds):
            alone.append(active())
            connections = [socket.create_connection(("127.0.0.1", served.http)) for _ in range(1000)]
            for connection in connections:
                connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: h\r\n\r\n")
                assert b"200" in connection.recv(4096)
            beside.append(active())
            for connection in connections:
                connection.close()
    served.close()
    for name, unit in (("per_second", "requests/s"), ("p99_ms", "ms at p99")):
        a, b = (statistics.median(one[name] for one in rounds) for rounds in (alone, beside))
        print(f"64 clients: {a:.1f} {unit}, beside 1,000 idle connections {b:.1f}: ratio {b / a:.2f}")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    arguments = parser.parse_args()
    start(arguments)
    idle(arguments)


if __name__ == "__main__":
    main()

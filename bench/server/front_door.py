#!/usr/bin/env python3
"""What the listener costs and stands: the time from its start until it is ready, its memory when idle, 64 clients beside
1,000 idle connections, and clients that open and reset gRPC calls as fast as they can.

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
import threading
import time

import grpc

from batching import ROOT, parser_of

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import protos  # noqa: E402
from test_grpc import HEADERS, PREFACE, frame  # noqa: E402

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


def resets(arguments, count):
    """What an honest caller meets, and how the memory grows."""
    served = Served(arguments.onnxd)
    end = time.monotonic() + arguments.reset_seconds
    chunks = [b"".join(frame(1, 4, stream, HEADERS) + frame(3, 0, stream, b"\0\0\0\x08")
                       for stream in range(start, start + 400, 2)) for start in range(1, 60001, 400)]
    sent = [0] * count

    def attack(i):
        while time.monotonic() < end:
            try:
                with socket.create_connection(("127.0.0.1", served.grpc), timeout=5) as client:
                    client.sendall(PREFACE)
                    client.setblocking(True)
                    client.settimeout(5)
                    reader = threading.Thread(target=drain, args=(client,), daemon=True)
                    reader.start()
                    for chunk in chunks:
                        if time.monotonic() > end:
                            break
                        client.sendall(chunk)
                        sent[i] += 200
            except OSError:
                pass  # closed: it comes again

    def drain(client):
        try:
            while client.recv(65536):
                pass
        except OSError:
            pass

    channel = grpc.insecure_channel(f"127.0.0.1:{served.grpc}")
    live = protos.unary(channel, "inference.GRPCInferenceService", "ServerLive")
    request = protos.message("inference.ServerLiveRequest")()
    live(request, timeout=5)
    before, largest, times = served.megabytes(), 0, []
    attackers = [threading.Thread(target=attack, args=(i,)) for i in range(count)]
    for attacker in attackers:
        attacker.start()
    while time.monotonic() < end:
        begin = time.monotonic()
        live(request, timeout=20)
        times.append((time.monotonic() - begin) * 1e3)
        largest = max(largest, served.megabytes())
        time.sleep(0.05)
    for attacker in attackers:
        attacker.join()
    channel.close()
    served.close()
    times.sort()
    print(f"{sum(sent)} resets from {count} connections in {arguments.reset_seconds:.0f} s: {before:.1f} MB before, at most "
          f"{largest:.1f} (goal: 20 more); an honest call: median {times[len(times) // 2]:.1f} ms, "
          f"p99 {times[len(times) * 99 // 100]:.1f}, longest {times[-1]:.1f} (goal 10)")


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--reset-seconds", type=float, default=60)
    arguments = parser.parse_args()
    start(arguments)
    idle(arguments)
    for count in (1, 100):
        resets(arguments, count)


if __name__ == "__main__":
    main()

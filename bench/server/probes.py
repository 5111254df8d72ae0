#!/usr/bin/env python3
"""How long /health/live takes while two requests of some 250 ms are in flight (goal: below 20 ms), or, with --bodies,
while two clients send JSON of 60 MB; then each probe has a connection of its own.

Needs onnx and numpy. Usage: probes.py [--seconds N] [--bodies]
"""

import argparse
import http.client
import pathlib
import sys
import tempfile
import threading
import time

import numpy
import onnx

from batching import Daemon, ROOT, request_of

sys.path.insert(0, str(ROOT / "tests" / "e2e"))
import daemon as e2e  # noqa: E402: its slow model


def post(port, request, model="slow"):
    head, body = request
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": str(head)})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def probes(port, seconds, busy, new_connections):
    """Times of probes in ms, sorted, while two threads call busy() again and again."""
    end = time.monotonic() + seconds

    def client():
        while time.monotonic() < end:
            busy()

    clients = [threading.Thread(target=client) for _ in range(2)]
    for thread in clients:
        thread.start()
    times, connection = [], None
    while time.monotonic() < end:
        begin = time.monotonic()
        connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/health/live")
        connection.getresponse().read()
        times.append((time.monotonic() - begin) * 1e3)
        if new_connections:
            connection.close()
            connection = None
        time.sleep(0.005)
    for thread in clients:
        thread.join()
    return sorted(times)


def slow_request(port, seconds=0.25):
    """A request that takes at least so long, and what it took."""
    rows = 100
    while True:
        request = request_of({"x": numpy.zeros((rows, 700), numpy.float32)})
        begin = time.monotonic()
        assert post(port, request) == 200
        took = time.monotonic() - begin
        if took > seconds:
            return request, took
        rows = int(rows * min(4, max(1.1, 1.1 * seconds / took)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnxd", default=str(ROOT / "build/release/tools/onnxd"))
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--bodies", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "slow" / "1"
        path.mkdir(parents=True)
        onnx.save(e2e.slow_model(), path / "model.onnx")
        served = Daemon(arguments.onnxd, folder, "off")
        if arguments.bodies:
            body = b'{"input":[[' + b",".join([b"1.25"] * 12_000_000) + b"]]}"  # of too many columns

            def send():
                connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
                connection.request("POST", "/predict", body)
                assert connection.getresponse().status == 400
                connection.close()

            times, what = probes(served.port, arguments.seconds, send, True), f"bodies of {len(body)} bytes"
        else:
            request, took = slow_request(served.port)
            times = probes(served.port, arguments.seconds, lambda: post(served.port, request), False)
            what = f"lone request {took * 1e3:.0f} ms"
        served.close()
    print(f"{what}; {len(times)} probes: median {times[len(times) // 2]:.2f} ms, "
          f"p99 {times[len(times) * 99 // 100]:.2f} ms, longest {times[-1]:.2f} ms")


if __name__ == "__main__":
    main()

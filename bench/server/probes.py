#!/usr/bin/env python3
"""How long /health/live takes while two requests of some 250 ms are in flight (goal: below 20 ms).

Needs onnx and numpy. Usage: probes.py [--seconds N]
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnxd", default=str(ROOT / "build/release/tools/onnxd"))
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "slow" / "1"
        path.mkdir(parents=True)
        onnx.save(e2e.slow_model(), path / "model.onnx")
        served = Daemon(arguments.onnxd, folder, "off")
        rows = 100
        while True:
            request = request_of({"x": numpy.zeros((rows, 700), numpy.float32)})
            begin = time.monotonic()
            assert post(served.port, request) == 200
            took = time.monotonic() - begin
            if took > 0.25:
                break
            rows = int(rows * min(4, max(1.1, 0.27 / took)))
        end = time.monotonic() + arguments.seconds

        def client():
            while time.monotonic() < end:
                post(served.port, request)

        clients = [threading.Thread(target=client) for _ in range(2)]
        for thread in clients:
            thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        times = []
        while time.monotonic() < end:
            begin = time.monotonic()
            connection.request("GET", "/health/live")
            connection.getresponse().read()
            times.append((time.monotonic() - begin) * 1e3)
            time.sleep(0.005)
        for thread in clients:
            thread.join()
        served.close()
    times.sort()
    print(f"lone request {took * 1e3:.0f} ms; {len(times)} probes: median {times[len(times) // 2]:.2f} ms, "
          f"p99 {times[len(times) * 99 // 100]:.2f} ms, longest {times[-1]:.2f} ms")


if __name__ == "__main__":
    main()

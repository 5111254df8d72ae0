#!/usr/bin/env python3
"""Resident memory over a million mixed requests.

The models of this repository, each called by clients of its own over REST, rows of its own and now and then a request
that is refused. Prints the daemon's resident memory after every ten seconds; the first ones are warm-up.

Usage: soak.py [--requests N]
"""

import json
import pathlib
import re
import subprocess
import tempfile
import urllib.request

from batching import ROOT, parser_of


def rss(pid):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    arguments = parser.parse_args()
    daemon = subprocess.Popen([arguments.onnxd, "serve", str(ROOT / "models"), "--http-port", "0", "--grpc-port", "0",
                               "--metrics-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    port = int(re.findall(r":(\d+)", daemon.stdout.readline())[0])
    daemon.stdout.readline()
    requests = [("iris_forest", [[5.1, 3.5, 1.4, 0.2]]), ("digits_cnn", [[[[0.5] * 8] * 8]]),
                ("digits_rows", [[[0.5] * 8] * 8] * 3), ("iris_forest", [[1.0]]), ("nobody", [[1.0]])]
    done, row = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        while done < arguments.requests:
            loads = []
            for i, (model, rows) in enumerate(requests):
                body = pathlib.Path(folder) / str(i)
                body.write_text(json.dumps({"input": rows}))
                loads.append(subprocess.Popen(
                    [arguments.load, "--port", str(port), "--target", f"/predict/{model}", "--body", str(body),
                     "--clients", "8", "--seconds", "10", "--warmup", "0"], stdout=subprocess.PIPE, text=True))
            counts = {}
            for load in loads:
                for code, entry in json.loads(load.communicate()[0]).items():
                    if code.isdigit():
                        counts[code] = counts.get(code, 0) + entry["count"]
            done += sum(counts.values())
            row += 1
            print(f"{row * 10:4} s  {done:9} requests  {rss(daemon.pid):6.1f} MB  {counts}", flush=True)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as response:
        print(response.read().decode())
    daemon.terminate()


if __name__ == "__main__":
    main()

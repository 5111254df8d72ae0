#!/usr/bin/env python3
"""What serving costs on a GPU: rows per second of onnxd behind HTTP, beside `onnxd bench` of the same model.

A model of bench/gpu/run (by default BERT-base with two scores, half precision) is exported, then, in turns: the engine
alone runs batches of 64 one after the other, with copies of inputs and outputs; and a daemon whose model.yaml batches up
to 64 rows is asked by closed-loop clients, with requests of so many rows each. Medians over the rounds, and their ratio.

Needs what bench/gpu/run needs, and bench/server/load (built with ONNXD_BENCH). Usage:
  bench/gpu/serving.py --onnxd FILE --load FILE [--out FOLDER] [--rounds N]
  bench/gpu/serving.py --onnxd FILE --load FILE --providers cpu --dtype float32 --batch 4 --clients 4   (no GPU: tries the script)
"""

import argparse
import importlib.machinery
import importlib.util
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
DATATYPES = {"float16": "FP16", "float32": "FP32", "int64": "INT64"}


def bench_gpu_run():
    loader = importlib.machinery.SourceFileLoader("bench_gpu_run", str(HERE / "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def request_of(folder, rows):
    """Header's length and body of an Open Inference request with binary tensors, of the first rows of a batch."""
    import numpy
    listed, data = [], b""
    for path in sorted(folder.glob("*.npy")):
        array = numpy.ascontiguousarray(numpy.load(path)[:rows])
        listed.append({"name": path.stem, "datatype": DATATYPES[array.dtype.name], "shape": list(array.shape),
                       "parameters": {"binary_data_size": array.nbytes}})
        data += array.tobytes()
    head = json.dumps({"inputs": listed, "parameters": {"binary_data_output": True}}).encode()
    return len(head), head + data


class Daemon:
    """onnxd with the one model, once that is ready."""

    def __init__(self, arguments, environment, folder):
        model = folder / "models" / arguments.name
        (model / "1").mkdir(parents=True, exist_ok=True)
        (model / "1" / "model.onnx").unlink(missing_ok=True)
        (model / "1" / "model.onnx").symlink_to(folder / arguments.name / "model.onnx")
        (model / "model.yaml").write_text(
            f"providers: [{', '.join(arguments.providers)}]\n"
            f"batching: {{max_batch_size: {arguments.batch}, preferred_batch_size: [{arguments.batch}]}}\n")
        environment = {**environment, "ONNXD_LIMITS_DRAIN_DELAY_S": "0", "ONNXD_RUNTIME_CACHE_DIR": str(folder / "cache")}
        self.log = (folder / "serve.txt").open("w")
        self.process = subprocess.Popen(
            [arguments.onnxd, "serve", str(model.parent), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
            stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment)
        self.port = int(re.findall(r":(\d+)", self.process.stdout.readline())[0])
        for _ in range(1200):  # its sizes of batches are tried in the background
            if "requests may share runs" in (folder / "serve.txt").read_text():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"the model does not batch; see {self.log.name}")

    def close(self):
        self.process.terminate()
        self.process.communicate()


def served(arguments, daemon, request, clients):
    body = arguments.out / "request.bin"
    body.write_bytes(request[1])
    done = subprocess.run(
        [arguments.load, "--port", str(daemon.port), "--target", f"/v2/models/{arguments.name}/infer", "--body", str(body),
         "--header", f"Inference-Header-Content-Length: {request[0]}", "--clients", str(clients), "--seconds",
         str(arguments.seconds)], check=True, capture_output=True, text=True)
    answers = json.loads(done.stdout)
    if set(answers) - {"seconds", "unsent"} != {"200"}:
        raise SystemExit(f"not all was answered: {done.stdout}")
    return answers["200"]["per_second"]


def alone(arguments, environment):
    """Rows per second."""
    at = arguments.out / arguments.name
    done = subprocess.run(
        [arguments.onnxd, "bench", at / "model.onnx", "--inputs", at / f"batch_{arguments.batch}", "--providers",
         ",".join(arguments.providers), "--cache", arguments.out / "cache", "--iterations", str(arguments.iterations),
         "--json"], check=True, capture_output=True, text=True, env=environment)
    return arguments.batch / json.loads(done.stdout.splitlines()[-1])["latency_ms"]["median"] * 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnxd", type=pathlib.Path, required=True)
    parser.add_argument("--load", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "build" / "gpu-serving")
    parser.add_argument("--name", default="bert_classifier")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--providers", nargs="+", default=["fused", "cpu"])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 8], help="of a request")
    parser.add_argument("--clients", type=int, default=256, help="rows that are asked for at once")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--iterations", type=int, default=100)
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    arguments.onnxd, arguments.load = arguments.onnxd.resolve(), arguments.load.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    run = bench_gpu_run()
    environment = run.environment()
    if not (arguments.out / arguments.name / f"batch_{arguments.batch}").is_dir():
        subprocess.run([sys.executable, HERE / "run", "--export", "--out", arguments.out, "--dtype", arguments.dtype,
                        "--device", "cpu", "--name", arguments.name, "--batches", str(arguments.batch)], check=True)
    alone(arguments, environment)  # the first prepares the engine
    daemon = Daemon(arguments, environment, arguments.out)
    requests = {rows: request_of(arguments.out / arguments.name / f"batch_{arguments.batch}", rows)
                for rows in arguments.rows}
    engine, behind = [], {rows: [] for rows in arguments.rows}
    for _ in range(arguments.rounds):
        engine.append(alone(arguments, environment))
        for rows, request in requests.items():
            clients = max(1, arguments.clients // rows)
            behind[rows].append(served(arguments, daemon, request, clients) * rows)
    daemon.close()
    print(f"{run.machine('cuda' if arguments.providers[0] != 'cpu' else 'cpu')}; {arguments.name}, {arguments.dtype}")
    print(f"\n| rows of a request | engine alone, rows/s in batches of {arguments.batch} | served, rows/s | served / alone |")
    print("| --- | --- | --- | --- |")
    for rows, rates in behind.items():
        ratio = statistics.median(rate / one for rate, one in zip(rates, engine))
        print(f"| {rows} | {statistics.median(engine):.0f} | {statistics.median(rates):.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Embeddings of texts: onnxd beside the program that people write, tokenizers and onnxruntime behind FastAPI.

An encoder of MiniLM's size (make_models.py's `minilm`) with a tokenizer that is learned from the sources of Python's own
library, vectors of tokens averaged and normalized. A short text and a long one, one client and 16, the servers in turns:
requests a second, and the ratio of each round's. The load shares the machine with the server. First the embeddings are
compared.

Needs fastapi, uvicorn[standard], onnxruntime, tokenizers and numpy.
Usage: texts.py ENCODER.onnx [--rounds N] [--seconds N]
"""

import glob
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import urllib.request

import numpy

from batching import parser_of
from frontends import rest, wait_for

SENTENCE = "The cat, which nobody had seen for weeks, sat on the roof of the house and looked at the moon. "
TEXTS = {"short": SENTENCE, "long": SENTENCE * 6}


def make_tokenizer(path):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.train(sorted(glob.glob(sysconfig.get_path("stdlib") + "/*.py")), trainers.WordPieceTrainer(
        vocab_size=30000, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]))
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    made.save(str(path))
    return {name: len(made.encode(text).ids) for name, text in TEXTS.items()}


class Fastapi:
    def __init__(self, folder, port, workers, threads):
        self.name, self.port = f"FastAPI, {workers} worker{'s' * (workers > 1)}", port
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "texts_program:app", "--port", str(port), "--workers", str(workers), "--log-level",
             "error"], cwd=pathlib.Path(__file__).parent, env={
                 **os.environ, "FOLDER": str(folder), "THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"})
        wait_for(f"http://127.0.0.1:{port}/health", self.process)


class Onnxd:
    name = "onnxd"

    def __init__(self, binary, folder):
        self.process = subprocess.Popen([binary, "serve", str(folder), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0",
                                         "--threads", "0"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(re.findall(r":(\d+)", self.process.stdout.readline())[0])
        self.process.stdout.readline()


def embedding(server, body):
    with urllib.request.urlopen(urllib.request.Request(
            f"http://127.0.0.1:{server.port}/predict", body, {"Content-Type": "application/json"})) as response:
        return numpy.array(json.load(response)["prediction"])


def main():
    parser = parser_of(__doc__)
    parser.add_argument("encoder", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model.onnx").symlink_to(arguments.encoder.resolve())
        lengths = make_tokenizer(folder / "tokenizer.json")
        (folder / "model.yaml").write_text("texts: {tokenizer: tokenizer.json, pooling: mean, normalize: true}\n")
        processors = len(os.sched_getaffinity(0))
        servers = [Onnxd(arguments.onnxd, folder), Fastapi(folder, 18441, 1, processors), Fastapi(folder, 18442, processors, 1)]
        print("| text | clients | " + " | ".join(f"{server.name}, requests/s" for server in servers) + " | onnxd is faster by |")
        print("| --- | --- | " + "--- | " * len(servers) + "--- |")
        for kind, text in TEXTS.items():
            body = folder / "body"
            body.write_text(json.dumps({"input": [text]}))
            vectors = [embedding(server, body.read_bytes()) for server in servers]
            for other in vectors[1:]:
                numpy.testing.assert_allclose(other, vectors[0], atol=1e-5)
            for clients in (1, 16):
                rates = {server.name: [] for server in servers}
                for _ in range(arguments.rounds):
                    for server in servers:
                        rates[server.name].append(rest(arguments, server, body, clients)["per_second"])
                ratios = [min(ours / other for other in others) for ours, *others in zip(*rates.values())]
                print(f"| {kind}, {lengths[kind]} tokens | {clients} | " + " | ".join(
                    f"{statistics.median(rate):.0f}" for rate in rates.values()) + f" | {statistics.median(ratios):.2f} |", flush=True)
        for server in servers:
            server.process.terminate()


if __name__ == "__main__":
    main()

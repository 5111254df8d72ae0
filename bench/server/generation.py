#!/usr/bin/env python3
"""Texts that a model writes: onnxd beside the program that people write, a loop over onnxruntime behind FastAPI.

GPT-2's size (make_models.py's `gpt2_writer`, random weights) with a byte-level tokenizer that is learned from the sources
of Python's own library. Prompts of some 50 tokens, or of more such sentences, each another, 32 tokens to each, the likeliest;
one client and several, the servers in turns: tokens a second of all clients, the ratio of each round's, and how long one
answer takes. First the texts are compared.

Needs fastapi, uvicorn[standard], onnxruntime, tokenizers and numpy.
Usage: generation.py MODEL.onnx [--rounds N] [--answers N] [--clients N,...] [--sentences N]
"""

import concurrent.futures
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
import time
import urllib.request

from batching import parser_of
from frontends import wait_for

TOKENS = 32
SUBJECTS = ["cat", "engine", "sea captain", "clock", "garden", "letter", "violin", "bridge"]


def make_tokenizer(path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.train(sorted(glob.glob(sysconfig.get_path("stdlib") + "/*.py")), trainers.BpeTrainer(
        vocab_size=50257, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    made.save(str(path))
    return made


def prompts(count, sentences, seed=0):
    """Each other from its beginning on."""
    return [" ".join(f"Story {seed}-{i}-{n}: the {SUBJECTS[(i + n) % len(SUBJECTS)]}, which nobody had seen for weeks, was back, "
                     "and all who lived beside the old harbour came out into the road to look at it, one after another"
                     for n in range(sentences)) for i in range(count)]


class Fastapi:
    def __init__(self, folder, port, workers, threads):
        self.name, self.port = f"FastAPI, {workers} worker{'s' * (workers > 1)}", port
        self.process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "generation_program:app", "--port", str(port), "--workers", str(workers),
             "--log-level", "error"], cwd=pathlib.Path(__file__).parent, env={
                 **os.environ, "FOLDER": str(folder), "THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"})
        wait_for(f"http://127.0.0.1:{port}/health", self.process)


class Onnxd:
    name = "onnxd"

    def __init__(self, binary, folder):
        self.process = subprocess.Popen([binary, "serve", str(folder), "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(re.findall(r":(\d+)", self.process.stdout.readline())[0])
        self.process.stdout.readline()


def complete(server, prompt):
    """The text, and seconds."""
    body = json.dumps({"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}).encode()
    begin = time.monotonic()
    with urllib.request.urlopen(urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v1/completions", body, {"Content-Type": "application/json"})) as response:
        answer = json.load(response)
    assert answer["usage"]["completion_tokens"] == TOKENS
    return answer["choices"][0]["text"], time.monotonic() - begin


def measure(server, clients, prompts):
    """Tokens a second of all clients together, and the median seconds of an answer."""
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        begin = time.monotonic()
        took = [seconds for _, seconds in pool.map(lambda prompt: complete(server, prompt), prompts)]
        return len(prompts) * TOKENS / (time.monotonic() - begin), statistics.median(took)


def main():
    parser = parser_of(__doc__)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--answers", type=int, default=3, help="of each client in a round")
    parser.add_argument("--clients", default="1,4,16")
    parser.add_argument("--sentences", type=int, default=1, help="of a prompt")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model.onnx").symlink_to(arguments.model.resolve())
        tokenizer = make_tokenizer(folder / "tokenizer.json")
        (folder / "model.yaml").write_text("generation: {tokenizer: tokenizer.json, context_length: 1024}\n")
        processors = len(os.sched_getaffinity(0))
        servers = [Onnxd(arguments.onnxd, folder), Fastapi(folder, 18451, 1, processors), Fastapi(folder, 18452, processors, 1)]
        some = prompts(8, arguments.sentences)
        print(f"prompts of {len(tokenizer.encode(some[0]).ids)} tokens, {TOKENS} to each\n")
        texts = [[complete(server, prompt)[0] for prompt in some] for server in servers]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            texts.append([text for text, _ in pool.map(lambda prompt: complete(servers[0], prompt), some)])
        for other in texts[1:]:
            assert other == texts[0], (texts[0], other)
        print("| clients | " + " | ".join(f"{server.name}, tokens/s (an answer, s)" for server in servers) + " | onnxd is faster by |")
        print("| --- | " + "--- | " * len(servers) + "--- |")
        for clients in map(int, arguments.clients.split(",")):
            found = {server.name: [] for server in servers}
            for seed in range(arguments.rounds):
                for server in servers:
                    found[server.name].append(measure(server, clients, prompts(clients * arguments.answers, arguments.sentences, seed)))
            ratios = [min(ours[0] / other[0] for other in others) for ours, *others in zip(*found.values())]
            cells = [f"{statistics.median(rate for rate, _ in one):.0f} ({statistics.median(took for _, took in one):.2f})"
                     for one in found.values()]
            print(f"| {clients} | " + " | ".join(cells) + f" | {statistics.median(ratios):.2f} |", flush=True)
        for server in servers:
            server.process.terminate()


if __name__ == "__main__":
    main()

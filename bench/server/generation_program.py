"""The program that people write around a language model in ONNX: FastAPI, tokenizers, and a loop over onnxruntime that
keeps what was computed of the tokens before. Environment: FOLDER, THREADS."""

import os
import threading

import numpy
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer

folder = os.environ["FOLDER"]
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["THREADS"])
session = onnxruntime.InferenceSession(f"{folder}/model.onnx", options, providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
outputs = [output.name for output in session.get_outputs()]
states = {one.name: [1 if size == "batch" else 0 if size == "past" else size for size in one.shape]
          for one in session.get_inputs() if one.name.startswith("past")}
# One text at a time on all threads: several at once would only take turns at them.
turn = threading.Lock()
app = FastAPI()


class Request(BaseModel):
    prompt: str
    max_tokens: int = 16


def write(ids, tokens):
    past = {name: numpy.zeros(shape, numpy.float32) for name, shape in states.items()}
    now, before, written = numpy.array([ids]), 0, []
    for _ in range(tokens):
        length = now.shape[1]
        logits, *present = session.run(outputs, {
            "input_ids": now, "attention_mask": numpy.ones((1, before + length), numpy.int64),
            "position_ids": numpy.arange(before, before + length)[None], **past})
        before += length
        written.append(int(logits[0, -1].argmax()))
        now = numpy.array([written[-1:]])
        past = {name.replace("present", "past_key_values"): value for name, value in zip(outputs[1:], present)}
    return written


@app.get("/health")
def health():
    return {}


@app.post("/v1/completions")
def completions(request: Request):
    ids = tokenizer.encode(request.prompt).ids
    with turn:
        written = write(ids, request.max_tokens)
    return {"choices": [{"text": tokenizer.decode(written)}], "usage": {"completion_tokens": len(written)}}

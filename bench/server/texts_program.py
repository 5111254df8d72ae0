"""The program people write for embeddings: tokenizers and onnxruntime behind FastAPI. FOLDER in the environment.

uvicorn texts_program:app --port P --workers N
"""

import os
import pathlib

import numpy
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel
from tokenizers import Tokenizer

folder = pathlib.Path(os.environ["FOLDER"])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = int(os.environ["THREADS"])
session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.enable_padding()
app = FastAPI()


class Request(BaseModel):
    input: list[str]


@app.get("/health")
def health():
    return {"status": "healthy"}


@app.post("/predict")
def predict(request: Request):
    encoded = tokenizer.encode_batch(request.input)
    mask = numpy.array([row.attention_mask for row in encoded])
    vectors = session.run(None, {"input_ids": numpy.array([row.ids for row in encoded]), "attention_mask": mask})[0]
    kept = mask[:, :, None].astype(numpy.float32)
    means = (vectors * kept).sum(axis=1) / kept.sum(axis=1)
    return {"prediction": (means / numpy.linalg.norm(means, axis=1, keepdims=True)).tolist()}

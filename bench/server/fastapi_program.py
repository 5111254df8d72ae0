"""The program people write: a model behind FastAPI and onnxruntime. MODEL in the environment.

uvicorn fastapi_program:app --port P --workers N
"""

import os

import numpy
import onnxruntime
from fastapi import FastAPI
from pydantic import BaseModel

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(os.environ["MODEL"], options, providers=["CPUExecutionProvider"])
name = session.get_inputs()[0].name
app = FastAPI()


class Request(BaseModel):
    input: list[list[float]]


@app.get("/health")
def health():
    return {"status": "healthy"}


@app.post("/predict")
def predict(request: Request):
    outputs = session.run(None, {name: numpy.array(request.input, numpy.float32)})
    return {"prediction": outputs[0].tolist()}

"""Exports without their weights: a graph that a framework wrote fits in a few kilobytes, and the
weights come back from a seed. What is compared is arithmetic, which needs no trained values."""

import zlib

import numpy
import onnx
from onnx import numpy_helper

LARGEST_KEPT = 64  # elements; shapes, scales and other small constants stay as they are


def strip(model):
    """Drops large float initializers' elements and what no runtime reads."""
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and numpy.prod(tensor.dims) > LARGEST_KEPT:
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
    for graph in _graphs(model):
        del graph.value_info[:]
        del graph.metadata_props[:]
        graph.doc_string = ""
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
            node.name = ""
        for entry in [*graph.input, *graph.output, *graph.initializer]:
            del entry.metadata_props[:]
            entry.doc_string = ""
    del model.metadata_props[:]
    return model


def fill(model):
    """Gives every emptied tensor values that depend on its name alone."""
    for tensor in model.graph.initializer:
        empty = tensor.data_type == onnx.TensorProto.FLOAT and not (
            tensor.HasField("raw_data") or tensor.float_data)
        if not empty or 0 in tensor.dims:
            continue
        random = numpy.random.default_rng(zlib.crc32(tensor.name.encode()))
        shape = tuple(tensor.dims)
        if len(shape) >= 2:
            inputs = int(numpy.prod(shape[1:])) if len(shape) > 2 else max(shape)
            values = random.standard_normal(shape) * (1.5 / inputs) ** 0.5
        elif "var" in tensor.name:
            values = random.uniform(0.5, 1.5, shape)
        elif "weight" in tensor.name:
            values = 1 + 0.1 * random.standard_normal(shape)
        else:
            values = 0.1 * random.standard_normal(shape)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(numpy.float32), tensor.name))
    return model


def _graphs(model):
    pending = [model.graph]
    while pending:
        graph = pending.pop()
        yield graph
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    pending.append(attribute.g)
                pending.extend(attribute.graphs)

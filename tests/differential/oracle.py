"""Runs a model through onnxd and through onnxruntime and compares the outputs."""

import functools
import os
import pathlib
import subprocess
import tempfile

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

BINARY = os.environ.get(
    "TEST_ONNXD_BINARY",
    str(pathlib.Path(__file__).resolve().parents[2] / "build" / "release" / "tools" / "onnxd"))
LEVELS = ("disable", "all")


def plain_session(model, threads=0):
    """onnxruntime with its optimizations off: the plainest reading of the graph. 0 threads: as many as it likes."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def expected_outputs(model, feeds):
    """What onnxruntime computes so."""
    return plain_session(model).run(None, feeds)


@functools.cache
def saturates():
    """Whether its products of unsigned with signed bytes saturate in 16 bits, which they do where the processor has no
    VNNI; ours never do. Signed weights of 7 bits are safe, which is what its tools call a reduced range."""
    a, b = (numpy.full(shape, value, dtype) for shape, value, dtype in (
        ((1, 2), 255, numpy.uint8), ((2, 1), 127, numpy.int8)))
    values = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
              for name, array in (("a", a), ("y", numpy.zeros((1, 1), numpy.int32)))]
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMulInteger", ["a", "b"], ["y"])], "sum", values[:1],
                                   values[1:], [numpy_helper.from_array(b, "b")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return expected_outputs(model, {"a": a})[0].item() != 2 * 255 * 127


def random_feeds(model, seed=0, dims=None, high=2):
    """Inputs for a model: normal floats, integers below `high`; `dims` gives free dimensions."""
    random = numpy.random.default_rng(seed)
    initialized = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name in initialized:
            continue
        tensor = value.type.tensor_type
        shape = [d.dim_value if d.HasField("dim_value") else (dims or {}).get(d.dim_param, 2)
                 for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype == numpy.bool_:
            feeds[value.name] = random.random(shape) < 0.5
        elif numpy.issubdtype(dtype, numpy.integer):
            feeds[value.name] = random.integers(0, high, shape).astype(dtype)
        else:
            feeds[value.name] = random.standard_normal(shape).astype(dtype)
    return feeds


def to_proto(value):
    """TensorProto of an array, MapProto of a dict, SequenceProto of a list of maps (what ZipMap gives)."""
    if isinstance(value, dict):
        return fill_map(onnx.MapProto(), value)
    if not isinstance(value, list):
        return numpy_helper.from_array(numpy.asarray(value, order="C"))
    sequence = onnx.SequenceProto(elem_type=onnx.SequenceProto.MAP)
    for entry in value:
        fill_map(sequence.map_values.add(), entry)
    return sequence


def fill_map(proto, entries):
    of_strings = isinstance(next(iter(entries)), str)
    proto.key_type = onnx.TensorProto.STRING if of_strings else onnx.TensorProto.INT64
    if of_strings:
        proto.string_keys.extend(key.encode() for key in entries)
    else:
        proto.keys.extend(entries)
    proto.values.elem_type = onnx.SequenceProto.TENSOR
    for entry in entries.values():
        kind = object if isinstance(entry, str) else numpy.int64 if isinstance(entry, int) else numpy.float32
        proto.values.tensor_values.append(numpy_helper.from_array(numpy.array(entry, kind)))
    return proto


def write_case(model, feeds, outputs, folder):
    """The folder as `onnxd run` reads it: model.onnx, input_i.pb, output_i.pb."""
    path = pathlib.Path(folder)
    (path / "model.onnx").write_bytes(model.SerializeToString())
    initialized = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in initialized]
    for kind, values in (("input", [feeds[name] for name in names]), ("output", outputs)):
        for i, value in enumerate(values):
            (path / f"{kind}_{i}.pb").write_bytes(to_proto(value).SerializeToString())


def assert_same(test, model, feeds, rtol=1e-3, atol=1e-5, outputs=None, levels=LEVELS):
    """Fails `test` unless onnxd gives onnxruntime's outputs at every level."""
    if outputs is None:
        outputs = expected_outputs(model, feeds)
    with tempfile.TemporaryDirectory() as folder:
        write_case(model, feeds, outputs, folder)
        for level in levels:
            done = subprocess.run(
                [BINARY, "run", f"{folder}/model.onnx", "--inputs", folder, "--compare", folder,
                 "--rtol", str(rtol), "--atol", str(atol), "--optimization", level],
                capture_output=True, text=True)
            test.assertEqual(done.returncode, 0, f"{level}: {done.stderr}{done.stdout}")


def refusal(model, feeds):
    """What `onnxd run` says of a model that it must not run; fails when it does run."""
    with tempfile.TemporaryDirectory() as folder:
        write_case(model, feeds, [], folder)
        done = subprocess.run([BINARY, "run", f"{folder}/model.onnx", "--inputs", folder], capture_output=True, text=True)
    assert done.returncode == 1, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    return done.stderr

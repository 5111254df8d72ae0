#!/usr/bin/env python3
"""Writes models of one operator each, at sizes that real networks have, into FOLDER/NAME/model.onnx.

Raced like any models, they show operators that onnxruntime is faster with. Needs onnx.
"""

import argparse
import pathlib

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL, BYTE = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8
IMAGE = (1, 64, 56, 56)
ROWS = (128, 768)
TOKENS = (1, 128, 768)
RANDOM = numpy.random.default_rng(0)


def floats(*shape):
    return RANDOM.standard_normal(shape, dtype=numpy.float32)


def integers(*values):
    return numpy.array(values, dtype=numpy.int64)


def case(operator, *inputs, out=FLOAT, outputs=1, domain="", opset=20, data=None, **attributes):
    """`inputs` are shapes, (shape, type) pairs, arrays, which are constant, or None.

    `data` are the values of inputs that random numbers would not do for, by position."""
    return operator, inputs, out, outputs, domain, opset, data or {}, attributes


def cases():
    made = {}
    unary = """Abs Acos Asin Asinh Atan Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish LeakyRelu
        LogSoftmax Mish Neg Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softmax Softplus Softsign Tan Tanh
        ThresholdedRelu""".split()
    for name in unary:
        made[name] = case(name, IMAGE)
    for name in ("Sqrt", "Log", "Acosh", "Atanh"):
        made[name] = case(name, IMAGE, data={0: {"Acosh": 1.5, "Atanh": 0.5}.get(name, 2.0)})
    for name in ("IsNaN", "IsInf"):
        made[name] = case(name, IMAGE, out=BOOL)
    for name in ("Add", "Sub", "Mul", "Div", "PRelu", "Max", "Min", "Mean", "Sum"):
        made[name] = case(name, IMAGE, IMAGE)
    for name in ("Add", "Mul", "PRelu"):
        made[f"{name}_channel"] = case(name, IMAGE, floats(64, 1, 1))
        made[f"{name}_row"] = case(name, TOKENS, floats(768))
        made[f"{name}_outer"] = case(name, (128, 1, 768), (1, 128, 1)) if name != "PRelu" else case(name, TOKENS, floats(1))
    made["Pow"] = case("Pow", IMAGE, floats(1) * 0 + 2)
    made["Pow_3"] = case("Pow", IMAGE, floats(1) * 0 + 3)
    made["Pow_half"] = case("Pow", IMAGE, floats(1) * 0 + 0.5, data={0: 2.0})
    made["Mod"] = case("Mod", IMAGE, floats(1) * 0 + 3, fmod=1)
    made["Clip"] = case("Clip", IMAGE, numpy.float32(-1), numpy.float32(1))
    for name in ("Less", "Greater", "Equal", "GreaterOrEqual"):
        made[name] = case(name, IMAGE, IMAGE, out=BOOL)
    for name in ("And", "Or", "Xor"):
        made[name] = case(name, (IMAGE, BOOL), (IMAGE, BOOL), out=BOOL)
    made["Not"] = case("Not", (IMAGE, BOOL), out=BOOL)
    made["Where"] = case("Where", (IMAGE, BOOL), IMAGE, IMAGE)
    made["Where_mask"] = case("Where", ((1, 1, 128, 128), BOOL), (1, 12, 128, 128), numpy.float32(-1e9))
    made["Add_int64"] = case("Add", ((128, 768), INT64), ((128, 768), INT64), out=INT64)
    for name in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1", "ReduceSumSquare",
                 "ReduceLogSumExp", "ReduceProd"):
        made[f"{name}_last"] = case(name, TOKENS, integers(-1))
        made[f"{name}_first"] = case(name, TOKENS, integers(1))
        made[f"{name}_image"] = case(name, IMAGE, integers(2, 3))
    made["ReduceMean_all"] = case("ReduceMean", IMAGE)
    made["ReduceMean_channels"] = case("ReduceMean", IMAGE, integers(1))
    for name in ("ArgMax", "ArgMin"):
        made[f"{name}_last"] = case(name, TOKENS, out=INT64, axis=-1)
        made[f"{name}_channel"] = case(name, (1, 21, 256, 256), out=INT64, axis=1)
    made["CumSum"] = case("CumSum", TOKENS, numpy.array(1, dtype=numpy.int64))
    made["TopK"] = case("TopK", (1, 8400), integers(300), outputs=2, out=(FLOAT, INT64))
    made["TopK_rows"] = case("TopK", (128, 1000), integers(5), outputs=2, out=(FLOAT, INT64))
    made["TopK_sort"] = case("TopK", (1, 20000), integers(20000), outputs=2, out=(FLOAT, INT64))
    for order in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0), (1, 0, 2, 3), (0, 1, 3, 2)):
        made["Transpose_" + "".join(map(str, order))] = case("Transpose", IMAGE, perm=order)
    made["Transpose_heads"] = case("Transpose", (1, 128, 12, 64), perm=(0, 2, 1, 3))
    made["Transpose_bytes"] = case("Transpose", (IMAGE, BYTE), out=BYTE, perm=(0, 2, 3, 1))
    for axis in (1, 3):
        made[f"Concat_{axis}"] = case("Concat", IMAGE, IMAGE, axis=axis)
        made[f"Split_{axis}"] = case("Split", IMAGE, outputs=2, axis=axis, num_outputs=2)
    made["Slice_last"] = case("Slice", IMAGE, integers(1), integers(55), integers(3))
    made["Slice_step"] = case("Slice", IMAGE, integers(0, 0), integers(56, 56), integers(2, 3), integers(2, 2))
    made["Slice_back"] = case("Slice", IMAGE, integers(-1), integers(-1000), integers(3), integers(-1))
    ids = RANDOM.integers(0, 30000, (1, 128))
    made["Gather_rows"] = case("Gather", floats(30000, 768), ((1, 128), INT64), data={1: ids})
    made["Gather_last"] = case("Gather", TOKENS, integers(*range(0, 768, 3)), axis=2)
    made["Gather_one"] = case("Gather", TOKENS, numpy.array(0, dtype=numpy.int64), axis=1)
    made["GatherElements"] = case("GatherElements", ROWS, (ROWS, INT64), axis=1, data={1: RANDOM.integers(0, 768, ROWS)})
    made["GatherND"] = case("GatherND", (128, 128, 64), ((4096, 2), INT64), data={1: RANDOM.integers(0, 128, (4096, 2))})
    made["ScatterND"] = case("ScatterND", (128, 128, 64), ((4096, 2), INT64), (4096, 64),
                             data={1: RANDOM.permutation(128 * 128)[:4096, None] // numpy.array([[128, 1]]) % 128})
    made["ScatterElements"] = case("ScatterElements", ROWS, (ROWS, INT64), ROWS, axis=1,
                                   data={1: numpy.argsort(RANDOM.random(ROWS), axis=1)})
    for mode in ("constant", "reflect", "edge", "wrap"):
        made[f"Pad_{mode}"] = case("Pad", IMAGE, integers(0, 0, 3, 3, 0, 0, 3, 3), mode=mode)
    made["Tile"] = case("Tile", TOKENS, integers(1, 1, 4))
    made["Tile_rows"] = case("Tile", (1, 1, 768), integers(1, 128, 1))
    made["Expand"] = case("Expand", (1, 12, 1, 64), integers(1, 12, 128, 64))
    made["Expand_groups"] = case("Expand", (1, 8, 1, 128, 64), integers(1, 8, 4, 128, 64))
    made["DepthToSpace"] = case("DepthToSpace", IMAGE, blocksize=2)
    made["DepthToSpace_CRD"] = case("DepthToSpace", IMAGE, blocksize=2, mode="CRD")
    made["SpaceToDepth"] = case("SpaceToDepth", IMAGE, blocksize=2)
    made["OneHot"] = case("OneHot", ((1, 128), INT64), integers(1000), numpy.array([0, 1], dtype=numpy.float32),
                          data={0: RANDOM.integers(0, 1000, (1, 128))})
    made["NonZero"] = case("NonZero", (ROWS, BOOL), out=INT64)
    made["Compress"] = case("Compress", ROWS, ((128,), BOOL), axis=0)
    made["Unique"] = case("Unique", ((4096,), INT64), out=INT64)
    made["ReverseSequence"] = case("ReverseSequence", (128, 4, 64), integers(128, 100, 50, 7), time_axis=0, batch_axis=1)
    made["Trilu"] = case("Trilu", (12, 128, 128), upper=0)
    made["EyeLike"] = case("EyeLike", (128, 128), dtype=FLOAT)
    made["LRN"] = case("LRN", IMAGE, size=5)
    made["LpNormalization"] = case("LpNormalization", TOKENS)
    made["LpNormalization_channel"] = case("LpNormalization", IMAGE, axis=1)
    made["MeanVarianceNormalization"] = case("MeanVarianceNormalization", IMAGE)
    made["InstanceNormalization"] = case("InstanceNormalization", IMAGE, floats(64), floats(64))
    made["GroupNormalization"] = case("GroupNormalization", IMAGE, floats(64), floats(64), num_groups=32, opset=21)
    made["BatchNormalization"] = case("BatchNormalization", IMAGE, floats(64), floats(64), floats(64), floats(64) ** 2)
    made["LayerNormalization"] = case("LayerNormalization", TOKENS, floats(768), floats(768))
    made["LayerNormalization_32"] = case("LayerNormalization", (1, 4096, 32), floats(32), floats(32))
    made["LayerNormalization_96"] = case("LayerNormalization", (1, 3136, 96), floats(96), floats(96))
    made["SkipLayerNormalization"] = case("SkipLayerNormalization", TOKENS, TOKENS, floats(768), floats(768),
                                          domain="com.microsoft")
    made["Softmax_rows"] = case("Softmax", (12, 128, 128))
    made["Softmax_channel"] = case("Softmax", (1, 21, 256, 256), axis=1)
    made["Softmax_classes"] = case("Softmax", (1, 1000))
    made["Hardmax"] = case("Hardmax", ROWS)
    for name in ("MaxPool", "AveragePool", "LpPool"):
        made[f"{name}_2"] = case(name, IMAGE, kernel_shape=(2, 2), strides=(2, 2))
        made[f"{name}_3"] = case(name, IMAGE, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    made["MaxPool_5_1"] = case("MaxPool", IMAGE, kernel_shape=(5, 5), pads=(2, 2, 2, 2))
    made["MaxPool_signal"] = case("MaxPool", (1, 64, 4000), kernel_shape=(4,), strides=(4,))
    made["GlobalAveragePool"] = case("GlobalAveragePool", IMAGE)
    made["GlobalMaxPool"] = case("GlobalMaxPool", IMAGE)
    twice = numpy.array([1, 1, 2, 2], dtype=numpy.float32)
    for mode in ("nearest", "linear", "cubic"):
        made[f"Resize_{mode}"] = case("Resize", IMAGE, None, twice, mode=mode)
        made[f"Resize_{mode}_down"] = case("Resize", (1, 3, 640, 640), None, None, integers(1, 3, 224, 224), mode=mode)
    made["GridSample"] = case("GridSample", IMAGE, (1, 56, 56, 2), opset=16)
    made["RoiAlign"] = case("RoiAlign", (1, 256, 50, 50), (100, 4), integers(*[0] * 100), output_height=7, output_width=7,
                            data={1: numpy.sort(RANDOM.random((100, 4)).astype(numpy.float32) * 50, axis=1)})
    made["NonMaxSuppression"] = case("NonMaxSuppression", (1, 2000, 4), (1, 20, 2000), integers(100),
                                     numpy.array([0.5], dtype=numpy.float32), numpy.array([0.3], dtype=numpy.float32),
                                     out=INT64, data={0: numpy.sort(RANDOM.random((1, 2000, 4)).astype(numpy.float32))})
    for source, target in ((FLOAT, INT64), (INT64, FLOAT), (FLOAT, TensorProto.FLOAT16), (BYTE, FLOAT), (BOOL, FLOAT),
                           (FLOAT, BOOL), (FLOAT, TensorProto.INT32), (FLOAT, BYTE)):
        name = f"Cast_{TensorProto.DataType.Name(source)}_{TensorProto.DataType.Name(target)}".lower()
        made[name] = case("Cast", (IMAGE, source), out=target, to=target)
    scale, zero = numpy.float32(0.02), numpy.uint8(128)
    made["QuantizeLinear"] = case("QuantizeLinear", IMAGE, scale, zero, out=BYTE)
    made["DequantizeLinear"] = case("DequantizeLinear", (IMAGE, BYTE), scale, zero)
    made["DynamicQuantizeLinear"] = case("DynamicQuantizeLinear", TOKENS, outputs=3, out=(BYTE, FLOAT, BYTE))
    made["MatMul"] = case("MatMul", TOKENS, floats(768, 768))
    made["MatMul_heads"] = case("MatMul", (1, 12, 128, 64), (1, 12, 64, 128))
    made["MatMul_vector"] = case("MatMul", (1, 768), floats(768, 768))
    made["MatMul_few_columns"] = case("MatMul", (4096, 256), floats(256, 2))
    made["MatMul_computed"] = case("MatMul", (256, 256), (256, 256))
    made["Gemm"] = case("Gemm", ROWS, floats(256, 768), floats(256), transB=1)
    made["Gemm_computed"] = case("Gemm", (256, 256), (256, 256), transA=1)
    made["Einsum_outer"] = case("Einsum", (1, 128, 64), (1, 128, 64), equation="bic,bjc->bijc")
    made["Conv_depthwise"] = case("Conv", IMAGE, floats(64, 1, 3, 3), group=64, pads=(1, 1, 1, 1))
    made["Conv_computed"] = case("Conv", IMAGE, (64, 64, 3, 3), pads=(1, 1, 1, 1))
    made["ConvTranspose_3"] = case("ConvTranspose", IMAGE, floats(64, 32, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1),
                                   output_padding=(1, 1))
    made["ConvTranspose_4"] = case("ConvTranspose", IMAGE, floats(64, 32, 4, 4), strides=(2, 2), pads=(1, 1, 1, 1))
    made["ConvTranspose_groups"] = case("ConvTranspose", IMAGE, floats(64, 1, 4, 4), strides=(2, 2), pads=(1, 1, 1, 1),
                                        group=64)
    made["DeformConv"] = case("DeformConv", IMAGE, floats(64, 64, 3, 3), (1, 18, 56, 56), pads=(1, 1, 1, 1), opset=19)
    for name, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for hidden in (64, 256):
            made[f"{name}_{hidden}"] = case(name, (100, 1, 128), floats(1, gates * hidden, 128) / 16,
                                            floats(1, gates * hidden, hidden) / 16, hidden_size=hidden)
        made[f"{name}_both"] = case(name, (100, 1, 128), floats(2, gates * 128, 128) / 16,
                                    floats(2, gates * 128, 128) / 16, hidden_size=128, direction="bidirectional")
    made["LSTM_batch"] = case("LSTM", (50, 16, 128), floats(1, 512, 128) / 16, floats(1, 512, 128) / 16, hidden_size=128)
    made["STFT"] = case("STFT", (1, 16000, 1), integers(160)[0], numpy.hanning(400).astype(numpy.float32), onesided=1,
                        opset=17)
    made["DFT"] = case("DFT", (1, 100, 512, 1), axis=2, opset=17)
    made["MelWeightMatrix"] = case("MelWeightMatrix", integers(80)[0], integers(512)[0], integers(16000)[0],
                                   numpy.float32(0), numpy.float32(8000))
    made["Det"] = case("Det", (64, 8, 8))
    made["Shrink"] = case("Shrink", IMAGE)
    made["CenterCropPad"] = case("CenterCropPad", IMAGE, integers(48, 64), axes=(2, 3))
    made["Col2Im"] = case("Col2Im", (1, 576, 3136), integers(56, 56), integers(3, 3), pads=(1, 1, 1, 1))
    for name in ("BiasGelu", "FastGelu"):
        made[name] = case(name, TOKENS, floats(768), domain="com.microsoft")
    made["QuickGelu"] = case("QuickGelu", TOKENS, domain="com.microsoft")
    made["Scaler"] = case("Scaler", (1000, 30), domain="ai.onnx.ml", opset=3, offset=[0.5] * 30, scale=[2.0] * 30)
    made["Normalizer"] = case("Normalizer", (1000, 30), domain="ai.onnx.ml", opset=3, norm="L2")
    made["Binarizer"] = case("Binarizer", (1000, 30), domain="ai.onnx.ml", opset=3)
    made["Imputer"] = case("Imputer", (1000, 30), domain="ai.onnx.ml", opset=3, imputed_value_floats=[1.0],
                           replaced_value_float=float("nan"))
    made["LinearRegressor"] = case("LinearRegressor", (1000, 30), domain="ai.onnx.ml", opset=3,
                                   coefficients=[0.5] * 30, intercepts=[1.0])
    made["LinearClassifier"] = case("LinearClassifier", (1000, 30), domain="ai.onnx.ml", opset=3, outputs=2,
                                    out=(INT64, FLOAT), coefficients=[0.5 * i for i in range(90)], intercepts=[1.0, 2.0, 3.0],
                                    classlabels_ints=[0, 1, 2], post_transform="SOFTMAX")
    made["SVMRegressor"] = case("SVMRegressor", (100, 30), domain="ai.onnx.ml", opset=3, kernel_type="RBF",
                                kernel_params=[0.1, 0.0, 3.0], n_supports=200, support_vectors=[0.01 * (i % 50) for i in range(6000)],
                                coefficients=[0.1] * 200, rho=[0.5])
    made["FeatureVectorizer"] = case("FeatureVectorizer", (1000, 10), (1000, 20), domain="ai.onnx.ml", opset=3,
                                     inputdimensions=[10, 20])
    made["ArrayFeatureExtractor"] = case("ArrayFeatureExtractor", (1000, 30), integers(1, 5, 7), domain="ai.onnx.ml", opset=3)
    return made


def random_input(shape, kind, given):
    if isinstance(given, numpy.ndarray):
        return given
    if kind == FLOAT:
        return (floats(*shape) * (0.01 if given else 1) + (given or 0)).astype(numpy.float32)
    if kind == BOOL:
        return RANDOM.random(shape) < 0.5
    return RANDOM.integers(0, 100, shape).astype(helper.tensor_dtype_to_np_dtype(kind))


def write(path, operator, inputs, out, outputs, domain, opset, data, attributes):
    names, graph_inputs, constants = [], [], []
    folder = path.parent / "test_data_set_0"
    folder.mkdir(parents=True, exist_ok=True)
    for i, value in enumerate(inputs):
        names.append("" if value is None else f"x{i}")
        if isinstance(value, (numpy.ndarray, numpy.generic)):
            constants.append(numpy_helper.from_array(numpy.asarray(value), f"x{i}"))
        elif value is not None:
            shape, kind = value if isinstance(value[0], tuple) else (value, FLOAT)
            given = random_input(shape, kind, data.get(i))
            (folder / f"input_{len(graph_inputs)}.pb").write_bytes(numpy_helper.from_array(given, f"x{i}").SerializeToString())
            graph_inputs.append(helper.make_tensor_value_info(f"x{i}", kind, shape))
    kinds = out if isinstance(out, tuple) else (out,) * outputs
    results = [f"y{i}" for i in range(outputs)]
    graph_outputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(results, kinds)]
    if operator in ("LSTM", "GRU", "RNN"):
        results, graph_outputs = ["y0"], graph_outputs[:1]
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    opsets = [helper.make_opsetid("", opset if domain == "" else 20)]
    if domain:
        opsets.append(helper.make_opsetid(domain, opset if domain == "ai.onnx.ml" else 1))
    model = helper.make_model(helper.make_graph([node], operator, graph_inputs, graph_outputs, constants),
                              opset_imports=opsets, ir_version=9)
    onnx.save(model, path)


def main():
    every = cases()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"without names: all of {', '.join(every)}")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in every]
    if unknown:
        parser.error(f"there is no model {unknown[0]}; --help names them")
    for name in arguments.names or every:
        path = arguments.folder / name / "model.onnx"
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, *every[name])
        print(path, flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Races onnxd against onnxruntime: same model, same inputs, same threads, run by run in turns.

Both engines stay loaded in a process each. In every round one runs, then the other (who begins alternates), a few
runs long, so that what else the machine does hits both alike. Inputs are those of test_data_set_0 beside the model,
or seeded random numbers where it is missing or --dim or --batch says otherwise. Reported are the medians over all
rounds and the median of the rounds' ratios (onnxruntime's time / ours). Outputs are compared before anything is
timed. The time that either engine takes for a model that does nothing is printed first and subtracted from models
below 0.1 ms.

Peak memory is how much the process's high-water mark rose from just before the model's load, for either engine: the
libraries that were there before are not in it. The JSON has the whole processes, too. Load is the time to make a session; both engines read the file from the page cache. The third load
time is ours with --cache, when a process before had prepared the model.

With --precision ours computes products in bf16 or bf16x3, against the peer's floats; two columns more say how near the
outputs are: the least cosine similarity, and the largest error of the range of an output.

With --peak, a third program (bench/session/peak) takes its turn in each round: it multiplies and adds in registers alone.
From what it reaches, and the multiplications and additions of the model's convolutions and matrix products, comes the
ceiling: the ratio of an engine that did just these, as the graph has them, at that speed, and everything else for
nothing. Winograd's convolutions do fewer.

Where the processor has no VNNI, onnxruntime's products of bytes saturate in 16 bits, unless
`--peer-config session.x64quantprecision=1` asks it for those that do not, as ours never do.

Needs onnx, onnxruntime and numpy. Usage: versus_onnxruntime.py [--threads N] [--json FILE] MODEL.onnx...
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnx

PEER = r"""
import json, sys, time
import numpy, onnxruntime
path, folder, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
def high_water():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
feeds = {name: numpy.load(f"{folder}/inputs/{i}.npy") for i, name in enumerate(json.load(open(f"{folder}/names.json")))}
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
options.inter_op_num_threads = 1
options.log_severity_level = 4
for entry in sys.argv[4:]:
    if "=" in entry:
        options.add_session_config_entry(*entry.split("=", 1))
before = high_water()
begin = time.perf_counter()
session = onnxruntime.InferenceSession(path, options)
load_ms = (time.perf_counter() - begin) * 1000
for _ in range(2):
    outputs = session.run(None, feeds)
for i, output in enumerate(outputs):
    numpy.save(f"{folder}/outputs/{i}.npy", numpy.asarray(output))
print("ready", flush=True)
for line in sys.stdin:
    count = int(line)
    begin = time.perf_counter()
    for _ in range(count):
        session.run(None, feeds)
    print((time.perf_counter() - begin) * 1000 / count, flush=True)
print(json.dumps({"load_ms": load_ms, "peak_rss_bytes": high_water(),
                  "model_rss_bytes": high_water() - before, "version": onnxruntime.__version__}), flush=True)
"""


class Racer:
    """A process that times runs when it is told to."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise RuntimeError(f"failed: {' '.join(command[:3])} ...")

    def milliseconds(self, runs):
        time.sleep(0.02)  # onnxruntime's threads look for work for a while before they sleep
        self.process.stdin.write(f"{runs}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def report(self):
        self.process.stdin.close()
        return json.loads(self.process.stdout.readline())


def recorded_inputs(path, values):
    """The tensors of test_data_set_0 beside the model, the layout of ONNX's test data; none where it is missing."""
    files = [path.parent / "test_data_set_0" / f"input_{k}.pb" for k in range(len(values))]
    if not files or not all(file.exists() for file in files):
        return None
    return [onnx.numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes())) for file in files]


def seeded_input(value, random, batch, sizes):
    tensor = value.type.tensor_type
    shape = [d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, batch) for d in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if numpy.issubdtype(dtype, numpy.floating):
        return (random.random(shape) * 2 - 1).astype(dtype)
    return random.integers(0, 2, shape).astype(dtype)


def write_inputs(path, folder, batch, sizes):
    """Inputs as NUMBER.npy for the peer and input_NUMBER.pb for us."""
    model = onnx.load(path, load_external_data=False)
    random = numpy.random.default_rng(0)
    initialized = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in initialized]
    arrays = None if sizes or batch != 1 else recorded_inputs(pathlib.Path(path), values)
    arrays = arrays or [seeded_input(value, random, batch, sizes) for value in values]
    for number, array in enumerate(arrays):
        numpy.save(folder / "inputs" / f"{number}.npy", array)
        proto = onnx.numpy_helper.from_array(numpy.ascontiguousarray(array).reshape(array.shape))
        (folder / "inputs" / f"input_{number}.pb").write_bytes(proto.SerializeToString())
    names = [value.name for value in values]
    (folder / "names.json").write_text(json.dumps(names))


def convert_outputs(folder):
    """The peer's outputs as our command line reads them, and the largest magnitude among them."""
    largest = 0.0
    for path in (folder / "outputs").glob("*.npy"):
        array = numpy.load(path)
        proto = onnx.numpy_helper.from_array(array)
        (folder / "outputs" / f"output_{path.stem}.pb").write_bytes(proto.SerializeToString())
        if numpy.issubdtype(array.dtype, numpy.floating) and array.size:
            largest = max(largest, float(numpy.abs(array).max()))
    return largest


def operations(path, folder):
    """Multiplications and additions of the convolutions and products of the graph as it is, by the shapes of a run."""
    import onnxruntime
    model = onnx.load(path)
    products = [node for node in model.graph.node if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")]
    shapes = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    arrays = [numpy.load(file) for file in sorted((folder / "inputs").glob("*.npy"), key=lambda f: int(f.stem))]
    feeds = dict(zip((value.name for value in model.graph.input if value.name not in shapes), arrays))
    shapes.update((name, array.shape) for name, array in feeds.items())
    wanted = sorted({name for node in products for name in [*node.input[:2], node.output[0]]} - set(shapes))
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    shapes.update((name, array.shape) for name, array in zip(wanted, session.run(wanted, feeds)))
    total = 0
    for node in products:
        left, right, result = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
        transposed = any(a.name == "transA" and a.i for a in node.attribute)
        each = {"Conv": numpy.prod(right[1:]), "ConvTranspose": numpy.prod(right[1:]), "MatMul": left[-1]}.get(
            node.op_type, left[0] if transposed else left[-1])
        total += 2 * int(each) * int(numpy.prod(left if node.op_type == "ConvTranspose" else result))
    return total


def name_of(model):
    path = pathlib.Path(model)
    if path.stem != "model":
        return path.stem
    return path.parts[-3] if path.parts[-2].isdigit() else path.parts[-2]


def prepared_load_ms(model, folder, arguments):
    """The median of three starts that find what one before them prepared."""
    command = [arguments.onnxd, "bench", str(model), "--json", "--iterations", "1", "--inputs", f"{folder}/inputs",
               "--cache", f"{folder}/cache", "--precision", arguments.precision]
    times = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["load_ms"] for _ in range(4)]
    return statistics.median(times[1:])


def nearness(model, folder, arguments):
    """How near our outputs are to the peer's: the least cosine similarity, the largest error of an output's range."""
    outputs = folder / "ours"
    outputs.mkdir()
    subprocess.run([arguments.onnxd, "run", str(model), "--inputs", f"{folder}/inputs", "--outputs", str(outputs),
                    "--precision", arguments.precision], check=True, capture_output=True)
    cosine, error = 1.0, 0.0
    for path in (folder / "outputs").glob("*.npy"):
        wanted = numpy.load(path).astype(numpy.float64).ravel()
        proto = onnx.TensorProto.FromString((outputs / f"output_{path.stem}.pb").read_bytes())
        got = onnx.numpy_helper.to_array(proto).astype(numpy.float64).ravel()
        if not wanted.any():
            raise RuntimeError("an output of zeros cannot be compared")
        cosine = min(cosine, wanted @ got / numpy.sqrt((wanted @ wanted) * (got @ got)))
        error = max(error, numpy.abs(wanted - got).max() / (wanted.max() - wanted.min()))
    return cosine, error


def race(model, arguments, idle=None):
    sizes = dict((name, int(size)) for name, size in (text.split("=") for text in arguments.dim))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "inputs").mkdir()
        (folder / "outputs").mkdir()
        write_inputs(model, folder, arguments.batch, sizes)
        theirs = Racer([sys.executable, "-c", PEER, str(model), name, str(arguments.threads), *arguments.peer_config])
        largest = convert_outputs(folder)
        near = nearness(model, folder, arguments) if arguments.precision != "fp32" else ()
        ours = Racer([arguments.onnxd, "bench", str(model), "--threads", str(arguments.threads), "--paced", "--json",
                      "--inputs", f"{name}/inputs", "--compare", f"{name}/outputs", "--precision", arguments.precision,
                      "--rtol", "1e-3", "--atol", str(arguments.tolerance * largest)])
        once = max(min(racer.milliseconds(2) for _ in range(4)) for racer in (theirs, ours))
        runs = max(arguments.runs, int(arguments.turn / max(once, 1e-4)))
        peak = Racer([arguments.peak]) if arguments.peak else None
        billions = operations(model, folder) / 1e9 if peak else 0
        pairs, ceilings, speeds = [], [], []
        for i in range(arguments.rounds):
            first, second = (theirs, ours) if i % 2 == 0 else (ours, theirs)
            a, b = first.milliseconds(runs), second.milliseconds(runs)
            times = (a, b) if i % 2 == 0 else (b, a)
            if idle is not None and once < 0.2:  # each round takes off what a call cost then
                calls = [racer.milliseconds(200) for racer in idle]
                if min(times) < 0.1:
                    times = tuple(max(t - call, 0.05 * t) for t, call in zip(times, calls))
            pairs.append(times)
            if peak:
                milliseconds = peak.milliseconds(3)
                speeds.append(1000 / milliseconds)
                ceilings.append(times[0] / (billions * milliseconds))
        peer, own = theirs.report(), ours.report()
        if peak:
            peak.report()
        prepared = prepared_load_ms(model, name, arguments)
    return {"model": name_of(model), "onnxruntime_ms": statistics.median(a for a, _ in pairs),
            "onnxd_ms": statistics.median(b for _, b in pairs), "ratio": statistics.median(a / b for a, b in pairs),
            "rounds": len(pairs), "runs_per_turn": runs, "threads": arguments.threads,
            "load_ms": [peer["load_ms"], own["load_ms"], prepared],
            "model_rss_bytes": [peer["model_rss_bytes"], own["model_rss_bytes"]],
            "peak_rss_bytes": [peer["peak_rss_bytes"], own["peak_rss_bytes"]], "onnxruntime": peer["version"],
            **({"precision": arguments.precision, "cosine": near[0], "error": near[1]} if near else {}),
            **({"gigaoperations": billions, "peak_per_s": statistics.median(speeds), "ceiling": statistics.median(ceilings)} if peak else {})}


def idle_racers(arguments, folder):
    """Both engines with one Identity of one number: what a call costs that computes nothing."""
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "nothing",
                                   [value("x", 1, [1])], [value("y", 1, [1])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = pathlib.Path(folder) / "identity.onnx"
    onnx.save(model, path)
    (pathlib.Path(folder) / "inputs").mkdir()
    (pathlib.Path(folder) / "outputs").mkdir()
    write_inputs(path, pathlib.Path(folder), 1, {})
    return (Racer([sys.executable, "-c", PEER, str(path), folder, str(arguments.threads)]),
            Racer([arguments.onnxd, "bench", str(path), "--threads", str(arguments.threads), "--paced", "--json",
                   "--inputs", f"{folder}/inputs"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--onnxd", default=str(pathlib.Path(__file__).parents[2] / "build/release/tools/onnxd"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=30, help="milliseconds that one turn lasts")
    parser.add_argument("--runs", type=int, default=5,
                        help="of one turn, at least: the first one finds what the other engine left in the caches, and "
                             "with 1 slow models are timed by such runs alone")
    parser.add_argument("--batch", type=int, default=1, help="the size of free dimensions")
    parser.add_argument("--dim", action="append", default=[], help="NAME=SIZE of one free dimension")
    parser.add_argument("--tolerance", type=float,
                        help="of the outputs, relative to the largest one; default 1e-4, with bf16 0.2; quantized models "
                             "need more")
    parser.add_argument("--precision", choices=["fp32", "bf16", "bf16x3"], default="fp32", help="of our side")
    parser.add_argument("--peer-config", action="append", default=[],
                        help="KEY=VALUE of onnxruntime's session configuration")
    parser.add_argument("--peak", help="the program bench/session/peak: also print the ceiling")
    parser.add_argument("--json", help="also write the rows into this file")
    arguments = parser.parse_args()
    if arguments.tolerance is None:
        arguments.tolerance = 0.2 if arguments.precision == "bf16" else 1e-4
    with tempfile.TemporaryDirectory() as folder:
        idle = idle_racers(arguments, folder)
        try:
            run_races(arguments, idle)
        finally:
            for racer in idle:
                racer.report()


def run_races(arguments, idle):
    overhead = [statistics.median(racer.milliseconds(200) for _ in range(9)) for racer in idle]
    print(f"A call that computes nothing: onnxruntime {overhead[0]:.4f} ms, onnxd {overhead[1]:.4f} ms.\n")
    more = " cosine | error |" if arguments.precision != "fp32" else ""
    more += " 1e9 operations | reachable a second | ceiling |" if arguments.peak else ""
    print(f"| model | onnxruntime ms | onnxd ms | ratio | load ms | peak MB |{more}\n{'| --- ' * (6 + more.count('|'))}|")
    rows = []
    for model in arguments.models:
        try:
            row = race(model, arguments, idle)
        except RuntimeError as error:
            print(f"| {name_of(model)} | {error} | | | | |", flush=True)
            continue
        rows.append(row)
        load = " / ".join(f"{ms:.0f}" for ms in row["load_ms"])
        peak = " / ".join(f"{size / 1e6:.0f}" for size in row["model_rss_bytes"])
        print(f"| {row['model']} | {row['onnxruntime_ms']:.3f} | {row['onnxd_ms']:.3f} | {row['ratio']:.2f} "
              f"| {load} | {peak} |" + (f" {row['cosine']:.6f} | {row['error']:.1e} |" if "cosine" in row else "")
              + (f" {row['gigaoperations']:.2f} | {row['peak_per_s']:.0f}e9 | {row['ceiling']:.2f} |" if arguments.peak else ""),
              flush=True)
    if rows:
        mean = statistics.geometric_mean(row["ratio"] for row in rows)
        print(f"\nGeometric mean of the ratios: {mean:.2f}")
    if len(rows) < len(arguments.models):
        sys.exit("not every model was raced")
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

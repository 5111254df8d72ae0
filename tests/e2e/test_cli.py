"""The command line: outputs and exit codes."""

import json
import pathlib
import platform
import re
import shutil
import subprocess
import tempfile
import unittest

import numpy
import onnx

import daemon

IRIS = daemon.MODELS / "iris_forest" / "1" / "model.onnx"
CNN = daemon.MODELS / "digits_cnn" / "1" / "model.onnx"


def onnxd(*arguments):
    return subprocess.run([daemon.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=120)


class CommandLine(unittest.TestCase):
    def test_version_and_help(self):
        self.assertRegex(onnxd("--version").stdout, r"^onnxd \d+\.\d+\.\d+\n$")
        self.assertIn("Exit codes", onnxd("--help").stdout)
        for command in ("serve", "run", "bench", "inspect", "check", "optimize", "tokenizer"):
            done = onnxd(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(command, done.stdout)

    def test_usage_errors_exit_with_2(self):
        for arguments in ((), ("nothing",), ("run",), ("run", IRIS), ("bench", IRIS, "--iterations", "x"),
                          ("bench", IRIS, "--optimization", "most"), ("bench", IRIS, "--log-level", "loud"), ("check",)):
            self.assertEqual(onnxd(*arguments).returncode, 2, arguments)

    def test_cache_folder_holds_prepared_models(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "cache"
            for _ in range(2):
                done = onnxd("bench", CNN, "--iterations", 2, "--cache", cache)
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(list(cache.glob("*.prepared"))), 1)
            self.assertEqual(cache.stat().st_mode & 0o777, 0o700)

    # The same binary on a processor of 2003: emulated, so that nothing newer can be used unnoticed.
    @unittest.skipUnless(shutil.which("qemu-x86_64") and platform.machine() == "x86_64",
                         "qemu-user is not installed, or this is no x86-64 machine")
    def test_runs_on_plain_x86_64(self):
        for model in (CNN, daemon.MODELS / "digits_rows" / "1" / "model.onnx"):
            with tempfile.TemporaryDirectory() as folder:
                inputs, outputs = pathlib.Path(folder) / "inputs", pathlib.Path(folder) / "outputs"
                inputs.mkdir()
                outputs.mkdir()
                self.random_inputs(model, inputs)
                done = subprocess.run(["qemu-x86_64", "-cpu", "qemu64", daemon.BINARY, "run", model, "--inputs", inputs,
                                       "--outputs", outputs], capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                compared = onnxd("run", model, "--inputs", inputs, "--compare", outputs)
                self.assertEqual(compared.returncode, 0, compared.stderr)

    @staticmethod
    def random_inputs(model, folder):
        numbers = numpy.random.default_rng(7)
        for value in onnx.load(model).graph.input:
            shape = [d.dim_value or 3 for d in value.type.tensor_type.shape.dim]
            numpy.save(folder / f"{value.name}.npy", numbers.random(shape, numpy.float32))

    def test_run_reads_npy_and_writes_outputs(self):
        with tempfile.TemporaryDirectory() as folder:
            numpy.save(pathlib.Path(folder) / "measurements.npy",
                       numpy.array([[5.1, 3.5, 1.4, 0.2]], numpy.float32))
            done = onnxd("run", IRIS, "--inputs", folder, "--outputs", f"{folder}/out")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("label: int64[1]", done.stdout)
            self.assertEqual(onnxd("run", IRIS, "--inputs", folder, "--compare", f"{folder}/out").returncode, 0)
            numpy.save(pathlib.Path(folder) / "measurements.npy",
                       numpy.array([[6.3, 3.3, 6.0, 2.5]], numpy.float32))
            differ = onnxd("run", IRIS, "--inputs", folder, "--compare", f"{folder}/out")
            self.assertEqual(differ.returncode, 1)
            self.assertIn("output 'label': 1 of 1 elements differ", differ.stderr)
            missing = onnxd("run", CNN, "--inputs", folder)
            self.assertEqual(missing.returncode, 1)
            self.assertIn("no file for input 'image'", missing.stderr)

    def test_bench_gives_one_json_object(self):
        done = onnxd("bench", CNN, "--shape", "image=4x1x8x8", "--iterations", 20, "--json", "--threads", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual((report["batch"], report["threads"], report["iterations"]), (4, 2, 20))
        self.assertEqual(set(report), {"model", "threads", "batch", "iterations", "latency_ms",
                                       "throughput_per_s", "load_ms", "first_run_ms", "peak_rss_bytes",
                                       "model_rss_bytes", "provider"})
        self.assertLess(report["model_rss_bytes"], report["peak_rss_bytes"])
        self.assertGreater(report["model_rss_bytes"], 0)
        self.assertLessEqual(report["latency_ms"]["min"], report["latency_ms"]["median"])
        self.assertEqual(onnxd("bench", CNN, "--shape", "nope=1").returncode, 1)
        wrong = onnxd("bench", CNN, "--shape", "image=1x2x8x8")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("expected float[batch, 1, 8, 8], got float[1, 2, 8, 8]", wrong.stderr)

    def test_bench_profiles_each_node(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace.json"
            done = onnxd("bench", CNN, "--iterations", 5, "--profile", trace)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = [(float(ms), name) for ms, name in
                    re.findall(r"^ *([\d.-]+) ms +[\d.-]+% +\d+  (.+)$", done.stdout, re.MULTILINE)]
            wall = next(ms for ms, name in rows if name == "wall time")
            self.assertAlmostEqual(sum(ms for ms, name in rows if name != "wall time"), wall, delta=0.002)
            events = json.loads(trace.read_text())["traceEvents"]
            run, nodes = events[0], events[1:]
            self.assertEqual((run["name"], run["ph"]), ("Run", "X"))
            self.assertTrue(nodes)
            for node in nodes:
                self.assertIn("op", node["args"])
                self.assertGreaterEqual(node["ts"], run["ts"])
                self.assertLessEqual(node["ts"] + node["dur"], run["ts"] + run["dur"] + 0.001)
            self.assertEqual(onnxd("bench", CNN, "--profile", f"{folder}/none/x").returncode, 1)

    def test_inspect_shows_the_graph_after_a_stage(self):
        loaded = onnxd("inspect", CNN, "--stage", "loaded").stdout
        self.assertIn("input image: float[batch, 1, 8, 8]", loaded)
        self.assertIn("Conv(", loaded)
        self.assertIn("com.microsoft::FusedConv(", onnxd("inspect", CNN, "--stage", "optimized").stdout)
        plain = onnxd("inspect", CNN, "--stage", "final", "--optimization", "disable").stdout
        self.assertEqual(plain, loaded)
        self.assertEqual(onnxd("inspect", CNN, "--stage", "packed").returncode, 2)

    def test_inspect(self):
        report = json.loads(onnxd("inspect", IRIS, "--json").stdout)
        self.assertEqual(report["inputs"], [{"name": "measurements", "type": "float[batch, 4]"}])
        self.assertEqual(report["operators"]["ai.onnx.ml::TreeEnsembleClassifier"], 1)
        self.assertNotIn("values", report)
        values = json.loads(onnxd("inspect", CNN, "--json", "--values").stdout)["values"]
        self.assertTrue(all(re.fullmatch(r"float\[batch(, \d+)+\]", value["type"]) for value in values), values)
        self.assertIn("value       ", onnxd("inspect", CNN, "--values").stdout)
        self.assertTrue(re.search(r"input +image: float\[batch, 1, 8, 8\]", onnxd("inspect", CNN).stdout))

    def test_external_data_beneath_the_model_alone(self):
        model = onnx.load(CNN)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model" / "model.onnx"
            path.parent.mkdir()
            onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
            inputs = pathlib.Path(folder) / "in"
            inputs.mkdir()
            numpy.save(inputs / "image.npy", numpy.full((2, 1, 8, 8), 0.5, numpy.float32))
            self.assertEqual(onnxd("run", CNN, "--inputs", inputs, "--outputs", inputs).returncode, 0)
            same = onnxd("run", path, "--inputs", inputs, "--compare", inputs)
            self.assertEqual(same.returncode, 0, same.stderr)
            weights = path.parent / "weights.bin"
            weights.rename(pathlib.Path(folder) / "weights.bin")
            weights.symlink_to(pathlib.Path(folder) / "weights.bin")
            refused = onnxd("check", path)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("cannot be opened beneath the model's folder", refused.stderr)
            weights.unlink()
            weights.write_bytes(b"short")
            self.assertIn("is outside its file of 5 bytes", onnxd("check", path).stderr)

    def external(self, name, array, location, **range_of):
        """A float initializer of the array's shape whose elements are in a file."""
        tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=array.shape,
                                  data_location=onnx.TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value=location)
        for key, number in range_of.items():
            tensor.external_data.add(key=key, value=str(number))
        return tensor

    def test_external_data_in_several_files_at_any_offset_beyond_two_gigabytes(self):
        far, wide = 2**31 + 5, 2**29 + 3  # an odd byte behind 2 GiB; a tensor of 2 GiB and 12 bytes
        near, behind = numpy.array([1, 2, 3], numpy.float32), numpy.array([10, 20, 30], numpy.float32)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "more").mkdir()
            (path / "a.bin").write_bytes(b"\0" * 3 + near.tobytes())
            with open(path / "more" / "b.bin", "wb") as sparse:  # holes take no space
                sparse.seek(far)
                sparse.write(behind.tobytes())
            with open(path / "c.bin", "wb") as sparse:
                sparse.seek(4 * wide - 12)
                sparse.write((near * 100).tobytes())
            initializers = [self.external("near", near, "a.bin", offset=3),
                            self.external("behind", behind, "more/b.bin", offset=far, length=12),
                            self.external("wide", numpy.broadcast_to(numpy.float32(0), (wide,)), "c.bin"),
                            onnx.numpy_helper.from_array(numpy.array([wide - 3, wide - 2, wide - 1]), "last")]
            make = onnx.helper.make_node
            nodes = [make("Add", ["x", "near"], ["a"]), make("Add", ["a", "behind"], ["b"]),
                     make("Gather", ["wide", "last"], ["c"]), make("Add", ["b", "c"], ["y"])]
            types = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy"]
            graph = onnx.helper.make_graph(nodes, "g", types[:1], types[1:], initializers)
            model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
            (path / "model.onnx").write_bytes(model.SerializeToString())
            numpy.save(path / "x.npy", numpy.zeros(3, numpy.float32))
            numpy.save(path / "y.npy", near + behind + 100 * near)
            for level in ("disable", "all"):
                same = onnxd("run", path / "model.onnx", "--inputs", path, "--compare", path, "--optimization", level)
                self.assertEqual(same.returncode, 0, same.stderr)

    def test_unknown_operators_are_refused_with_what_would_help(self):
        helps = {"": "is the model newer than this onnxd?", "com.microsoft": "it is onnxruntime's own",
                 "ai.onnx.contrib": "it belongs to onnxruntime-extensions", "com.example": "is the plug-in"}
        types = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy"]
        for domain, help_text in helps.items():
            node = onnx.helper.make_node("Nowhere", ["x"], ["y"], name="odd", domain=domain)
            imports = [onnx.helper.make_opsetid(name, 1 if name else 17) for name in {"", domain}]
            model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", types[:1], types[1:]), opset_imports=imports)
            with self.subTest(domain=domain), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "model.onnx"
                path.write_bytes(model.SerializeToString())
                refused = onnxd("check", path)
                self.assertEqual(refused.returncode, 1)
                self.assertIn(f"node 'odd': operator {domain and domain + '::'}Nowhere of opset", refused.stderr)
                self.assertIn(help_text, refused.stderr)

    def test_plugins(self):
        node = onnx.helper.make_node("ClampedAffine", ["x"], ["y"], domain="com.example", scale=2.0, low=-1.0, high=1.0)
        types = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy"]
        model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", types[:1], types[1:]),
                                       opset_imports=[onnx.helper.make_opsetid("com.example", 1)])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.onnx"
            onnx.save(model, path)
            numpy.save(f"{folder}/x.npy", numpy.array([-3, 0.25, 3], numpy.float32))
            done = onnxd("run", path, "--inputs", folder, "--outputs", folder, "--plugins", daemon.EXAMPLE_PLUGIN)
            self.assertEqual(done.returncode, 0, done.stderr)
            y = onnx.numpy_helper.to_array(onnx.load_tensor(f"{folder}/output_0.pb"))
            self.assertEqual(y.tolist(), [-1, 0.5, 1])
            without = onnxd("check", path)
            self.assertEqual(without.returncode, 1)
            self.assertIn("operator com.example::ClampedAffine of opset 1 is unknown; is the plug-in", without.stderr)
            missing = onnxd("check", path, "--plugins", "/nowhere.so")
            self.assertEqual(missing.returncode, 1)
            self.assertIn("plug-in '/nowhere.so' does not load", missing.stderr)

    def test_check(self):
        self.assertEqual(onnxd("check", CNN).returncode, 0)
        with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
            file.write(CNN.read_bytes()[:1000])
            file.flush()
            done = onnxd("check", file.name)
        self.assertEqual(done.returncode, 1)
        self.assertIn("INVALID_ARGUMENT", done.stderr)
        self.assertEqual(onnxd("check", "/nowhere.onnx").returncode, 1)


if __name__ == "__main__":
    unittest.main()

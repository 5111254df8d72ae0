"""Providers of devices: chosen by priority, left out where the machine has none, the same answers."""

import concurrent.futures
import contextlib
import ctypes
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

import numpy
import onnx
from onnx import numpy_helper

import daemon
import decoders
import test_generation

CNN = daemon.MODELS / "digits_cnn" / "1" / "model.onnx"


def opens(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


HAS_CUDA = opens("libcuda.so.1")
HAS_NVRTC = any(opens(f"{folder}libnvrtc.so{version}") for folder in ("", "/usr/local/cuda/lib64/")
                for version in (".13", ".12", ""))
FAKE_CUDA = pathlib.Path(daemon.BINARY).resolve().parent.parent / "tests" / "libfake_cuda.so"
OFFLOAD = FAKE_CUDA.with_name("liboffload.so")
HAS_OPENCL = opens("libOpenCL.so.1") and any(pathlib.Path("/etc/OpenCL/vendors").glob("*.icd"))


def onnxd(*arguments):
    return subprocess.run([daemon.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def random_rows():
    shape = [dimension.dim_value or 3 for dimension in onnx.load(CNN).graph.input[0].type.tensor_type.shape.dim]
    return numpy.random.default_rng(1).random(shape, dtype=numpy.float32)


def predict(server, rows, model="digits_cnn", name="image"):
    body = json.dumps({"inputs": [{"name": name, "shape": list(rows.shape), "datatype": "FP32",
                                   "data": rows.flatten().tolist()}]}).encode()
    request = urllib.request.Request(f"{server.url}/v2/models/{model}/infer", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return [output["data"] for output in json.load(reply)["outputs"]]


def metrics_of(server):
    with urllib.request.urlopen(f"{server.url}/metrics", timeout=10) as reply:
        return reply.read().decode().splitlines()


def eventually(holds, timeout=10):
    deadline = time.monotonic() + timeout
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    return holds()


def layer():
    """ClampedAffine(Relu(x times w)), of which the plug-ins know one part each."""
    nodes = [onnx.helper.make_node("MatMul", ["x", "w"], ["product"]), onnx.helper.make_node("Relu", ["product"], ["kept"]),
             onnx.helper.make_node("ClampedAffine", ["kept"], ["y"], domain="com.example", low=-1.0, high=1.5)]
    model = daemon.model_of(nodes, [("x", onnx.TensorProto.FLOAT, ["batch", 2])], [("y", onnx.TensorProto.FLOAT, ["batch", 2])],
                            [("w", numpy.array([[1, 3], [2, -4]], numpy.float32))])
    model.opset_import.append(onnx.helper.make_opsetid("com.example", 1))
    return model


@contextlib.contextmanager
def asking_all_the_while(test, ask, wanted):
    """What is done meanwhile must not make a request fail, or its answer another."""
    stop, failures, answers = threading.Event(), [], [0]

    def go_on():
        while not stop.is_set():
            try:
                for plain, got in zip(wanted, ask(), strict=True):
                    numpy.testing.assert_allclose(got, plain, rtol=1e-4, atol=1e-5)
                answers[0] += 1
            except Exception as failure:  # any: a gap would be one
                failures.append(failure)

    asking = threading.Thread(target=go_on)
    asking.start()
    try:
        yield
    finally:
        stop.set()
        asking.join()
    test.assertEqual(failures, [])
    test.assertGreater(answers[0], 10)


class Devices(unittest.TestCase):
    @unittest.skipIf(HAS_CUDA, "this machine has NVIDIA's driver")
    def test_without_a_driver_the_cpu_serves_and_one_line_says_why(self):
        with daemon.Daemon(daemon.MODELS, "--providers", "cuda,cpu") as server:
            self.assertTrue(server.logged("provider cuda is left out: CUDA: cannot open libcuda.so.1"))
            with urllib.request.urlopen(f"{server.url}/v2/health/ready", timeout=10) as reply:
                self.assertEqual(reply.status, 200)
            self.assertEqual(sum("provider cuda" in line for line in server.stderr_lines), 1)

    @unittest.skipUnless(HAS_NVRTC and FAKE_CUDA.exists(), "no NVRTC on this machine")
    def test_a_lost_device_ends_the_process_with_its_reason(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):  # a driver without a GPU that computes nothing
                (pathlib.Path(folder) / name).symlink_to(FAKE_CUDA)
            path = os.pathsep.join([folder, os.environ.get("LD_LIBRARY_PATH", "")])
            with daemon.Daemon(CNN, "--providers", "cuda,cpu", "--model-name", "digits_cnn",
                               environment={"LD_LIBRARY_PATH": path,
                                            "FAKE_CUDA_LOST": f"{folder}/lost"}) as server:
                predict(server, random_rows())
                for line in ('onnxd_device_utilization_ratio{device="cuda:0"} 0.75',
                             'onnxd_device_power_watts{device="cuda:0"} 123.5',
                             'onnxd_device_memory_bytes{device="cuda:0",kind="all_processes"} 600',
                             'onnxd_device_lost{device="cuda:0"} 0'):
                    self.assertTrue(eventually(lambda: line in metrics_of(server)), line)
                (pathlib.Path(folder) / "lost").touch()
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    predict(server, random_rows())
                self.assertEqual(refused.exception.code, 503)
                self.assertEqual(server.process.wait(timeout=30), 5)
                self.assertTrue(server.logged("cuda:0: CUDA: cuStreamSynchronize failed with CUDA_ERROR_LAUNCH_FAILED (719)"))

    @unittest.skipUnless(HAS_OPENCL, "no OpenCL on this machine")
    def test_a_device_answers_as_the_cpu_does(self):
        rows = random_rows()
        answers = []
        for providers in ("cpu", "opencl,cpu", "fused,cpu"):
            with daemon.Daemon(daemon.MODELS, "--providers", providers) as server:
                answers.append(predict(server, rows))
        for answer in answers[1:]:
            for plain, device in zip(answers[0], answer):
                numpy.testing.assert_allclose(device, plain, rtol=1e-4, atol=1e-5)

    @unittest.skipUnless(HAS_OPENCL, "no OpenCL on this machine")
    def test_a_models_providers_are_its_own_and_change_without_a_gap(self):
        rows = random_rows()
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "digits_cnn"
            shutil.copytree(CNN.parent.parent, model)
            with daemon.Daemon(folder, environment={"ONNXD_MODELS_POLL_INTERVAL_S": "1"}) as server:
                plain = predict(server, rows)
                with asking_all_the_while(self, lambda: predict(server, rows), plain):
                    for providers, options, said in (
                            ("fused", "gpu_mem_limit: 500000000", r"loaded in .*: fused runs \d+ nodes"),
                            ("opencl", "gpu_mem_limit: 400000000", r"loaded in .*: opencl runs \d+ nodes"),
                            # Too little: the old one goes on.
                            ("opencl", "gpu_mem_limit: 20000", r"RESOURCE_EXHAUSTED"),
                            ("opencl", "device_id: 77", r"provider opencl is left out: .*no device 77")):
                        self.change(server, model, providers, options, said)

    def change(self, server, model, providers, options, said):
        (model / "model.yaml").write_text(f"providers: [{providers}, cpu]\nprovider_options:\n  {options}\n")
        self.assertTrue(eventually(lambda: any(re.search(said, line) for line in server.stderr_lines), 30),
                        (said, server.stderr_lines[-5:]))

    def test_a_providers_plugin_beside_one_of_operators(self):
        x = numpy.array([[1, -2]], numpy.float32)
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "layer"
            (model / "1").mkdir(parents=True)
            onnx.save(layer(), model / "1" / "model.onnx")
            with daemon.Daemon(folder, "--plugins", f"{OFFLOAD},{daemon.EXAMPLE_PLUGIN}",
                               environment={"ONNXD_MODELS_POLL_INTERVAL_S": "1"}) as server:
                def ask():
                    return predict(server, x, "layer", "x")
                plain = ask()
                self.assertEqual(plain, [[0, 1.5]])
                with asking_all_the_while(self, ask, plain):
                    for options, said in (("plugin: limit_bytes=1000000", r"loaded in .*offload 2"),
                                          ("plugin: limit_bytes=100", r"RESOURCE_EXHAUSTED.*more than limit_bytes|limit_bytes is used up"),
                                          ("plugin: limit_bytes=much", r"limit_bytes is not a number"),
                                          ("plugin: much", r"'much' is not NAME=VALUE")):
                        self.change(server, model, "offload", options, said)
                self.assertTrue(any('onnxd_device_memory_bytes{device="offload:0"' in line for line in metrics_of(server)))

    @unittest.skipUnless(HAS_OPENCL, "no OpenCL on this machine")
    def test_inspect_tells_who_runs_what_and_why(self):
        done = onnxd("inspect", CNN, "--partitions", "--providers", "opencl,cpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^opencl   node .*Conv")
        self.assertRegex(done.stdout, r"(?m)^session  node .*CopyToHost")
        self.assertRegex(done.stdout, r"(?m)^opencl runs \d+ nodes$")
        trees = onnxd("inspect", daemon.MODELS / "iris_forest" / "1" / "model.onnx", "--partitions", "--providers",
                      "opencl,cpu")
        self.assertRegex(trees.stdout, r"(?m)^cpu      node .*TreeEnsemble.*: opencl: it has no kernel for TreeEnsemble")

    @unittest.skipUnless(HAS_OPENCL, "no OpenCL on this machine")
    def test_kernels_are_compiled_ahead_of_time(self):
        with tempfile.TemporaryDirectory() as folder:
            cache = pathlib.Path(folder) / "cache"

            def compiled(*profile):
                done = onnxd("compile", CNN, "--providers", "fused,cpu", "--cache", cache, *profile)
                self.assertEqual(done.returncode, 0, done.stderr)
                return tuple(int(n) for n in re.search(r"(\d+) compiled, (\d+) found", done.stdout).groups())

            first, _ = compiled("--profile", "image=1x1x8x8:4x1x8x8:16x1x8x8")
            self.assertGreater(first, 0)
            self.assertEqual(compiled("--profile", "image=1x1x8x8:4x1x8x8:16x1x8x8"), (0, first))
            victim = sorted(cache.glob("*.kernel"))[0]
            victim.write_bytes(victim.read_bytes()[:-1])
            self.assertEqual(compiled("--profile", "image=1x1x8x8:4x1x8x8:16x1x8x8"), (1, first - 1))
            wrong = onnxd("compile", CNN, "--providers", "fused,cpu", "--cache", cache, "--profile", "picture=1x1x8x8")
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("--profile picture: the model has no such input", wrong.stderr)

    @unittest.skipUnless(HAS_OPENCL, "no OpenCL on this machine")
    def test_products_stay_float_where_outputs_would_not_be_near(self):
        with tempfile.TemporaryDirectory() as folder:
            def compiled(*flags):
                return onnxd("compile", CNN, "--cache", pathlib.Path(folder) / "cache", *flags)

            device = ("--providers", "fused,cpu", "--precision", "fp16")
            near = compiled(*device, "--tolerance", "0.01")
            self.assertEqual(near.returncode, 0, near.stderr)
            self.assertRegex(near.stdout, r"with all 4 products in fp16; .* with 0 in float")
            exact = compiled(*device, "--tolerance", "1e-9")
            self.assertEqual(exact.returncode, 0, exact.stderr)
            self.assertRegex(exact.stdout, r"; 0 with 4 in float")
            layers = re.search(r'float_layers: "(.*)"', exact.stdout).group(1)
            # As model.yaml would have it: the graph has no cast left.
            shown = onnxd("inspect", CNN, "--stage", "final", *device, "--provider-options", f"float_layers={layers}")
            self.assertNotIn("float16", shown.stdout)
            self.assertIn("float16", onnxd("inspect", CNN, "--stage", "final", *device).stdout)
            for flags in (("--precision", "fp16", "--tolerance", "1"), (*device[:2], "--tolerance", "1")):
                self.assertIn("--tolerance is of", compiled(*flags).stderr)

    def test_inspect_without_a_device_names_the_first_that_takes_a_node(self):
        done = onnxd("inspect", CNN, "--partitions")
        self.assertRegex(done.stdout, r"(?m)^cpu runs \d+ nodes$")
        self.assertNotIn(": cpu:", done.stdout)

    @unittest.skipUnless(HAS_OPENCL, "no OpenCL on this machine")
    def test_an_index_in_the_data_that_is_outside_is_the_requests_fault(self):
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Gather", ["table", "index"], ["row"], name="look_up"),
             onnx.helper.make_node("Softmax", ["row"], ["y"])], "look_up",
            [onnx.helper.make_tensor_value_info("index", onnx.TensorProto.INT64, ["n"])],
            [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", 4])],
            [numpy_helper.from_array(numpy.arange(20, dtype=numpy.float32).reshape(5, 4), "table")])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "look_up.onnx"
            onnx.save(model, path)
            inputs = pathlib.Path(folder) / "inputs"
            inputs.mkdir()
            for index, code in (([0, -1, 4], 0), ([0, 7], 1)):
                (inputs / "input_0.pb").write_bytes(
                    numpy_helper.from_array(numpy.array(index, numpy.int64)).SerializeToString())
                done = onnxd("run", path, "--inputs", inputs, "--providers", "opencl,cpu")
                self.assertEqual(done.returncode == 0, code == 0, done.stderr)
            self.assertIn("INVALID_ARGUMENT", done.stderr)
            self.assertIn("'look_up' (Gather): index 7 is out of range", done.stderr)


@unittest.skipUnless(HAS_OPENCL, "no OpenCL on this machine")
class Generation(test_generation.GenerationCase):
    def test_states_stay_on_the_device(self):
        """But while texts join and leave, whose states go by the host."""
        for positions, way in ((False, "one by one"), (True, "padded before their tokens")):
            with self.subTest(positions=positions):
                self.put(1 + positions, decoders.decoder(test_generation.WEIGHTS, positions=positions))
                self.files("providers: [fused, cpu]\n", version=1 + positions)
                served = self.serve()
                prompts = test_generation.PROMPTS * 2
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    texts = list(pool.map(lambda prompt: self.texts(served, prompt), prompts))
                self.assertEqual(texts, [[test_generation.written(prompt)] for prompt in prompts])
                self.assertTrue(served.logged(f"sequences take steps {way}, states stay on the device"))
                served.close()

    def test_is_prepared_ahead_of_time(self):
        """Kernels that prompts and steps of such shapes need are not compiled again."""
        self.put(1, decoders.decoder(test_generation.WEIGHTS))
        self.files("providers: [fused, cpu]\n")
        with tempfile.TemporaryDirectory() as cache:
            model = next(pathlib.Path(self.folder).rglob("model.onnx"))
            flags = ("compile", model, "--providers", "fused,cpu", "--cache", cache, "--texts")
            done = onnxd(*flags, "--profile", "input_ids=1x6:4x6")
            self.assertEqual(done.returncode, 0, done.stderr)
            kernels = {file.name for file in pathlib.Path(cache).glob("*.kernel")}
            self.assertGreater(len(kernels), 0)
            served = self.serve(self.folder, "--cache", cache)
            self.assertEqual(self.texts(served, test_generation.PROMPTS[0]), [test_generation.written(test_generation.PROMPTS[0])])
            served.close()
            self.assertEqual({file.name for file in pathlib.Path(cache).glob("*.kernel")}, kernels)
            wrong = onnxd(*flags, "--profile", "attention_mask=1x6")
            self.assertEqual(wrong.returncode, 1)
            self.assertIn("--profile attention_mask: with --texts they are of input_ids", wrong.stderr)
        wrong = onnxd("compile", CNN, "--providers", "fused,cpu", "--cache", self.folder, "--texts")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("it has no inputs 'input_ids' and 'past...'", wrong.stderr)


if __name__ == "__main__":
    unittest.main()

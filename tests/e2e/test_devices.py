"""Providers of devices: chosen by priority, left out where the machine has none, the same answers."""

import ctypes
import json
import pathlib
import subprocess
import tempfile
import unittest
import urllib.request

import numpy
import onnx
from onnx import numpy_helper

import daemon

CNN = daemon.MODELS / "digits_cnn" / "1" / "model.onnx"


def opens(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


HAS_CUDA = opens("libcuda.so.1")
HAS_OPENCL = opens("libOpenCL.so.1") and any(pathlib.Path("/etc/OpenCL/vendors").glob("*.icd"))


def onnxd(*arguments):
    return subprocess.run([daemon.BINARY, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def predict(server, rows):
    body = json.dumps({"inputs": [{"name": "image", "shape": list(rows.shape), "datatype": "FP32",
                                   "data": rows.flatten().tolist()}]}).encode()
    request = urllib.request.Request(f"{server.url}/v2/models/digits_cnn/infer", body,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return [output["data"] for output in json.load(reply)["outputs"]]


class Devices(unittest.TestCase):
    @unittest.skipIf(HAS_CUDA, "this machine has NVIDIA's driver")
    def test_without_a_driver_the_cpu_serves_and_one_line_says_why(self):
        with daemon.Daemon(daemon.MODELS, "--providers", "cuda,cpu") as server:
            self.assertTrue(server.logged("provider cuda is left out: CUDA: cannot open libcuda.so.1"))
            with urllib.request.urlopen(f"{server.url}/v2/health/ready", timeout=10) as reply:
                self.assertEqual(reply.status, 200)
            self.assertEqual(sum("provider cuda" in line for line in server.stderr_lines), 1)

    @unittest.skipUnless(HAS_OPENCL, "no OpenCL on this machine")
    def test_a_device_answers_as_the_cpu_does(self):
        shape = [dimension.dim_value or 3 for dimension in
                 onnx.load(CNN).graph.input[0].type.tensor_type.shape.dim]
        rows = numpy.random.default_rng(1).random(shape, dtype=numpy.float32)
        answers = []
        for providers in ("cpu", "opencl,cpu"):
            with daemon.Daemon(daemon.MODELS, "--providers", providers) as server:
                answers.append(predict(server, rows))
        for plain, device in zip(*answers):
            numpy.testing.assert_allclose(device, plain, rtol=1e-4, atol=1e-5)

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


if __name__ == "__main__":
    unittest.main()

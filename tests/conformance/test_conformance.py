"""Every ONNX backend test case passes on the CPU provider, but those in known_gaps/cpu.txt; and on
the GPU's kernels, of which PoCL runs a fixed tenth of the cases, or all with CONFORMANCE_EVERY=1."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import onnx

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def without_output_types(cases, folder):
    """The cases once more in `folder`, their models' outputs declared by name alone."""
    for path in cases.glob("*/model.onnx"):
        model = onnx.load(path)
        for output in model.graph.output:
            output.ClearField("type")
        case = folder / path.parent.name
        case.mkdir()
        onnx.save(model, case / "model.onnx")
        for data in path.parent.glob("test_data_set_*"):
            (case / data.name).symlink_to(data)


class Conformance(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = subprocess.run([sys.executable, HERE / "data.py", ROOT / "build" / "conformance"], check=True,
                                    capture_output=True, text=True).stdout.strip()

    def run_program(self, variable, *arguments, folder=None):
        done = subprocess.run([os.environ[variable], folder or self.folder, *arguments], capture_output=True,
                              text=True)
        print(done.stdout[-4000:], done.stderr[-2000:])
        if done.returncode == SKIPPED:
            self.skipTest(done.stdout.strip())
        self.assertEqual(done.returncode, 0)

    def run_all(self, *flags, folder=None):
        self.run_program("TEST_CONFORMANCE", "--known-gaps", HERE / "known_gaps" / "cpu.txt",
                         "--tolerances", HERE / "tolerances.txt", *flags, folder=folder)

    def test_all_cases(self):
        self.run_all()

    def test_all_cases_with_function_bodies(self):
        self.run_all("--expand-functions")

    def test_types_that_the_model_leaves_out(self):
        with tempfile.TemporaryDirectory() as root:
            folder = pathlib.Path(root) / "node" / "current"
            folder.mkdir(parents=True)
            without_output_types(pathlib.Path(self.folder) / "node" / "current", folder)
            self.run_all(folder=root)

    def test_devices(self):
        for provider in ("opencl", "fused"):
            with self.subTest(provider):
                self.run_all("--providers", provider, "--every", os.environ.get("CONFORMANCE_EVERY", "10"), "--nvrtc")

    def test_other_float_types(self):
        for element, relative, absolute in (("double", "1e-3", "1e-5"), ("float16", "2e-2", "1e-2"),
                                            ("bfloat16", "8e-2", "5e-2")):
            with self.subTest(element):
                self.run_program("TEST_ELEMENT_TYPES", element, "--filter", "node/current", "--relative", relative,
                                 "--absolute", absolute, "--known-gaps", HERE / "known_gaps" / "element_types.txt")


if __name__ == "__main__":
    unittest.main()

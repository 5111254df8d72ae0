"""The embedded models equal onnxruntime, at every optimization level and batch size."""

import pathlib
import subprocess
import tempfile
import unittest

import numpy
import onnxruntime
from onnx import numpy_helper

import daemon


class EmbeddedModels(unittest.TestCase):
    def compare(self, name, data):
        model = daemon.MODELS / name / "1" / "model.onnx"
        session = onnxruntime.InferenceSession(model)
        outputs = session.run(None, {session.get_inputs()[0].name: data})
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "input_0.pb").write_bytes(numpy_helper.from_array(data).SerializeToString())
            for i, output in enumerate(outputs):
                (path / f"output_{i}.pb").write_bytes(numpy_helper.from_array(output).SerializeToString())
            for level in ("disable", "basic", "extended", "all"):
                for threads in ("1", "2"):
                    done = subprocess.run(
                        [daemon.BINARY, "run", model, "--inputs", folder, "--compare", folder, "--rtol",
                         "1e-3", "--atol", "1e-5", "--optimization", level, "--threads", threads],
                        capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, f"{name} {level}: {done.stderr}")

    def test_digits_cnn(self):
        for batch in (1, 7, 32):
            self.compare("digits_cnn", numpy.random.default_rng(batch).random((batch, 1, 8, 8), numpy.float32))

    def test_digits_rows(self):
        for batch in (1, 7, 32):
            self.compare("digits_rows", numpy.random.default_rng(batch).random((batch, 8, 8), numpy.float32))

    def test_iris_forest(self):
        for batch in (1, 7, 100):
            random = numpy.random.default_rng(batch)
            self.compare("iris_forest", (random.random((batch, 4)) * 8).astype(numpy.float32))

    def test_every_model_has_a_readme_line(self):
        text = (daemon.MODELS / "README.md").read_text()
        for folder in daemon.MODELS.iterdir():
            if folder.is_dir() and folder.name != "training":
                self.assertIn(f"`{folder.name}`", text)


if __name__ == "__main__":
    unittest.main()

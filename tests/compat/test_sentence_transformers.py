"""Embeddings of texts are sentence-transformers', and OpenAI's client, unmodified, gets them.

scripts/compat makes the environment of these libraries, whose interpreter is TEST_COMPAT_PYTHON, and runs this.
"""

import json
import pathlib
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
import daemon  # noqa: E402
import libraries  # noqa: E402


@unittest.skipUnless(libraries.PYTHON, libraries.WHY_NOT)
class SentenceTransformers(unittest.TestCase):
    def test_embeddings_are_those_of_the_library(self):
        with tempfile.TemporaryDirectory() as folder:
            libraries.run("sentence_encoders.py", "make", folder)
            for pooling in ("mean", "cls", "lasttoken"):
                with self.subTest(pooling=pooling), daemon.Daemon(pathlib.Path(folder) / pooling, "--texts") as served:
                    texts = (pathlib.Path(folder) / pooling / "texts.json").read_text()
                    expected = numpy.load(f"{folder}/{pooling}/expected.npy")
                    answer = json.loads(libraries.run("sentence_encoders.py", "ask", served.url, pooling, text=texts))
                    numpy.testing.assert_allclose(answer["vectors"], expected, atol=1e-6)
                    self.assertGreater(answer["tokens"], 2 * len(expected))
                    self.assertIn("'no_such_model' is not found", answer["failure"])


if __name__ == "__main__":
    unittest.main()

"""The programs that measure start: what they share with tests moves at times. Nothing is timed here."""

import importlib.util
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What the tests' environment lacks: it is installed to race the peers only.
PEERS = {"make_models.py": "torch", "make_library_models.py": "torch", "make_specialist_models.py": "torch",
         "make_keras_models.py": "keras"}


def programs():
    return [path for path in sorted(ROOT.glob("bench/*/*.py")) if "__main__" in path.read_text()]


class Benchmarks(unittest.TestCase):
    def test_each_program_tells_its_options(self):
        self.assertGreater(len(programs()), 10)
        for path in programs():
            with self.subTest(path.name):
                needed = PEERS.get(path.name)
                if needed and importlib.util.find_spec(needed) is None:
                    continue
                run = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True, timeout=60)
                self.assertEqual(run.returncode, 0, run.stderr)
                self.assertIn("usage:", run.stdout)


if __name__ == "__main__":
    unittest.main()

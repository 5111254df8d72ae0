"""Mutations of ONNX's backend test cases are answered or refused: never a crash, a hang, or memory
beyond the budget."""

import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VENV = ROOT / "build" / "venv" / "bin" / "python"  # has pip, where the cases must be downloaded


class HostileCases(unittest.TestCase):
    def test_mutations(self):
        python = VENV if VENV.exists() else sys.executable
        folder = subprocess.run([python, HERE.parent / "conformance" / "data.py", ROOT / "build" / "conformance"],
                                check=True, capture_output=True, text=True).stdout.strip()
        done = subprocess.run(
            [os.environ["TEST_HOSTILE_CASES"], folder, "--filter", "node/current", "--rounds", "1",
             "--part", os.environ["TEST_PART"]], capture_output=True, text=True, errors="replace",
            # A refused allocation is an answer; more than this at once is not asked for.
            env={**os.environ, "ASAN_OPTIONS": "max_allocation_size_mb=3000:allocator_may_return_null=1"})
        print(done.stdout[-4000:], done.stderr[-8000:])
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()

"""Every ONNX backend test case passes on the CPU provider, but those in known_gaps/cpu.txt."""

import os
import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Conformance(unittest.TestCase):
    def run_all(self, *flags):
        folder = subprocess.run([sys.executable, HERE / "data.py", ROOT / "build" / "conformance"], check=True,
                                capture_output=True, text=True).stdout.strip()
        done = subprocess.run([os.environ["TEST_CONFORMANCE"], folder, "--known-gaps",
                               HERE / "known_gaps" / "cpu.txt", "--tolerances", HERE / "tolerances.txt", *flags],
                              capture_output=True, text=True)
        print(done.stdout[-4000:], done.stderr[-2000:])
        self.assertEqual(done.returncode, 0)

    def test_all_cases(self):
        self.run_all()

    def test_all_cases_with_function_bodies(self):
        self.run_all("--expand-functions")


if __name__ == "__main__":
    unittest.main()

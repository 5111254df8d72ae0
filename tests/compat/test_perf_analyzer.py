"""Triton's perf_analyzer, unmodified, in a root file system of Debian's next release, whose C library it needs.

scripts/compat makes that file system, TEST_COMPAT_ROOT, and runs this.
"""

import csv
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
import daemon  # noqa: E402

ROOT = os.environ.get("TEST_COMPAT_ROOT", "")


@unittest.skipUnless(ROOT and os.geteuid() == 0, "scripts/compat has not made TEST_COMPAT_ROOT, or this is not root")
class PerfAnalyzer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # One shared memory, inside and outside.
        subprocess.run(["mount", "--bind", "/dev/shm", f"{ROOT}/dev/shm"], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", f"{ROOT}/dev/shm"], check=True)
        cls.daemon = daemon.Daemon(daemon.MODELS, environment={
            "ONNXD_SERVER_METRICS_COMPAT": "triton", "ONNXD_SERVER_SHARED_MEMORY": "true"})

    @classmethod
    def tearDownClass(cls):
        cls.daemon.close()

    def analyze(self, protocol, *arguments):
        """A row for each load: what it reports."""
        port = self.daemon.http_port if protocol == "http" else self.daemon.grpc_port
        report = pathlib.Path(ROOT) / "report.csv"
        report.unlink(missing_ok=True)
        done = subprocess.run(
            ["chroot", ROOT, "/venv/bin/perf_analyzer", "-m", "iris_forest", "-i", protocol, "-u", f"127.0.0.1:{port}",
             "-f", "/report.csv", "--request-count", "500", *arguments], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertTrue(report.exists(), done.stdout + done.stderr)
        with open(report) as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            self.assertGreater(float(row["Inferences/Second"]), 100, row)
        return rows, done.stdout

    def test_rest_and_grpc(self):
        for protocol in ("http", "grpc"):
            for concurrency in "1", "3":
                rows, output = self.analyze(protocol, "--concurrency-range", concurrency)
                self.assertEqual([row["Concurrency"] for row in rows], [concurrency])
                self.assertIn("Server Queue", rows[0])  # from the statistics
                self.assertNotIn("Failed", output)

    def test_batches(self):
        rows, _ = self.analyze("grpc", "-b", "8")
        self.assertEqual(len(rows), 1)

    def test_a_stream(self):
        self.analyze("grpc", "--streaming")

    def test_a_rate(self):
        rows, _ = self.analyze("http", "--request-rate-range", "200")
        self.assertAlmostEqual(float(rows[0]["Inferences/Second"]), 200, delta=60)

    def test_system_shared_memory(self):
        for protocol in ("http", "grpc"):
            self.analyze(protocol, "--shared-memory", "system", "--output-shared-memory-size", "1024")

    def test_metrics(self):
        _, output = self.analyze("http", "--collect-metrics", "--metrics-url",
                                 f"http://127.0.0.1:{self.daemon.metrics_port}/metrics", "--verbose-csv")
        self.assertNotIn("WARNING", output)


if __name__ == "__main__":
    unittest.main()

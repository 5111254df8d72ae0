"""How many requests a second a model takes."""

import subprocess
import time
import unittest

import daemon
from repositories import RepositoryCase


class RateLimits(RepositoryCase):
    def ask(self, served, times, headers={}):
        """How many were answered; the others are refused as they should be."""
        answered = 0
        for _ in range(times):
            status, answer, received = self.status(served, headers=headers)
            if status == 200:
                answered += 1
                continue
            self.assertEqual((status, received["Retry-After"]), (429, "1"))
            self.assertIn("model 'm' takes", answer["error"])
        return answered

    def test_more_than_a_burst_are_refused(self):
        self.settings("rate_limit:\n  requests_per_second: 1\n  burst: 5\n")
        served = self.serve()
        self.assertEqual(self.ask(served, 20), 5)
        self.assertEqual(self.metric(served, 'onnxd_requests_shed_total{reason="rate"}'), 15)
        time.sleep(1.1)
        self.assertEqual(self.ask(served, 10), 1)

    def test_the_rate_holds_over_time(self):
        self.settings("rate_limit:\n  requests_per_second: 200\n  burst: 1\n")
        served = self.serve()
        begin, answered = time.monotonic(), 0
        while time.monotonic() < begin + 1:
            answered += self.ask(served, 10)
        passed = time.monotonic() - begin
        self.assertLessEqual(answered, 200 * passed + 2)
        self.assertGreater(answered, 20)

    def test_each_key_has_its_own(self):
        self.settings("rate_limit:\n  key_requests_per_second: 1\n  key_burst: 3\n")
        keys, file = {}, self.folder / ".keys"
        for name in ("a", "b"):
            made = subprocess.run([daemon.BINARY, "keys", "create", name, "--role", "predict", "--file", file], capture_output=True, text=True)
            self.assertEqual(made.returncode, 0, made.stderr)
            keys[name] = {"Authorization": f"Bearer {made.stdout.split()[-1]}"}
        served = self.serve(ONNXD_ACCESS_KEY_FILE=str(file))
        self.assertEqual(self.ask(served, 10, keys["a"]), 3)
        self.assertEqual(self.ask(served, 10, keys["b"]), 3)

    def test_a_changed_limit_holds_at_once(self):
        self.settings("rate_limit:\n  requests_per_second: 1\n")
        served = self.serve()
        self.ask(served, 3)
        self.settings("rate_limit:\n  requests_per_second: 0\n")
        self.assertTrue(self.eventually(lambda: self.ask(served, 10) == 10))


if __name__ == "__main__":
    unittest.main()

"""Texts are those that transformers' generate() writes, and OpenAI's client, unmodified, gets them.

scripts/compat makes the environment of these libraries, whose interpreter is TEST_COMPAT_PYTHON, and runs this.
"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))
import daemon  # noqa: E402
import libraries  # noqa: E402


@unittest.skipUnless(libraries.PYTHON, libraries.WHY_NOT)
class LanguageModels(unittest.TestCase):
    def test_texts_are_those_of_the_library(self):
        with tempfile.TemporaryDirectory() as folder:
            libraries.run("language_models.py", "make", folder)
            for name in ("gpt2", "llama", "qwen2"):
                with self.subTest(model=name), daemon.Daemon(pathlib.Path(folder) / name, "--texts") as served:
                    self.assertTrue(served.logged("sequences take steps padded before their tokens, states are written in place, "
                                                  "with a chat template"))
                    cases = (pathlib.Path(folder) / name / "cases.json").read_text()
                    expected, answer = json.loads(cases), json.loads(libraries.run("language_models.py", "ask", served.url, name, text=cases))
                    self.assertEqual(answer["models"], [name])
                    for way in ("written", "in_pieces", "at_once"):
                        self.assertEqual(answer[way], expected["written"], way)
                    for way in ("answers", "answers_in_pieces"):
                        self.assertEqual(answer[way], expected["answers"], way)
                    for prompt, scores, (text, written, best) in zip(expected["prompts"], expected["scores"], answer["scores"]):
                        self.assertEqual(text, prompt)
                        self.assertIsNone(written[0])
                        self.assertLess(max(abs(a - b) for a, b in zip(scores, written[1:], strict=True)), 1e-3)
                        self.assertTrue(all(a >= b - 1e-6 for a, b in zip(best, written[1:], strict=True)))
                    for text, scores in zip(expected["answers"], answer["talk_scores"]):
                        self.assertEqual(b"".join(bytes(token) for token, _, _ in scores).decode(errors="replace"), text)
                        self.assertTrue(all(own == best for _, own, best in scores))
                    self.assertEqual(answer["talk_tokens"], expected["talk_tokens"])
                    self.assertIn("prompt and answer have 256 together at most", answer["failure"])


if __name__ == "__main__":
    unittest.main()

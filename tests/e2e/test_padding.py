"""Requests of any length become one of few lengths; their answers are as they would have been."""

import concurrent.futures
import json
import unittest

import numpy
from onnx import TensorProto, helper

import daemon
from repositories import RepositoryCase

PADDED = "padding:\n- dimension: length\n  sizes: [4, 8]\n  values: {x: 0, mask: 0}\n  mask: mask\n"


def mean_model():
    """Of each row, the mean of what the mask has, and twice its elements."""
    return daemon.model_of(
        [helper.make_node("Mul", ["x", "mask"], ["kept"]), helper.make_node("ReduceSum", ["kept", "axes"], ["sum"], keepdims=0),
         helper.make_node("ReduceSum", ["mask", "axes"], ["count"], keepdims=0), helper.make_node("Div", ["sum", "count"], ["mean"]),
         helper.make_node("Add", ["x", "x"], ["twice"])],
        [("x", TensorProto.FLOAT, ["batch", "length"]), ("mask", TensorProto.FLOAT, ["batch", "length"])],
        [("mean", TensorProto.FLOAT, ["batch"]), ("twice", TensorProto.FLOAT, ["batch", "length"])],
        [("axes", numpy.array([1], numpy.int64))])


class Padding(RepositoryCase):
    first = mean_model()

    def setUp(self):
        super().setUp()
        self.settings(PADDED)

    def ask(self, served, x, mask=None):
        inputs = {"x": [x]} if mask is None else {"x": [x], "mask": [mask]}
        status, answer, _ = self.status(served, body=json.dumps({"inputs": inputs}).encode())
        self.assertEqual(status, 200, answer)
        outputs = answer["predictions"]
        return round(outputs["mean"][0], 5), outputs["twice"][0]

    def added(self, served):
        return self.metric(served, 'onnxd_padding_elements_total{model="m"}')

    def test_answers_are_those_of_the_request_alone(self):
        served = self.serve()
        for length in range(1, 12):
            x = [float(i + 1) for i in range(length)]
            self.assertEqual(self.ask(served, x), (round(float(numpy.mean(x)), 5), [2 * i for i in x]))
        self.assertEqual(self.ask(served, [1, 2, 3], [1, 0, 1]), (2, [2, 4, 6]))

    def test_only_what_is_between_sizes_is_padded(self):
        served = self.serve()
        before = self.added(served)
        for length, added in ((4, 0), (8, 0), (9, 0), (3, 2), (5, 6)):  # of two inputs
            self.ask(served, [1.0] * length)
            before += added
            self.assertEqual(self.added(served), before)

    def test_requests_of_different_lengths_share_runs(self):
        self.settings(PADDED + "executors: 1\nbatching:\n  max_queue_delay_us: 20000\n")
        served = self.serve()
        self.assertTrue(served.logged("requests may share runs"))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda i: self.ask(served, [float(i)] * (5 + i % 4)), range(200)))
        self.assertEqual([mean for mean, _ in answers], list(range(200)))
        self.assertLess(self.metric(served, 'onnxd_batch_size_count{model="m",version="1"}'), 190)

    def test_a_version_whose_answers_padding_changes_does_not_serve(self):
        self.settings("padding:\n- {dimension: length, sizes: [4], values: {x: 0, mask: 1}}\n")
        served = self.serve()
        status, answer, _ = self.status(served)
        self.assertEqual(status, 503)
        self.assertRegex(answer["error"], "padding of dimension 'length' cannot be shown to change nothing: "
                                          "output 'mean' changes")

    def test_settings_that_do_not_fit_the_model_say_so(self):
        for text, reason in (("dimension: none, sizes: [4], values: {x: 0}", "dimension 'none': no input has it"),
                             ("dimension: length, sizes: [4], values: {x: 0}", "input 'mask' has no value"),
                             ("dimension: length, sizes: [4], values: {x: 0, mask: 0, z: 0}", "a value is of an input")):
            self.settings(f"padding:\n- {{{text}}}\n")
            served = self.serve()
            status, answer, _ = self.status(served)
            self.assertEqual(status, 503)
            self.assertIn(reason, answer["error"])


if __name__ == "__main__":
    unittest.main()

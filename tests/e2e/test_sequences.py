"""Stateful models: what one request leaves, the next of its sequence finds."""

import concurrent.futures
import shutil
import unittest

import numpy
import onnxruntime
from onnx import TensorProto, helper

import daemon
from repositories import RepositoryCase

SUM = ("sequence:\n  enabled: true\n  states:\n  - {input: before, output: after}\n")


def sum_model(factor=1, controls=()):
    """y = after = before + factor * x; each control is an input that adds 1000 times itself."""
    nodes = [helper.make_node("Mul", ["x", "factor"], ["scaled"]), helper.make_node("Add", ["before", "scaled"], ["after"])]
    total = "after"
    inputs = [("x", TensorProto.FLOAT, ["batch", 1]), ("before", TensorProto.FLOAT, ["batch", 1])]
    for name, datatype in controls:
        inputs.append((name, datatype, ["batch", 1]))
        nodes += [helper.make_node("Cast", [name], [name + "_f"], to=TensorProto.FLOAT),
                  helper.make_node("Mul", [name + "_f", "thousand"], [name + "_t"]),
                  helper.make_node("Add", [total, name + "_t"], [total + "_"])]
        total += "_"
    nodes.append(helper.make_node("Identity", [total], ["y"]))
    return daemon.model_of(
        nodes, inputs, [("y", TensorProto.FLOAT, ["batch", 1]), ("after", TensorProto.FLOAT, ["batch", 1])],
        [("factor", numpy.array(factor, numpy.float32)), ("thousand", numpy.array(1000, numpy.float32))])


class Sequences(RepositoryCase):
    first = sum_model()

    def setUp(self):
        super().setUp()
        self.settings(SUM)

    def step(self, served, sequence, x, start=False, end=False, version=""):
        """(status, y or the error)"""
        path = f"/v2/models/m{f'/versions/{version}' if version else ''}/infer"
        parameters = {"sequence_start": start, "sequence_end": end}
        if sequence is not None:
            parameters["sequence_id"] = sequence
        status, answer = self.post(served, path, {
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [x]}], "parameters": parameters})
        return status, answer["outputs"][0]["data"][0] if status == 200 else answer["error"]

    def test_a_sequence_remembers_until_it_ends(self):
        served = self.serve()
        self.assertEqual([self.step(served, 7, x, x == 1, x == 4)[1] for x in (1, 2, 3, 4)], [1, 3, 6, 10])
        status, error = self.step(served, 7, 5)
        self.assertEqual(status, 400)
        self.assertIn("sequence 7 of model 'm' has not begun, or is over", error)
        self.assertEqual(self.step(served, 7, 5, start=True), (200, 5))

    def test_clients_see_neither_state_nor_control(self):
        served = self.serve()
        document = self.get(served, "/v2/models/m")[1]
        self.assertEqual([value["name"] for value in document["inputs"]], ["x"])
        self.assertEqual([value["name"] for value in document["outputs"]], ["y"])
        config = self.get(served, "/v2/models/m/config")[1]
        self.assertEqual(config["sequence_batching"]["state"],
                         [{"input_name": "before", "output_name": "after", "dims": []}])

    def test_two_sequences_on_one_instance_never_mix(self):
        self.settings(SUM + "executors: 1\n")
        served = self.serve()

        def ask(sequence):
            return [self.step(served, sequence, sequence + i, i == 0)[1] for i in range(100)]

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(1, 9)))
        for sequence, sums in zip(range(1, 9), answers):
            self.assertEqual(sums, numpy.cumsum([sequence + i for i in range(100)]).tolist())
        self.assertGreater(self.metric(served, "onnxd_batch_size_sum"), 799)
        self.assertEqual(self.metric(served, 'onnxd_sequences{model="m"}'), 8)

    def test_requests_of_one_sequence_have_their_turn_in_order(self):
        served = self.serve()
        self.step(served, 1, 0, start=True)
        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            sums = list(pool.map(lambda _: self.step(served, 1, 1)[1], range(200)))
        self.assertEqual(sorted(sums), list(range(1, 201)))

    def test_texts_name_sequences_too(self):
        served = self.serve()
        self.assertEqual(self.step(served, "5", 1, start=True), (200, 1))
        self.assertEqual(self.step(served, 5, 10, start=True), (200, 10))
        self.assertEqual(self.step(served, "5", 1), (200, 2))
        self.assertEqual(self.step(served, 5, 10), (200, 20))

    def test_what_names_no_sequence_is_refused(self):
        served = self.serve()
        cases = {None: "needs a sequence_id", 0: "needs a sequence_id", "": "needs a sequence_id",
                 -1: "positive whole number", 1.5: "positive whole number", "x" * 129: "longer than 128 bytes",
                 True: "positive whole number"}
        for sequence, reason in cases.items():
            status, error = self.step(served, sequence, 1, start=True)
            self.assertEqual(status, 400)
            self.assertIn(reason, error)
        self.put(1, sum_model(), "plain")
        self.assertTrue(self.eventually(lambda: self.get(served, "/v2/models/plain/ready")[0] == 200))
        status, answer = self.post(served, "/v2/models/plain/infer", {"inputs": [
            {"name": name, "datatype": "FP32", "shape": [1, 1], "data": [1]} for name in ("x", "before")],
            "parameters": {"sequence_id": 3}})
        self.assertEqual((status, answer["error"]), (400, "model 'plain' keeps no state: it takes no sequence_id"))

    def test_an_idle_sequence_is_over(self):
        self.settings(SUM + "  idle_timeout_ms: 300\n")
        served = self.serve()
        self.step(served, 1, 1, start=True)
        self.assertEqual(self.step(served, 1, 1), (200, 2))
        self.assertTrue(self.eventually(lambda: self.metric(served, 'onnxd_sequences{model="m"}') == 0))
        self.assertEqual(self.step(served, 1, 1)[0], 400)

    def test_there_are_only_so_many(self):
        self.settings(SUM + "  max_sequences: 2\n")
        served = self.serve()
        self.step(served, 1, 1, start=True)
        self.step(served, 2, 1, start=True)
        status, error = self.step(served, 3, 1, start=True)
        self.assertEqual((status, error), (503, "model 'm' has its 2 sequences"))
        self.step(served, 1, 1, end=True)
        self.assertEqual(self.step(served, 3, 1, start=True), (200, 1))

    def test_a_failing_request_leaves_the_state_as_it_was(self):
        self.put(2, daemon.model_of(
            [helper.make_node("Add", ["before", "x"], ["after"]), helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
             helper.make_node("Gather", ["three", "i"], ["never"]), helper.make_node("Add", ["after", "never"], ["y"])],
            [("x", TensorProto.FLOAT, ["batch", 1]), ("before", TensorProto.FLOAT, ["batch", 1])],
            [("y", TensorProto.FLOAT, ["batch", 1]), ("after", TensorProto.FLOAT, ["batch", 1])],
            [("three", numpy.zeros(3, numpy.float32))]))
        served = self.serve()
        self.assertEqual(self.step(served, 1, 9, start=True)[0], 400)
        self.assertEqual(self.step(served, 1, 1)[0], 400)  # it did not begin
        self.assertEqual(self.step(served, 1, 1, start=True), (200, 1))
        self.assertEqual(self.step(served, 1, 9)[0], 400)
        self.assertEqual(self.step(served, 1, 2), (200, 3))

    def test_it_stays_with_the_version_that_began_it(self):
        served = self.serve()
        self.step(served, 1, 1, start=True)
        self.put(2, sum_model(factor=100))
        self.assertTrue(self.eventually(lambda: self.step(served, 2, 1, start=True) == (200, 100)))
        self.assertEqual(self.step(served, 1, 1), (200, 2))
        self.assertEqual(self.step(served, 2, 1), (200, 200))

    def test_controls_are_set_by_the_server(self):
        self.put(1, sum_model(controls=(("START", TensorProto.INT32), ("END", TensorProto.FLOAT),
                                        ("READY", TensorProto.BOOL), ("CORRID", TensorProto.UINT64))))
        self.settings(SUM + "  start_input: START\n  end_input: END\n  ready_input: READY\n  id_input: CORRID\n")
        served = self.serve()
        self.assertEqual(self.step(served, 5, 1, start=True), (200, 7001))
        self.assertEqual(self.step(served, 5, 1), (200, 6002))
        self.assertEqual(self.step(served, 5, 1, end=True), (200, 7003))
        self.assertIn("takes the sequence_id as a number", self.step(served, "five", 1, start=True)[1])

    def test_settings_that_do_not_fit_the_model_say_so(self):
        for text, reason in (
                ("sequence:\n  enabled: true\n  states: [{input: none, output: after}]\n", "the model has no input 'none'"),
                ("sequence:\n  enabled: true\n  states: [{input: x, output: none}]\n", "the model has no output 'none'"),
                ("sequence:\n  enabled: true\n  start_input: START\n", "the model has no input 'START'")):
            self.settings(text)
            served = self.serve()
            status, error = self.step(served, 1, 1, start=True)
            self.assertEqual(status, 503)
            self.assertIn(reason, error)

    def test_a_sequence_ends_with_the_ensemble_that_it_is_in(self):
        (self.folder / "e").mkdir()
        self.settings("ensemble:\n  steps:\n  - {model: m, inputs: {x: x}, outputs: {y: y}}\n", "e")
        served = self.serve()

        def step(x, **parameters):
            return self.post(served, "/v2/models/e/infer", {
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [x]}],
                "parameters": {"sequence_id": 4, **parameters}})[1]["outputs"][0]["data"][0]

        self.assertEqual([step(1, sequence_start=True), step(2), step(3, sequence_end=True)], [1, 3, 6])


REAL = daemon.ROOT.parent / "shared" / "models"


@unittest.skipUnless(REAL.is_dir(), "models from elsewhere are not beside the checkout")
class RealModels(RepositoryCase):
    """Sequences of a voice detector and a noise suppressor are those that onnxruntime computes with their state."""

    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(3)

    def add(self, name, states):
        folder = self.folder / name / "1"
        folder.mkdir(parents=True)
        shutil.copy(REAL / name / "model.onnx", folder)
        lines = "".join(f"  - {{input: {state}, output: {output}, shape: {list(shape)}}}\n" for state, (output, shape) in states.items())
        self.settings("sequence:\n  enabled: true\n  states:\n" + lines, name)

    def expected(self, name, states, steps):
        session = onnxruntime.InferenceSession(REAL / name / "model.onnx", providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        held = {state: numpy.zeros(shape, numpy.float32) for state, (_, shape) in states.items()}
        for inputs in steps:
            outputs = dict(zip(names, session.run(None, {**inputs, **held})))
            held = {state: outputs[output] for state, (output, _) in states.items()}
            yield outputs

    def ask(self, served, name, sequence, inputs, output, **parameters):
        kinds = {"float32": "FP32", "int64": "INT64"}
        status, answer = self.post(served, f"/v2/models/{name}/infer", {
            "inputs": [{"name": key, "datatype": kinds[array.dtype.name], "shape": list(array.shape), "data": array.ravel().tolist()}
                       for key, array in inputs.items()],
            "parameters": {"sequence_id": sequence, **parameters}})
        self.assertEqual(status, 200, answer)
        return next(numpy.array(given["data"]) for given in answer["outputs"] if given["name"] == output)

    def compare(self, name, states, output, make):
        """Two sequences in turns, on one instance."""
        self.add(name, states)
        served = self.serve()
        both = [[make() for _ in range(8)] for _ in range(2)]
        wanted = [list(self.expected(name, states, steps)) for steps in both]
        for i in range(8):
            for sequence in range(2):
                got = self.ask(served, name, sequence + 1, both[sequence][i], output, sequence_start=i == 0)
                numpy.testing.assert_allclose(got, wanted[sequence][i][output].ravel(), rtol=1e-3, atol=1e-4)

    def test_silero_vad(self):
        self.compare("silero_vad_v6", {"state": ("stateN", (2, 1, 128))}, "output", lambda: {
            "input": (self.random.standard_normal((1, 576)) / 5).astype(numpy.float32), "sr": numpy.array(16000, numpy.int64)})

    def test_gtcrn(self):
        states = {"conv_cache": ("conv_cache_out", (2, 1, 16, 16, 33)), "tra_cache": ("tra_cache_out", (2, 3, 1, 1, 16)),
                  "inter_cache": ("inter_cache_out", (2, 1, 33, 16))}
        self.compare("gtcrn_stream_simple", states, "enh", lambda: {
            "mix": self.random.standard_normal((1, 257, 1, 2)).astype(numpy.float32)})


if __name__ == "__main__":
    unittest.main()

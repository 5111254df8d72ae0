"""Models that are made of others: one request, tensors from step to step."""

import shutil
import unittest

import grpc
import numpy
from onnx import TensorProto, helper

import daemon
import protos
from repositories import RepositoryCase, factor_model

STEP = "  - {{model: {}, inputs: {{{}}}, outputs: {{{}}}}}\n"


def steps(*lines, outputs=None):
    """Of (model, inputs, outputs), the maps as YAML has them inside braces."""
    text = "ensemble:\n  steps:\n" + "".join(STEP.format(*line) for line in lines)
    return text + (f"  outputs: [{outputs}]\n" if outputs else "")


def sum_model():
    """y = a + b; there is another output, the difference."""
    values = [(name, TensorProto.FLOAT, ["batch", 4]) for name in "aby"]
    return daemon.model_of(
        [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Sub", ["a", "b"], ["d"])],
        values[:2], [values[2], ("d", TensorProto.FLOAT, ["batch", 4])])


CHAIN = (("double", "x: raw", "y: two"), ("triple", "x: two", "y: six"))


class Ensembles(RepositoryCase):
    """`double`, `triple` and `sum`, of which ensembles are made."""

    first = factor_model(1)

    def setUp(self):
        super().setUp()
        shutil.rmtree(self.folder / "m")
        self.put(1, factor_model(2), "double")
        self.put(1, factor_model(3), "triple")
        self.put(1, sum_model(), "sum")

    def ensemble(self, text, name="e"):
        (self.folder / name).mkdir(exist_ok=True)
        self.settings(text, name)

    def infer(self, served, inputs, model="e", outputs=None, path="", **parameters):
        """(status, {output: list})"""
        document = {"inputs": [{"name": name, "datatype": "FP32", "shape": list(numpy.shape(data)),
                                "data": numpy.ravel(data).tolist()} for name, data in inputs.items()],
                    "parameters": parameters}
        if outputs:
            document["outputs"] = [{"name": name} for name in outputs]
        status, answer = self.post(served, f"/v2/models/{model}{path}/infer", document)
        if status != 200:
            return status, answer["error"]
        return status, {output["name"]: output["data"] for output in answer["outputs"]}

    def test_a_chain_answers_what_its_members_do(self):
        self.ensemble(steps(*CHAIN))
        served = self.serve()
        self.assertEqual(self.infer(served, {"raw": [[1, 2, 3, 4]]}), (200, {"six": [6, 12, 18, 24]}))
        self.assertEqual(self.answer(served, "/predict/e"), 6)

    def test_steps_stand_in_any_order_and_branches_meet(self):
        self.ensemble(steps(("sum", "a: two, b: three", "y: five, d: less"),
                            ("double", "x: raw", "y: two"), ("triple", "x: raw", "y: three"),
                            outputs="less, five, two"))
        served = self.serve()
        wanted = {"less": [-1] * 4, "five": [5] * 4, "two": [2] * 4}
        self.assertEqual(self.infer(served, {"raw": [[1] * 4]}), (200, wanted))
        self.assertEqual(self.infer(served, {"raw": [[1] * 4]}, outputs=["five"]), (200, {"five": [5] * 4}))

    def test_its_signature_is_that_of_its_members(self):
        self.ensemble(steps(*CHAIN))
        served = self.serve()
        document = self.get(served, "/v2/models/e")[1]
        self.assertEqual(document["inputs"], [{"name": "raw", "datatype": "FP32", "shape": [-1, 4]}])
        self.assertEqual(document["outputs"], [{"name": "six", "datatype": "FP32", "shape": [-1, 4]}])
        config = self.get(served, "/v2/models/e/config")[1]
        self.assertEqual(config["platform"], "ensemble")
        self.assertEqual(config["ensemble_scheduling"]["step"][1],
                         {"model_name": "triple", "model_version": -1, "input_map": {"x": "two"},
                          "output_map": {"y": "six"}})
        with grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}") as channel:
            ask = protos.unary(channel, "inference.GRPCInferenceService", "ModelConfig")
            steps_of = ask(protos.message("inference.ModelConfigRequest")(name="e"), timeout=10).config.ensemble_scheduling.step
        self.assertEqual([(step.model_name, dict(step.input_map)) for step in steps_of],
                         [("double", {"x": "raw"}), ("triple", {"x": "two"})])
        status, error = self.infer(served, {"raw": [[1, 2]]})
        self.assertEqual(status, 400)
        self.assertIn("model 'e': input 'raw'", error)

    def test_an_ensemble_may_be_part_of_another(self):
        self.ensemble(steps(*CHAIN), "a_inner")
        self.ensemble(steps(("z_middle", "raw: raw", "six: mid"), ("double", "x: mid", "y: end")), "e")
        self.ensemble(steps(("a_inner", "raw: raw", "six: six")), "z_middle")
        served = self.serve()
        self.assertEqual(self.infer(served, {"raw": [[1] * 4]}), (200, {"end": [12] * 4}))

    def test_what_cannot_be_one_says_why(self):
        cases = {
            "unknown": (steps(("none", "x: raw", "y: out")), "step 1: Request for unknown model: 'none'"),
            "itself": (steps(("itself", "x: raw", "y: out")), "still loading|is, or needs, this ensemble itself"),
            "input": (steps(("double", "z: raw", "y: out")), "model 'double' has no input 'z'; it takes: x"),
            "output": (steps(("double", "x: raw", "z: out")), "model 'double' has no output 'z'; it gives: y"),
            "lacking": (steps(("sum", "a: raw", "y: out")), "model 'sum' also needs input 'b'"),
            "typed": (steps(("double", "x: raw", "y: mid"), ("whole", "x: mid", "y: out")),
                      "input 'x' is int64.*, but tensor 'mid' is elsewhere float"),
            "faulty": ("ensemble:\n  steps: 3\n", "model.yaml:2:10: 'ensemble.steps': must be a list of maps"),
        }
        self.put(1, daemon.identity_model(TensorProto.INT64), "whole")
        for name, (text, _) in cases.items():
            self.ensemble(text, name)
        served = self.serve()
        for name, (_, reason) in cases.items():
            status, answer = self.post(served, f"/v2/models/{name}/infer", {"inputs": []})
            self.assertEqual(status, 503, (name, answer))
            self.assertRegex(answer["error"], reason)
        self.assertEqual(self.answer(served, "/predict/double"), 2)

    def test_a_ring_never_serves(self):
        self.ensemble(steps(("b", "end: raw", "six: end")), "a")
        self.ensemble(steps(("a", "raw: raw", "end: six")), "b")
        served = self.serve()
        for name in "ab":
            status, error = self.infer(served, {"raw": [[1] * 4]}, name)
            self.assertEqual(status, 503)
            self.assertRegex(error, f"model '{name}' did not load: ensemble: step 1: model '[ab]' ")

    def test_a_failing_step_is_named(self):
        self.put(1, daemon.model_of(
            [helper.make_node("Reshape", ["x", "shape"], ["y"])],
            [("x", TensorProto.FLOAT, ["n", 4])], [("y", TensorProto.FLOAT, ["a", "b"])],
            [("shape", numpy.array([2, 4], numpy.int64))]), "pairs")
        self.ensemble(steps(("double", "x: raw", "y: two"), ("pairs", "x: two", "y: out")))
        served = self.serve()
        self.assertEqual(self.infer(served, {"raw": [[1] * 4] * 2})[0], 200)
        status, error = self.infer(served, {"raw": [[1] * 4] * 3})
        self.assertEqual(status, 400)
        self.assertRegex(error, "model 'e': step 2: model 'pairs': ")

    def test_a_new_version_of_a_member_is_used_and_a_label_can_hold_one(self):
        self.ensemble(steps(*CHAIN))
        self.settings("labels:\n  stable: 1\n", "double")
        (self.folder / "held").mkdir()
        self.settings("ensemble:\n  steps:\n  - {model: double, version: stable, inputs: {x: raw}, "
                      "outputs: {y: two}}\n", "held")
        served = self.serve()
        self.put(2, factor_model(20), "double")
        self.assertTrue(self.eventually(lambda: self.infer(served, {"raw": [[1] * 4]})[1] == {"six": [60] * 4}))
        self.assertEqual(self.infer(served, {"raw": [[1] * 4]}, "held")[1], {"two": [2] * 4})

    def test_it_goes_before_its_member_does_and_returns_with_it(self):
        self.ensemble(steps(*CHAIN))
        served = self.serve()
        (self.folder / "triple").rename(self.folder / ".away")
        self.assertTrue(self.eventually(lambda: self.get(served, "/v2/models/triple/ready")[0] != 200))
        status, error = self.infer(served, {"raw": [[1] * 4]})
        self.assertEqual(status, 503)
        self.assertRegex(error, "model 'e' did not load: .*'triple'")
        (self.folder / ".away").rename(self.folder / "triple")
        self.assertTrue(self.eventually(lambda: self.infer(served, {"raw": [[1] * 4]})[0] == 200))

    def test_k03_a_member_is_not_unloaded_under_an_ensemble(self):
        self.ensemble(steps(*CHAIN))
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit")
        self.assertEqual(self.post(served, "/v2/repository/models/e/load")[0], 200)  # and its members
        self.assertEqual(self.infer(served, {"raw": [[1] * 4]})[0], 200)
        status, answer = self.post(served, "/v2/repository/models/triple/unload")
        self.assertEqual(status, 400)
        self.assertIn("model 'triple' is part of the ensemble 'e': unload that first", answer["error"])
        self.assertEqual(self.infer(served, {"raw": [[1] * 4]})[0], 200)
        for name in ("e", "triple"):
            self.assertEqual(self.post(served, f"/v2/repository/models/{name}/unload")[0], 200)
        self.assertEqual(self.get(served, "/v2/models/triple/ready")[0], 404)

    def test_members_batches_are_shared_with_other_requests(self):
        self.ensemble(steps(*CHAIN))
        served = self.serve()
        self.assertTrue(served.logged("model 'triple': requests may share runs"))
        self.infer(served, {"raw": [[1] * 4] * 5})
        self.assertEqual(self.metric(served, 'onnxd_batch_size_sum{model="triple",version="1"}'), 5)
        self.assertEqual(self.metric(served, 'onnxd_requests_total{code="OK",model="e",protocol="http",version="1"}'), 1)
        self.assertEqual(self.metric(served, 'onnxd_requests_total{code="OK",model="triple",protocol="http",version="1"}'), 0)



if __name__ == "__main__":
    unittest.main()

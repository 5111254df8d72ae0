"""Repositories that Triton serves: config.pbtxt in place of model.yaml."""

import random
import shutil
import subprocess
import unittest

from onnx import TensorProto

import daemon
from repositories import RepositoryCase, factor_model
from soak import scaled
from test_sequences import sum_model

# As a user of Triton writes one; the comment and every kind of white space belong to the format.
WHOLE = """
# y = 3x
name: "m"
platform: "onnxruntime_onnx"
max_batch_size: 16
input [
  { name: "x", data_type: TYPE_FP32, dims: [ 4 ] }
]
output { name: "y" data_type: TYPE_FP32 dims: 4 label_filename: "labels.txt" }
version_policy: { all { } }
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching {
  preferred_batch_size: [ 8, 4 ]
  max_queue_delay_microseconds: 100
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 1500000 allow_timeout_override: true max_queue_size: 50 }
}
optimization { execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" } ] } }
model_warmup [ { name: "one" batch_size: 1 inputs { key: "x" value: { data_type: TYPE_FP32 dims: 4 random_data: true } } } ]
parameters { key: "intra_op_thread_count" value: { string_value: "4" } }
response_cache { enable: true }
"""


class TritonConfig(RepositoryCase):
    first = factor_model(3)

    def config(self, text, name="m"):
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "config.pbtxt").write_text(text)

    def refusal(self, text, name="m"):
        """Why the model is not served."""
        self.config(text, name)
        served = self.serve()
        status, answer, _ = self.status(served, f"/predict/{name}")
        self.assertEqual(status, 503, answer)
        served.close()
        return answer["error"]

    def test_a_whole_file_is_read(self):
        self.put(2, factor_model(6))
        self.config(WHOLE)
        served = self.serve()
        self.assertEqual(self.answer(served), 6)
        self.assertEqual(self.get(served, "/v2/models/m")[1]["versions"], ["1", "2"])
        self.assertTrue(self.eventually(lambda: "dynamic_batching" in self.get(served, "/v2/models/m/config")[1]))
        config = self.get(served, "/v2/models/m/config")[1]
        self.assertEqual((config["max_batch_size"], config["version_policy"]), (16, {"all": {}}))
        self.assertEqual(config["response_cache"], {"enable": True})
        self.assertEqual(config["dynamic_batching"], {
            "preferred_batch_size": [4, 8], "max_queue_delay_microseconds": 100, "priority_levels": 3,
            "default_priority_level": 2,
            "default_queue_policy": {"timeout_action": "DELAY", "default_timeout_microseconds": 1500000,
                                     "allow_timeout_override": True, "max_queue_size": 50}})

    def test_what_is_not_needed_is_said_once(self):
        self.config(WHOLE)
        served = self.serve()
        line = ("model 'm': without effect here: instance_group.count, model_warmup, "
                "optimization.execution_accelerators.gpu_execution_accelerator 'tensorrt', output.label_filename")
        self.assertTrue(served.logged(line))
        self.assertTrue(self.eventually(lambda: self.answer(served) == 3))
        self.assertEqual(sum("without effect" in logged for logged in served.stderr_lines), 1)

    def test_an_instance_group_of_gpus_is_served_by_what_the_machine_has(self):
        self.config("instance_group { kind: KIND_GPU }")
        served = self.serve()
        self.assertEqual(self.answer(served), 3)
        self.assertFalse(any("without effect" in line for line in served.stderr_lines))

    def test_what_triton_does_not_have_is_refused_with_its_line(self):
        for text, reason in (
                ('name: "m"\nmax_batch_sise: 8\n', 'config.pbtxt:2:15: .*no field named "max_batch_sise"'),
                ('dynamic_batching {\n  max_delay: 8\n}\n', 'config.pbtxt:2:12: .*no field named "max_delay"'),
                ('input [{ name: "x"\n data_type: FP32 }]', 'config.pbtxt:2:18: .*"FP32"'),
                ('max_batch_size: many', "config.pbtxt:1:17: Expected integer"),
                ('name: "m" name: "m"', "config.pbtxt:1:15: Non-repeated field"),
                ("input [", "config.pbtxt:1:8: "),
                ("sequence_batching { } dynamic_batching { }", "config.pbtxt:1:40: .*scheduling_choice")):
            self.assertRegex(self.refusal(text), reason)

    def test_what_would_change_answers_is_refused(self):
        for text, reason in (
                ('name: "other"', "'name' is 'other', but the folder is 'm'"),
                ('input { name: "x" data_type: -12 }', "'x' has data_type -12, which is none"),
                ('platform: "tensorrt_plan"', "'platform' is not supported here: 'tensorrt_plan', only ONNX models"),
                ('backend: "python"', "'backend' is not supported here: 'python'"),
                ('default_model_filename: "net.onnx"', "'default_model_filename' is not supported here"),
                ('input { name: "x" reshape { shape: [2, 2] } }', "'input 'x' reshape' is not supported here"),
                ('input { name: "x" allow_ragged_batch: true }', "allow_ragged_batch"),
                ("model_transaction_policy { decoupled: true }", "a request has one answer"),
                ("batch_input { kind: BATCH_ELEMENT_COUNT }", "'batch_input' is not supported"),
                ('sequence_batching { state { input_name: "a" output_name: "b" initial_state { data_file: "f" } } }',
                 "initial_state.data_file"),
                ('sequence_batching { control_input { name: "S" control { fp32_false_true: [1, 2] } } }',
                 "control_input 'S'.*false is 0 and true is 1")):
            self.assertRegex(self.refusal(text), reason)

    def test_what_it_declares_the_model_must_have(self):
        for text, reason in (
                ('input { name: "z" data_type: TYPE_FP32 dims: 4 }', "input 'z' is none of the model, which has: x"),
                ('max_batch_size: 8 input { name: "x" data_type: TYPE_INT64 dims: 4 }',
                 r"input 'x' is declared as INT64\[-1, 4\], but the model has float\[batch, 4\]"),
                ('max_batch_size: 8 output { name: "y" data_type: TYPE_FP32 dims: 5 }', r"declared as FP32\[-1, 5\]"),
                ('input { name: "x" data_type: TYPE_FP32 dims: 4 }', r"declared as FP32\[4\]")):
            self.assertRegex(self.refusal(text), reason)
        self.config('input { name: "x" data_type: TYPE_FP32 dims: [-1, 4] }')
        self.assertEqual(self.answer(self.serve()), 3)

    def test_an_ensemble(self):
        self.config("""name: "e" platform: "ensemble" max_batch_size: 8
            input { name: "RAW" data_type: TYPE_FP32 dims: 4 } output { name: "NINE" data_type: TYPE_FP32 dims: 4 }
            ensemble_scheduling { step [
              { model_name: "m" model_version: -1 input_map { key: "x" value: "RAW" } output_map { key: "y" value: "t" } },
              { model_name: "m" model_version: 1 input_map { key: "x" value: "t" } output_map { key: "y" value: "NINE" } }
            ] }""", "e")
        (self.folder / "e" / "1").mkdir()
        served = self.serve()
        self.assertEqual(self.answer(served, "/predict/e"), 9)
        self.assertEqual(self.get(served, "/v2/models/e")[1]["outputs"],
                         [{"name": "NINE", "datatype": "FP32", "shape": [-1, 4]}])

    def test_a_stateful_model(self):
        shutil.rmtree(self.folder / "m")
        self.put(1, sum_model(controls=(("START", TensorProto.INT32),)))
        self.config("""max_batch_size: 8
            input { name: "x" data_type: TYPE_FP32 dims: 1 } output { name: "y" data_type: TYPE_FP32 dims: 1 }
            sequence_batching {
              max_sequence_idle_microseconds: 5000000
              direct { }
              control_input [ { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ]
              state [ { input_name: "before" output_name: "after" data_type: TYPE_FP32 dims: [ 1 ]
                        initial_state: { data_type: TYPE_FP32 dims: [ 1 ] zero_data: true name: "zeros" } } ]
            }""")
        served = self.serve()

        def step(**parameters):
            return self.post(served, "/v2/models/m/infer", {
                "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [2]}],
                "parameters": {"sequence_id": 9, **parameters}})[1]["outputs"][0]["data"]

        self.assertEqual([step(sequence_start=True), step(), step(sequence_end=True)], [[1002], [4], [6]])

    def test_model_yaml_comes_first(self):
        self.config('platform: "tensorrt_plan"')
        self.settings("pinned: true\n")
        served = self.serve()
        self.assertEqual(self.answer(served), 3)
        self.assertTrue(served.logged("model 'm': without effect here: config.pbtxt"))

    def test_damaged_files_are_refused_and_nothing_else(self):
        """Both kinds of a model's own file, of which parts were changed, doubled and left out."""
        source = random.Random(5)
        whole = {"config.pbtxt": WHOLE.encode(), "model.yaml": (daemon.ROOT / "deploy/gitops/models/bert/model.yaml").read_bytes()
                 + (daemon.ROOT / "deploy/gitops/models/search/model.yaml").read_bytes()}
        refused = 0
        for name, text in whole.items():
            path = self.folder / "m" / name
            for _ in range(scaled(200, 5000)):
                damaged = bytearray(text)
                for _ in range(source.randint(1, 4)):
                    begin = source.randrange(len(damaged))
                    end = min(len(damaged), begin + source.choice((1, 2, 8, 40)))
                    part = source.choice((b"", bytes(damaged[begin:end]) * source.choice((2, 30)), b"{" * 200, b"[" * 200, b"\xff\x00",
                                          b"-1", b"99999999999999999999", b": ", b"\n", b"&a *a"))
                    damaged[begin:end] = part
                path.write_bytes(damaged)
                done = subprocess.run([daemon.BINARY, "config", "check", path], capture_output=True, timeout=20)
                self.assertIn(done.returncode, (0, 2), bytes(damaged))
                refused += done.returncode == 2
            path.unlink()
        self.assertGreater(refused, 100)

    def test_a_change_is_followed(self):
        self.config("version_policy { latest { num_versions: 1 } }")
        self.put(2, factor_model(6))
        served = self.serve()
        self.assertEqual(self.get(served, "/v2/models/m")[1]["versions"], ["2"])
        self.config("version_policy { specific { versions: [ 1 ] } }")
        self.assertTrue(self.eventually(lambda: self.get(served, "/v2/models/m")[1].get("versions") == ["1"]))


if __name__ == "__main__":
    unittest.main()

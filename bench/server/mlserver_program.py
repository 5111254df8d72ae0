"""What MLServer is given to serve an ONNX model with onnxruntime: a runtime of its own, as its documentation has it."""

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxModel(MLModel):
    async def load(self):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(self.settings.parameters.uri, options, providers=["CPUExecutionProvider"])
        self.output_names = [output.name for output in self.session.get_outputs()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {entry.name: NumpyCodec.decode_input(entry) for entry in payload.inputs}
        results = self.session.run(self.output_names, inputs)
        return InferenceResponse(model_name=self.name, outputs=[
            NumpyCodec.encode_output(name, result) for name, result in zip(self.output_names, results)])

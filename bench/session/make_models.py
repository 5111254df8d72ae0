#!/usr/bin/env python3
"""Writes the models that bench/README.md races, with random weights, into FOLDER/NAME/model.onnx.

Needs torch, torchvision, transformers, onnx and onnxruntime.
Usage: make_models.py FOLDER [NAME...]      (without names: all; make_models.py --list names them)
"""

import pathlib
import sys
import tempfile

import numpy
import onnx

VISION = ["resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t"]
ENCODERS = {"bert_base": {}, "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
                                        "intermediate_size": 1536}}
# NAME_KIND: a model quantized by onnxruntime's tools.
QUANTIZED = [f"{name}_qdq" for name in ("resnet18", "resnet50", "mobilenet_v2", "bert_base", "minilm")]
QUANTIZED += ["resnet18_qdqs8", "bert_base_dyn", "minilm_dyn", "gpt2_dyn", "gpt2_int4_a0", "gpt2_int4_a4", "gpt2_int8_a4"]
DECODERS = {"gpt2": "float32", "gpt2_fp16": "float16"}
WRITER = "gpt2_writer"
SEQUENCE = 128  # tokens


def export(module, inputs, path, inputs_names, outputs_names, axes, opset):
    import torch
    with torch.no_grad():
        torch.onnx.export(module, inputs, str(path), input_names=inputs_names, output_names=outputs_names,
                          dynamic_axes=axes, opset_version=opset, dynamo=False)


def make_vision(name, path):
    import torch
    import torchvision
    torch.backends.mha.set_fastpath_enabled(False)  # the exporter has no words for its operator
    torch.manual_seed(0)
    model = getattr(torchvision.models, name)(weights=None).eval()
    if name == "vit_b_16":  # whose last layer begins with zeros: outputs would say nothing
        torch.nn.init.normal_(model.heads.head.weight, std=0.02)
    export(model, (torch.zeros(1, 3, 224, 224),), path, ["x"], ["y"], {"x": {0: "batch"}, "y": {0: "batch"}}, 17 if name == "vit_b_16" else 13)


def make_encoder(name, path):
    import torch
    from transformers import BertConfig, BertModel
    torch.manual_seed(0)

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = BertModel(BertConfig(**ENCODERS[name])).eval()

        def forward(self, ids, mask):
            return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

    ids = torch.ones(1, SEQUENCE, dtype=torch.long)
    axes = {key: {0: "batch", 1: "sequence"} for key in ("input_ids", "attention_mask")}
    export(Encoder(), (ids, torch.ones_like(ids)), path, ["input_ids", "attention_mask"], ["hidden"], axes, 17)


def make_decoder(path, dtype="float32"):
    """GPT-2: one token after SEQUENCE - 1 others, whose keys and values come in and go out."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.cache_utils import DynamicCache
    torch.manual_seed(0)
    config = GPT2Config(attn_implementation="eager")
    layers, heads, width = config.n_layer, config.n_head, config.n_embd // config.n_head

    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = GPT2LMHeadModel(config).eval().to(getattr(torch, dtype))

        def forward(self, ids, mask, *past):
            cache = DynamicCache()
            for i in range(layers):
                cache.update(past[2 * i], past[2 * i + 1], i)
            out = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True,
                             position_ids=mask.sum(-1, keepdim=True) - 1)
            present = [tensor for layer in out.past_key_values.layers for tensor in (layer.keys, layer.values)]
            return tuple([out.logits] + present)

    past = [(torch.randn(1, heads, SEQUENCE - 1, width) * 0.3).to(getattr(torch, dtype)) for _ in range(2 * layers)]
    ids, mask = torch.ones(1, 1, dtype=torch.long), torch.ones(1, SEQUENCE, dtype=torch.long)
    kinds = [f"{i}_{kind}" for i in range(layers) for kind in "kv"]
    axes = {"attention_mask": {1: "total"}}
    axes.update({f"past_{kind}": {2: "past"} for kind in kinds})
    axes.update({f"present_{kind}": {2: "total_out"} for kind in kinds})
    export(Decoder(), (ids, mask, *past), path, ["input_ids", "attention_mask"] + [f"past_{k}" for k in kinds],
           ["logits"] + [f"present_{k}" for k in kinds], axes, 17)


def make_writer(path):
    """GPT-2 as exporters for generation write it: any number of texts, of tokens and of those before them."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.cache_utils import DynamicCache
    torch.manual_seed(0)
    config = GPT2Config(attn_implementation="eager")
    layers, heads, width = config.n_layer, config.n_head, config.n_embd // config.n_head

    class Writer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = GPT2LMHeadModel(config).eval()

        def forward(self, ids, mask, positions, *past):
            cache = DynamicCache()
            for i in range(layers):
                cache.update(past[2 * i], past[2 * i + 1], i)
            # Of each token the ones up to it; what is made of shapes inside would be a constant.
            before, tokens = past[0].shape[2], ids.shape[1]
            places = torch.arange(before + tokens)
            seen = (places[None, :] <= places[before:, None])[None, None] & mask[:, None, None, :].bool()
            bias = torch.where(seen, 0.0, -1e9)
            out = self.model(input_ids=ids, attention_mask=bias, past_key_values=cache, use_cache=True, position_ids=positions)
            present = [tensor for layer in out.past_key_values.layers for tensor in (layer.keys, layer.values)]
            return tuple([out.logits] + present)

    past = [torch.randn(2, heads, 5, width) * 0.3 for _ in range(2 * layers)]
    ids, mask = torch.ones(2, 3, dtype=torch.long), torch.ones(2, 8, dtype=torch.long)
    positions = torch.arange(5, 8)[None].repeat(2, 1)
    kinds = [f"{i}.{kind}" for i in range(layers) for kind in ("key", "value")]
    names = ["input_ids", "attention_mask", "position_ids"] + [f"past_key_values.{kind}" for kind in kinds]
    axes = {"input_ids": {0: "batch", 1: "tokens"}, "attention_mask": {0: "batch", 1: "total"},
            "position_ids": {0: "batch", 1: "tokens"}, "logits": {0: "batch", 1: "tokens"}}
    axes.update({f"past_key_values.{kind}": {0: "batch", 2: "past"} for kind in kinds})
    axes.update({f"present.{kind}": {0: "batch", 2: "total_out"} for kind in kinds})
    export(Writer(), (ids, mask, positions, *past), path, names, ["logits"] + [f"present.{kind}" for kind in kinds], axes, 17)


class Calibration:
    """Two seeded inputs, as onnxruntime's quantizer reads them."""

    def __init__(self, path):
        random = numpy.random.default_rng(1)
        model = onnx.load(path)
        initialized = {tensor.name for tensor in model.graph.initializer}
        self.feeds = []
        for _ in range(2):
            feed = {}
            for value in model.graph.input:
                if value.name in initialized:
                    continue
                tensor = value.type.tensor_type
                shape = [d.dim_value or {"sequence": SEQUENCE}.get(d.dim_param, 1) for d in tensor.shape.dim]
                dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
                real = numpy.issubdtype(dtype, numpy.floating)
                array = random.random(shape) * 2 - 1 if real else random.integers(0, 2, shape)
                feed[value.name] = array.astype(dtype)
            self.feeds.append(feed)

    def get_next(self):
        return self.feeds.pop() if self.feeds else None


def products_only(path, target):
    """Gemm as MatMul and Add, which the quantizers of weights take."""
    model = onnx.load(path)
    nodes = []
    for node in model.graph.node:
        if node.op_type != "Gemm":
            nodes.append(node)
            continue
        product = node.output[0] + "_product"
        nodes.append(onnx.helper.make_node("MatMul", node.input[:2], [product], node.name + "_product"))
        nodes.append(onnx.helper.make_node("Add", [product, node.input[2]], node.output, node.name))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, target)


def quantize(name, source, path):
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
    from onnxruntime.quantization.shape_inference import quant_pre_process
    kind = name.rsplit("_", 1)[1]
    with tempfile.TemporaryDirectory() as folder:
        prepared = f"{folder}/prepared.onnx"
        if kind.startswith("qdq") or kind == "qop":
            quant_pre_process(str(source), prepared, skip_symbolic_shape=True)
            activations = QuantType.QInt8 if kind == "qdqs8" else QuantType.QUInt8
            form = QuantFormat.QOperator if kind == "qop" else QuantFormat.QDQ
            quantize_static(prepared, str(path), Calibration(prepared), quant_format=form,
                            activation_type=activations, weight_type=QuantType.QInt8, per_channel=kind != "qop")
        elif kind == "dyn":
            products_only(source, prepared) if name.startswith("gpt2") else onnx.save(onnx.load(source), prepared)
            quantize_dynamic(prepared, str(path), weight_type=QuantType.QInt8)
        else:
            products_only(source, prepared)
            bits, level = int(name.split("_int")[1][0]), int(kind[1:])
            config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=level, bits=bits)
            quantizer = MatMulNBitsQuantizer(onnx.load(prepared), algo_config=config)
            quantizer.process()
            quantizer.model.save_model_to_file(str(path), False)


def make(folder, name):
    path = folder / name / "model.onnx"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    if name in VISION:
        make_vision(name, path)
    elif name in ENCODERS:
        make_encoder(name, path)
    elif name in DECODERS:
        make_decoder(path, DECODERS[name])
    elif name == WRITER:
        make_writer(path)
    elif name in QUANTIZED:
        origin = next(base for base in VISION + list(ENCODERS) + list(DECODERS) if name.startswith(base + "_"))
        quantize(name, make(folder, origin), path)
    else:
        sys.exit(f"there is no model {name}; --list names them")
    return path


def main():
    names = VISION + list(ENCODERS) + list(DECODERS) + [WRITER] + QUANTIZED
    if sys.argv[1:] == ["--list"]:
        print("\n".join(names))
        return
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or names:
        print(make(pathlib.Path(sys.argv[1]), name), flush=True)


if __name__ == "__main__":
    main()

"""A small model that writes texts, token after token, as exporters write those of language models; and what it writes,
computed without ONNX, without a cache and one text at a time."""

import numpy
from onnx import TensorProto, helper

import daemon

HEADS, SIZE, WIDTH = 2, 8, 16  # of a head, of a token
END = 256
VOCABULARY = 257
CONTEXT = 96


def byte_characters():
    """How byte-level tokenizers write bytes: printable ones as themselves, others from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


TOKENIZER = {
    "added_tokens": [{"id": END, "content": "<|end|>", "special": True}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "merges": [], "vocab": {character: byte for byte, character in byte_characters().items()}},
}


class Weights:
    def __init__(self, seed=0):
        random = numpy.random.default_rng(seed)
        self.tokens = random.standard_normal((VOCABULARY, WIDTH)).astype(numpy.float32)
        self.positions = random.standard_normal((CONTEXT, WIDTH)).astype(numpy.float32)
        self.query, self.key, self.value = (random.standard_normal((3, WIDTH, WIDTH)) / 2).astype(numpy.float32)
        self.out = (random.standard_normal((WIDTH, VOCABULARY)) / 2).astype(numpy.float32)
        # Letters, blanks and the two bytes of "é" are likelier than others.
        self.bias = numpy.full(VOCABULARY, -30, numpy.float32)
        self.bias[list(b"abcdefghijklmnopqrstuvwxyz .\xc3\xa9")] = 0


def logits(weights, ids):
    """Of the token behind the last one, in double."""
    rows = (weights.tokens[ids] + weights.positions[:len(ids)]).astype(numpy.float64)
    query, key, value = (
        (rows @ matrix).reshape(len(ids), HEADS, SIZE).transpose(1, 0, 2)
        for matrix in (weights.query, weights.key, weights.value))
    scores = query[:, -1:] @ key.transpose(0, 2, 1) / SIZE ** 0.5
    shares = numpy.exp(scores - scores.max(-1, keepdims=True))
    mixed = (shares / shares.sum(-1, keepdims=True)) @ value
    return (mixed.transpose(1, 0, 2).reshape(WIDTH) + rows[-1]) @ weights.out + weights.bias


def log_probabilities(weights, ids):
    """Of all tokens behind the last one."""
    row = logits(weights, ids)
    return row - row.max() - numpy.log(numpy.exp(row - row.max()).sum())


def greedy(weights, text, tokens):
    """The bytes of as many tokens behind the text, the likeliest each."""
    ids = list(text.encode())
    for _ in range(tokens):
        ids.append(int(numpy.argmax(logits(weights, ids))))
    return bytes(ids[len(text.encode()):])


def decoder(weights, positions=True, mask=True):
    """input_ids, attention_mask, position_ids, past_key_values.0.key, .value -> logits, present.0.key, .value. Without
    `positions` they are counted from the number of tokens before; without `mask` all tokens are looked at."""
    nodes = [
        helper.make_node("Shape", ["input_ids"], ["ids_shape"]),
        helper.make_node("Gather", ["ids_shape", "axis_1"], ["tokens_now"]),
        helper.make_node("Shape", ["past_key_values.0.key"], ["past_shape"]),
        helper.make_node("Gather", ["past_shape", "axis_2"], ["tokens_before"]),
        helper.make_node("Add", ["tokens_now", "tokens_before"], ["tokens_all"]),
        helper.make_node("Range", ["tokens_before", "tokens_all", "one"], ["counted"]),
        helper.make_node("Range", ["zero", "tokens_all", "one"], ["places"]),
        helper.make_node("Gather", ["tokens", "input_ids"], ["embedded"]),
        helper.make_node("Gather", ["positions", "position_ids" if positions else "counted"], ["placed"]),
        helper.make_node("Add", ["embedded", "placed"], ["rows"]),
    ]
    for name in ("query", "key", "value"):
        nodes += [helper.make_node("MatMul", ["rows", f"{name}_weights"], [f"{name}_rows"]),
                  helper.make_node("Reshape", [f"{name}_rows", "by_head"], [f"{name}_heads"]),
                  helper.make_node("Transpose", [f"{name}_heads"], [f"{name}_now"], perm=[0, 2, 1, 3])]
    for name in ("key", "value"):
        nodes.append(helper.make_node(
            "Concat", [f"past_key_values.0.{name}", f"{name}_now"], [f"present.0.{name}"], axis=2))
    nodes += [
        helper.make_node("Transpose", ["present.0.key"], ["columns"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["query_now", "columns"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scaled"]),
        # Tokens see those before them, and themselves.
        helper.make_node("Unsqueeze", ["counted", "axes_1"], ["column"]),
        helper.make_node("LessOrEqual", ["places", "column"], ["is_before"]),
        helper.make_node("Where", ["is_before", "nothing", "never"], ["causal"]),
        helper.make_node("Add", ["scaled", "causal"], ["ordered"]),
    ]
    seen = "ordered"
    if mask:
        nodes += [helper.make_node("Cast", ["attention_mask"], ["is_there"], to=TensorProto.BOOL),
                  helper.make_node("Unsqueeze", ["is_there", "axes_12"], ["is_there_4"]),
                  helper.make_node("Where", ["is_there_4", "ordered", "never"], ["masked"])]
        seen = "masked"
    nodes += [
        helper.make_node("Softmax", [seen], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "present.0.value"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["mixed_rows"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["mixed_rows", "by_row"], ["joined"]),
        helper.make_node("Add", ["joined", "rows"], ["sums"]),
        helper.make_node("MatMul", ["sums", "out"], ["unbiased"]),
        helper.make_node("Add", ["unbiased", "bias"], ["logits"]),
    ]
    past = ["batch", HEADS, "past", SIZE]
    inputs = [("input_ids", TensorProto.INT64, ["batch", "tokens_of"])]
    if mask:
        inputs.append(("attention_mask", TensorProto.INT64, ["batch", "all"]))
    if positions:
        inputs.append(("position_ids", TensorProto.INT64, ["batch", "tokens_of"]))
    inputs += [(f"past_key_values.0.{name}", TensorProto.FLOAT, past) for name in ("key", "value")]
    outputs = [("logits", TensorProto.FLOAT, ["batch", "tokens_of", VOCABULARY])]
    outputs += [(f"present.0.{name}", TensorProto.FLOAT, ["batch", HEADS, "all", SIZE]) for name in ("key", "value")]
    number = numpy.int64
    constants = [
        ("axis_1", number(1)), ("axis_2", number(2)), ("zero", number(0)), ("one", number(1)),
        ("axes_1", numpy.array([1])), ("axes_12", numpy.array([1, 2])),
        ("by_head", numpy.array([0, 0, HEADS, SIZE])), ("by_row", numpy.array([0, 0, WIDTH])),
        ("scale", numpy.float32(SIZE ** -0.5)), ("nothing", numpy.float32(0)), ("never", numpy.float32(-1e9)),
        ("tokens", weights.tokens), ("positions", weights.positions), ("out", weights.out), ("bias", weights.bias),
        *((f"{name}_weights", getattr(weights, name)) for name in ("query", "key", "value")),
    ]
    return daemon.model_of(nodes, inputs, outputs, constants)

#!/usr/bin/env python3
"""What the server's fuzz targets start from: honest requests. Usage: seeds.py FOLDER (one folder a target is made)"""

import base64
import gzip
import json
import pathlib
import struct
import sys

ROWS = [5.1, 3.5, 1.4, 0.2]


def varint(number):
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def field(number, content):
    """Of protobuf's wire format: bytes and text, or a number."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


def infer_message(raw):
    shape = field(3, varint(1) + varint(4))
    floats = struct.pack("<4f", *ROWS)
    contents = b"" if raw else field(5, field(6, floats))
    tensor = field(1, "measurements") + field(2, "FP32") + shape + contents
    parameter = field(4, field(1, "timeout") + field(2, field(2, 1000)))
    output = field(6, field(1, "label"))
    return field(1, "iris_forest") + field(3, "id") + parameter + field(5, tensor) + output + (field(7, floats) if raw else b"")


def predict_message():
    values = field(4, struct.pack("<4d", *ROWS))
    return field(1, "iris_forest") + field(3, field(1, "measurements") + field(3, varint(1) + varint(4)) + values)


def framed(message):
    return struct.pack(">BI", 0, len(message)) + message


def infer_json(**placement):
    entry = {"name": "measurements", "shape": [1, 4], "datatype": "FP32", **placement}
    outputs = [{"name": "label", "parameters": {"binary_data": True}}, {"name": "probabilities"}]
    return json.dumps({"id": "1", "inputs": [entry], "outputs": outputs}).encode()


def http_seeds():
    body = json.dumps({"input": [ROWS]}).encode()
    yield b"GET /health/ready HTTP/1.1\r\nHost: h\r\n\r\nGET /v2 HTTP/1.1\r\nHost: h\r\n\r\n"
    yield b"GET / HTTP/1.0\r\n\r\n"
    for path in (b"/metrics", b"/docs", b"/openapi.json", b"/debug/requests", b"/v2/models/iris_forest", b"/v2/models/stats",
                 b"/v2/models/iris_forest/versions/1/config", b"/v2/trace/setting", b"/%76%32/models/x%2fy?a=b"):
        yield b"GET " + path + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    length = b"Content-Length: %d\r\n" % len(body)
    yield b"POST /predict HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n" + length + b"\r\n" + body
    yield (b"POST /predict HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
           b"%x\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" % (len(body), body))
    packed = gzip.compress(body, mtime=0)
    yield (b"POST /predict/iris_forest HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nAccept-Encoding: gzip\r\n"
           b"Content-Length: %d\r\n\r\n%b" % (len(packed), packed))
    yield (b"OPTIONS /predict HTTP/1.1\r\nHost: h\r\nOrigin: http://x\r\nAccess-Control-Request-Method: POST\r\n\r\n")
    yield (b"POST /v2/repository/index HTTP/1.1\r\nHost: h\r\nX-Request-Id: 1\r\nX-API-Key: k\r\nAuthorization: Bearer k\r\n"
           b"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\r\nContent-Length: 2\r\n\r\n{}")


def json_seeds():
    yield 0, json.dumps({"input": [ROWS], "model": "iris_forest", "version": "1"})
    yield 0, json.dumps({"inputs": {"measurements": ROWS}})
    yield 1, json.dumps({"input": [[[[0] * 8] * 8]]})
    yield 2, json.dumps({"input": [ROWS, [1e300, -0.0, 1, 2.5e-8]]})
    yield 3, infer_json(data=ROWS).decode()
    yield 4, json.dumps({"inputs": [{"name": "x", "shape": [1, 64], "datatype": "FP32", "data": [0] * 64}],
                         "parameters": {"timeout": 1000, "priority": 1, "binary_data_output": True}})
    yield 5, '{"ready": true}'
    yield 6, '{"log_verbose_level": 0, "log_info": true}'
    yield 7, '{"trace_level": ["TIMESTAMPS"], "trace_rate": "10", "trace_count": "-1"}'
    yield 8, '{"trace_rate": null}'
    yield 9, '{"parameters": {"config": "{}"}}'
    yield 10, '{"key": "/k", "offset": 0, "byte_size": 16}'
    yield 11, json.dumps({"instances": ROWS, "signature_name": "serving_default"})
    yield 11, json.dumps({"instances": [{"measurements": row} for row in ROWS]})
    yield 12, json.dumps({"inputs": {"x": [[0] * 64]}})
    yield 13, json.dumps({"labels": {"stable": 1, "old": None}, "split": {"stable": 1}})
    yield 14, json.dumps({"version": 1})
    yield 15, json.dumps({"id": "1", "measurements": ROWS, "parameters": {"timeout": 1000, "temperature": 0.5}})
    yield 16, json.dumps({"parameters": {"rows": [[0] * 64], "sequence_id": "a"}})
    yield 17, json.dumps({"input": ["a", "b"], "model": "iris_forest", "encoding_format": "base64", "dimensions": 3})


def binary_seeds():
    floats = struct.pack("<4f", *ROWS)
    head = infer_json(parameters={"binary_data_size": len(floats)})
    for choice, body in ((0, head + floats), (2, gzip.compress(head + floats, mtime=0)), (1, head + floats)):
        yield bytes([choice]) + struct.pack("<H", len(head)) + body


def grpc_seeds():
    messages = (infer_message(True), infer_message(False), predict_message(), field(1, "iris_forest"), b"", field(1, "x"))
    for method in range(10):
        for message in messages[:2] if method < 2 else messages[2:3] if method == 2 else messages[3:]:
            yield bytes([4 * method + 1, 255]) + framed(message)
    yield bytes([4 * 0 + 3, 16]) + struct.pack(">BI", 1, 0) + gzip.compress(infer_message(True), mtime=0)
    yield bytes([4 * 1 + 2, 7]) + framed(infer_message(True)) * 3
    settings, ping = b"\0\0\0\4\0\0\0\0\0", b"\0\0\x08\6\0\0\0\0\0" + b"01234567"
    yield bytes([0, 0]) + settings + ping + b"\0\0\4\3\0\0\0\0\1\0\0\0\x08"


def scan_seeds():
    yield from (infer_message(True), infer_message(False), predict_message())


def tokenizer_json(model, **steps):
    return json.dumps({"added_tokens": [{"id": 0, "content": "[A]", "special": True, "lstrip": True, "normalized": False}],
                       "model": model, **steps})


def tokenizer_seeds():
    words = {"[A]": 0, "[B]": 1, "a": 2, "b": 3, "##b": 4, "ab": 5, "\u0120a": 6, "\u2581a": 7, "<0x62>": 8}
    around = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[B]", "type_id": 0}},
                                                       {"Sequence": {"id": "A", "type_id": 0}}],
              "special_tokens": {"[B]": {"id": "[B]", "ids": [1], "tokens": ["[B]"]}}}
    text = "\u00c9a ab[A] b  12 \u8272's\n".encode()
    pieces = {"type": "WordPiece", "vocab": words, "unk_token": "[B]", "continuing_subword_prefix": "##"}
    pairs = {"type": "BPE", "vocab": words, "merges": ["a b", ["\u0120", "a"]], "unk_token": "[B]", "byte_fallback": True,
             "fuse_unk": True, "ignore_merges": True, "end_of_word_suffix": "", "continuing_subword_prefix": ""}
    unigram = {"type": "Unigram", "vocab": [[token, -1.5] for token in words], "unk_id": 1, "byte_fallback": False}
    table = base64.b64encode(struct.pack("<9I", 32, *range(8)) + b"x\0y\0").decode()
    yield text + tokenizer_json(pieces, normalizer={"type": "BertNormalizer", "lowercase": True, "strip_accents": None},
                                pre_tokenizer={"type": "BertPreTokenizer"}, post_processor=around,
                                truncation={"max_length": 4, "direction": "Left"},
                                padding={"strategy": {"Fixed": 8}, "pad_id": 1, "direction": "Right"}).encode()
    yield text + tokenizer_json(pairs, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "use_regex": True},
                                post_processor={"type": "RobertaProcessing", "cls": ["[A]", 0], "sep": ["[B]", 1]}).encode()
    yield text + tokenizer_json(pairs, normalizer={"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Prepend", "prepend": "\u2581"}, {"type": "Strip"}, {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]}).encode()
    yield text + tokenizer_json(unigram, normalizer={"type": "Precompiled", "precompiled_charsmap": table},
                                pre_tokenizer={"type": "Metaspace", "prepend_scheme": "first", "split": True}).encode()
    yield text + tokenizer_json({"type": "WordLevel", "vocab": words, "unk_token": "[B]"}, pre_tokenizer={
        "type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "\\w+|\\s+(?!\\S)|\\s+"}, "behavior": "Isolated", "invert": False},
            {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "MergedWithNext"}]}).encode()
    for kind in range(1, 5):
        file = b"".join(
            field(1, field(1, text) + struct.pack("<Bf", 2 << 3 | 5, -score) + bytes([3 << 3, piece_type]))
            for text, score, piece_type in (
                ("<unk>", 0, 2), ("<s>", 0, 3), ("\u2581", 3, 1), ("a", 2, 1), ("\u2581a", 1, 1), ("ab", 1, 5), ("[A]", 0, 4)))
        yield text + file + field(2, bytes([3 << 3, kind])) + field(3, field(2, base64.b64decode(table)) + bytes([3 << 3, 1]))


def main():
    root = pathlib.Path(sys.argv[1])
    targets = {"http": http_seeds(), "binary": binary_seeds(), "grpc": grpc_seeds(), "scan": scan_seeds(), "tokenizer": tokenizer_seeds(),
               "json": (bytes([choice]) + text.encode() for choice, text in json_seeds())}
    for target, seeds in targets.items():
        (root / target).mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds):
            (root / target / f"seed_{number}").write_bytes(seed)


if __name__ == "__main__":
    main()

"""Request bodies that are no JSON, or JSON that is no request, and binary tensors that are not what they say."""

import json
import struct
import unittest

import numpy
from onnx import TensorProto, helper

import daemon
from hostile import IRIS, HostileCase
from soak import scaled

TYPES = {"BOOL": TensorProto.BOOL, "INT8": TensorProto.INT8, "INT32": TensorProto.INT32, "INT64": TensorProto.INT64,
         "UINT8": TensorProto.UINT8, "UINT64": TensorProto.UINT64, "FP16": TensorProto.FLOAT16,
         "BF16": TensorProto.BFLOAT16, "FP32": TensorProto.FLOAT, "FP64": TensorProto.DOUBLE, "BYTES": TensorProto.STRING}


def sum_model():
    return daemon.model_of([helper.make_node("Add", ["a", "b"], ["y"])],
                           [("a", TensorProto.FLOAT, ["n"]), ("b", TensorProto.FLOAT, ["n"])], [("y", TensorProto.FLOAT, ["n"])])


class Infer(HostileCase):
    @staticmethod
    def models():
        return {**{name: daemon.identity_model(number) for name, number in TYPES.items()}, "sum": sum_model()}

    def tensor(self, datatype="FP32", data=(1.0,), **changes):
        return {"name": "x", "shape": changes.pop("shape", [len(data)] if isinstance(data, (list, tuple)) else [1]),
                "datatype": datatype, "data": data, **changes}

    def infer(self, datatype, data, **changes):  # of the identity model of that type
        return self.post(f"/v2/models/{datatype}/infer", {"inputs": [self.tensor(datatype, data, **changes)]})

    def assert_bad_tensor(self, text="", datatype="FP32", **changes):
        self.assert_bad(f"/v2/models/{datatype}/infer", {"inputs": [self.tensor(datatype, **changes)]}, text)


class Json(Infer):
    def test_j01_what_is_no_document(self):
        whole = json.dumps({"input": IRIS})
        bad = ["", "null", "[]", '"x"', whole + "x", whole + whole, "\ufeff" + whole, "/* c */" + whole, whole.replace(",", ",,", 1),
               "{'input': 1}", '{"input": [01]}', "\0" + whole, "x" * 100000]
        bad += [whole[:at] for at in range(1, len(whole))]
        for body in bad:
            self.assert_bad("/predict", body)
        marker = "secret" * 20
        status, answer, content = self.post("/predict", '{"input": [' + marker + "]}")
        self.assertEqual(status, 400)
        self.assertNotIn(marker[:65], answer["error"])

    def test_j02_nesting(self):
        for depth in (65, 10**5, scaled(10**6, 10**7)):
            for opening, closing in (("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")):
                depth = min(depth, (60 << 20) // len(opening + closing))  # a body may have 64 MB
                for body in (opening * depth + "1" + closing * depth, opening * depth):
                    self.assert_bad("/predict", '{"input": ' + body + "}", name=(depth, opening))
                    self.assert_bad("/v2/models/FP32/infer", '{"parameters": {"p": ' + body + '}, "inputs": []}', name=(depth, opening))

    def test_j03_keys_that_come_twice(self):
        good = '{"name":"x","shape":[1],"datatype":"FP32","data":[1]}'
        for body in ('{"inputs":[%s],"inputs":[%s]}' % (good, good), '{"inputs":[%s]}' % good.replace('"shape"', '"name":"x","shape"'),
                     '{"inputs":[%s]}' % good.replace('"shape":[1]', '"shape":[1],"shape":[1]'),
                     '{"inputs":[%s]}' % good.replace('"data":[1]', '"data":[1],"data":[1]'),
                     '{"inputs":[%s],"parameters":{"a":1,"a":2}}' % good):
            self.assert_bad("/v2/models/FP32/infer", body)
        self.assert_bad("/predict", '{"input":[[1,2,3,4]],"input":[[1,2,3,4]]}')

    def test_j04_many_small_elements(self):
        size = scaled(4 << 20, 16 << 20)
        for piece in ('{"":0},', "[],", '"",', "{},"):
            body = '{"inputs":[' + piece * (size // len(piece)) + "{}]}"
            self.assert_bad("/v2/models/FP32/infer", body, codes=(400, 413), name=piece)
            self.assert_bad("/predict", body.replace("inputs", "input"), codes=(400, 413), name=piece)

    def test_j05_numbers(self):
        def exact(datatype, text, wanted):
            body = '{"inputs":[{"name":"x","shape":[1],"datatype":"%s","data":[%s]}]}' % (datatype, text)
            status, answer, content = self.post(f"/v2/models/{datatype}/infer", body)
            if wanted is None:
                self.assertEqual(status, 400, (datatype, text, content))
                if text.strip("-0123456789.e") == "" and text[0] != "." and text[-1] not in ".e":  # what JSON has
                    self.assertIn("'x'", answer["error"], (datatype, text))
            else:
                self.assertEqual(status, 200, (datatype, text, content))
                self.assertEqual(repr(answer["outputs"][0]["data"][0]), repr(wanted), (datatype, text))

        for datatype, text, wanted in (
                ("FP64", "1e400", None), ("FP32", "1e39", None), ("FP64", "1e-400", 0), ("FP64", "-0.0", -0.0), ("FP64", "-0", -0.0),
                ("INT64", "9223372036854775807", 2**63 - 1), ("INT64", "9223372036854775808", None),
                ("INT64", "-9223372036854775808", -2**63), ("INT64", "-9223372036854775809", None),
                ("UINT64", "18446744073709551615", 2**64 - 1), ("UINT64", "18446744073709551616", None),
                ("INT64", "1" * 30, None), ("INT32", "1.5", None), ("INT32", "3000000000", None), ("INT32", "-2147483649", None),
                ("UINT8", "-1", None), ("UINT8", "256", None), ("INT8", "true", None), ("INT8", '"5"', None), ("INT8", "-129", None),
                ("BOOL", "2", None), ("BOOL", '"true"', None), ("INT64", "NaN", None), ("INT64", "Infinity", None),
                ("FP64", "1" * 30, 1.1111111111111111e29), ("FP64", "0.1000000000000000055511151231257827", 0.1), ("FP64", "+1", None),
                ("FP64", ".5", None), ("FP64", "5.", None), ("FP64", "0x10", None), ("FP64", "1e", None)):
            exact(datatype, text, wanted)
        status, answer, _ = self.post("/v2/models/INT64/infer", '{"inputs":[{"name":"x","shape":[3],"datatype":"INT64","data":[0,0,1.5]}]}')
        self.assertEqual(status, 400)
        self.assertIn("2", answer["error"])  # where it stands

    def test_j06_halves(self):
        for datatype, nearest in (("FP16", 0.0999755859375), ("BF16", 0.10009765625)):
            status, answer, content = self.infer(datatype, [0.1])
            self.assertEqual(status, 200, content)
            self.assertEqual(numpy.float32(answer["outputs"][0]["data"][0]), nearest)
        self.assert_bad_tensor(datatype="FP16", data=[65520.0])
        self.assert_bad_tensor(datatype="BF16", data=[3.4e38 * 1.5])

    def test_j07_shapes(self):
        for shape in (None, [], [-1], [2**31], [2**63], [1.5], ["1"], [1] * 33, [2**32, 2**32], [0, 2**62], "1", {}, [[1]], [True], [-2**63], [None]):
            self.assert_bad_tensor(shape=shape)
        tensor = self.tensor()
        del tensor["shape"]
        self.assert_bad("/v2/models/FP32/infer", {"inputs": [tensor]})
        self.assertEqual(self.infer("FP32", [])[1]["outputs"][0]["data"], [])  # its dimension is free

    def test_j08_data_against_shapes(self):
        for shape, data in (([2], [1]), ([1], [1, 2]), ([2, 2], [[1, 2], [3]]), ([2, 2], [[1], [2, 3, 4]]), ([4], [[1, 2], [3, 4], [5]]),
                            ([1], 1), ([2], [1, None]), ([1], None), ([1], {}), ([1], "1"), ([2], [[1], 2]), ([1], [[[[[]]]]])):
            self.assert_bad_tensor(shape=shape, data=data)
        tensor = self.tensor()
        del tensor["data"]
        self.assert_bad("/v2/models/FP32/infer", {"inputs": [tensor]})

    def test_j09_names(self):
        path = "/v2/models/FP32/infer"
        for inputs in ([], None, {}, "x", [self.tensor()] * 2, [self.tensor(), self.tensor(name="z")], [self.tensor(name="X")], [self.tensor(name=5)],
                       [self.tensor(name="")], [self.tensor(name="x\0")], [self.tensor(name="n" * 100000)]):
            self.assert_bad(path, {"inputs": inputs})
        self.assert_bad("/v2/models/sum/infer", {"inputs": [self.tensor(name="a")]}, "needs input 'b'")
        for outputs in ([{"name": "z"}], [{"name": "y"}] * 2, [{}], [5], "y", [{"name": "y"}] * scaled(10**5, 10**6)):
            self.assert_bad(path, {"inputs": [self.tensor()], "outputs": outputs}, codes=(400, 413), name=str(outputs)[:50])
        status, answer, _ = self.post(path, {"inputs": [self.tensor()], "outputs": []})
        self.assertEqual((status, len(answer["outputs"])), (200, 1))

    def test_j10_datatypes(self):
        for datatype in ("fp32", "float", "FP128", "", "FP64", "INT32", "BYTES", "A" * 100000, 5, None):
            self.assert_bad("/v2/models/FP32/infer", {"inputs": [self.tensor(datatype)]})

    def test_j11_strings(self):
        status, answer, _ = self.infer("BYTES", ["a\0b", "\U0001f600", ""])
        self.assertEqual((status, answer["outputs"][0]["data"]), (200, ["a\0b", "\U0001f600", ""]))
        for text in (b'"\xff"', b'"\xc0\xaf"', b'"\\ud800"', b'"\\udc00x"', b'"\\ud800\\ud800"', b'"\\x"', b'"\\u12"', b'"a\nb"', b'"\xed\xa0\x80"'):
            self.assert_bad("/v2/models/BYTES/infer", b'{"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","data":[' + text + b"]}]}")
        self.assert_bad_tensor(datatype="BYTES", data=["a" * (17 << 20)])
        count = scaled(10**6, 10**7)
        body = '{"inputs":[{"name":"x","shape":[%d],"datatype":"BYTES","data":[%s""]}]}' % (count, '"",' * (count - 1))
        status, _, content = self.post("/v2/models/BYTES/infer", body)
        self.assertIn(status, (200, 400, 413), content[:200])

    def test_j12_parameters(self):
        for parameters in ("x", [1], 5, {"timeout": -1}, {"timeout": 2**64}, {"timeout": "soon"}, {"timeout": 1.5}, {"priority": -1},
                           {"priority": "high"}, {"priority": 2**64}, {"binary_data_output": "yes"}):
            self.assert_bad("/v2/models/FP32/infer", {"inputs": [self.tensor()], "parameters": parameters})
        for size in (-1, 1.5, "4", 2**64, None, [4]):
            self.assert_bad("/v2/models/FP32/infer", {"inputs": [self.tensor(parameters={"binary_data_size": size})]})
        # What nobody knows is for somebody else.
        status, _, content = self.post("/v2/models/FP32/infer", {"inputs": [self.tensor()], "parameters": {
            "other": {"deep": [[[1, {"x": None}]]]}, "long": "a" * 10000, "timeout": 10**12}})
        self.assertEqual(status, 200, content)

    def test_j13_identifiers(self):
        body = {"inputs": [self.tensor()]}
        for name in ("a" * (1 << 20), "a" * 257, 5, None, [], {}):
            self.assert_bad("/v2/models/FP32/infer", {**body, "id": name})
        for name in ("", "a" * 256, 'say "hi"\\', "\r\nSet-Cookie: a", "\x01\t\x7f", "\u00e9"):
            status, answer, content = self.post("/v2/models/FP32/infer", {**body, "id": name})
            self.assertEqual(status, 200, (name, content))
            self.assertEqual(answer.get("id", ""), name)

    def test_j14_types_of_content(self):
        body = json.dumps({"input": IRIS}).encode()
        for kind in ("application/json", "application/vnd.api+json", "text/plain", "application/x-www-form-urlencoded", "application/json; charset=UTF-8"):
            self.assertEqual(self.post("/predict", body, {"Content-Type": kind})[0], 200, kind)
        for kind in ("multipart/form-data; boundary=x", "application/json; charset=utf-16"):
            self.assert_bad("/predict", body, headers={"Content-Type": kind}, codes=(415,), name=kind)

    def test_j15_answers_that_json_cannot_say(self):
        status, answer, content = self.post("/v2/models/FP32/infer", b'{"inputs":[{"name":"x","shape":[2],"datatype":"FP32","data":[NaN,Infinity]}]}')
        self.assertEqual((status, answer["outputs"][0]["data"]), (200, [None, None]), content)
        element = struct.pack("<I", 2) + b"\xff\xfe"
        head = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": len(element)}}],
                           "outputs": [{"name": "y", "parameters": {"binary_data": False}}]}).encode()
        self.assert_bad("/v2/models/BYTES/infer", head + element, "binary", {"Inference-Header-Content-Length": str(len(head))})

    def test_j16_numbers_of_classes(self):
        for count in (0, -1, 1.5, "2", 10**9, 2**64):
            self.assert_bad("/v2/models/FP32/infer", {"inputs": [self.tensor()], "outputs": [{"name": "y", "parameters": {"classification": count}}]})
        status, answer, content = self.post("/v2/models/FP32/infer", {"inputs": [self.tensor(data=[1.0, 2.0])], "outputs": [
            {"name": "y", "parameters": {"classification": 65536}}]})
        self.assertEqual((status, len(answer["outputs"][0]["data"])), (200, 2), content)


class Binary(Infer):
    def part(self, size, datatype="FP32", shape=(1,), **changes):
        return {"name": "x", "shape": list(shape), "datatype": datatype, "parameters": {"binary_data_size": size}, **changes}

    def send(self, inputs, binary, header=None, model="FP32", head=None):
        head = json.dumps({"inputs": inputs}).encode() if head is None else head
        headers = {} if header is None else {"Inference-Header-Content-Length": header}
        return self.post(f"/v2/models/{model}/infer", head + binary, headers), len(head)

    def assert_bad_binary(self, inputs, binary, header="right", model="FP32", head=None):
        head = json.dumps({"inputs": inputs}).encode() if head is None else head
        headers = {} if header is None else {"Inference-Header-Content-Length": str(len(head)) if header == "right" else header}
        self.assert_bad(f"/v2/models/{model}/infer", head + binary, headers=headers, name=(str(inputs)[:100], len(binary), header))

    def test_b01_lengths_of_the_header(self):
        value = struct.pack("<f", 1.5)
        head = json.dumps({"inputs": [self.part(4)]}).encode()
        for header in (None, "-1", "+%d" % len(head), "0x10", str(len(head) + 5), str(len(head) + 4), str(2**63), str(2**64), "", "abc", " ", "1 2",
                       "%d, %d" % (len(head), len(head))):
            self.assert_bad_binary(None, value, header, head=head)
        pair = "Inference-Header-Content-Length: %d\r\n" % len(head)
        twice = (f"POST /v2/models/FP32/infer HTTP/1.1\r\nHost: h\r\nContent-Length: {len(head) + 4}\r\n{pair}{pair}\r\n").encode() + head + value
        self.assertEqual(self.answers(twice)[0], [400])
        self.assert_bad("/v2/models/sum/infer", value, headers={"Inference-Header-Content-Length": "0"})  # has two inputs
        self.assertEqual(self.send([self.part(4)], value, str(len(head)))[0][0], 200)

    def test_b02_sums_of_sizes(self):
        one = {**self.part(4), "name": "a"}, {**self.part(4), "name": "b"}
        value = struct.pack("<f", 1.5)
        for count in (0, 1, 3):
            self.assert_bad_binary(list(one), value * count, model="sum")
        huge = [{**self.part(2**63 - 1), "name": "a"}, {**self.part(2**63 - 1), "name": "b"}]
        self.assert_bad_binary(huge, value * 2, model="sum")
        huge = [{**self.part(2**64 - 4), "name": "a"}, {**self.part(12), "name": "b"}]
        self.assert_bad_binary(huge, value * 2, model="sum")

    def test_b03_sizes_against_shapes(self):
        for shape, size in (((1,), 3), ((1,), 8), ((2,), 4), ((0,), 4), ((1,), 0), ((2**40,), 4), ((2**62, 4), 0)):
            self.assert_bad_binary([self.part(size, shape=shape)], bytes(size))

    def test_b04_data_twice(self):
        self.assert_bad_binary([self.part(4, data=[1.0])], bytes(4))
        head = json.dumps({"inputs": [self.part(4)], "outputs": [{"name": "y", "parameters": {"binary_data_size": 4}}]}).encode()
        status = self.post("/v2/models/FP32/infer", head + bytes(4), {"Inference-Header-Content-Length": str(len(head))})[0]
        self.assertIn(status, (200, 400))  # of an output it says nothing

    def test_b05_elements_of_bytes(self):
        def element(text):
            return struct.pack("<I", len(text)) + text

        for shape, binary in (((1,), struct.pack("<I", 9) + b"abc"), ((1,), b"\xff" * 4), ((1,), b"\1\0"), ((2,), element(b"a")),
                              ((1,), element(b"a") * 2), ((1,), element(b"a") + b"x"), ((0,), element(b"")), ((2,), b"\xff\xff\xff\xff" + bytes(8))):
            self.assert_bad_binary([self.part(len(binary), "BYTES", shape)], binary, model="BYTES")
        count = scaled(10**6, 10**7)
        binary = bytes(4 * count)
        head = json.dumps({"inputs": [self.part(len(binary), "BYTES", [count])]}).encode()
        status, _, content = self.post("/v2/models/BYTES/infer", head + binary, {"Inference-Header-Content-Length": str(len(head))})
        self.assertIn(status, (200, 400, 413), content[:100])

    def test_b06_booleans(self):
        for byte in (2, 255):
            self.assert_bad_binary([self.part(2, "BOOL", [2])], bytes([1, byte]), model="BOOL")

    def test_b07_numbers_at_odd_places(self):
        value = struct.pack("<2d", 1.25, -2.5)
        for spaces in range(9):
            head = json.dumps({"inputs": [self.part(16, "FP64", [2])]}).encode() + b" " * spaces
            status, answer, content = self.post("/v2/models/FP64/infer", head + value, {"Inference-Header-Content-Length": str(len(head))})
            self.assertEqual((status, answer and answer["outputs"][0]["data"]), (200, [1.25, -2.5]), content)

    def test_b08_a_body_that_is_one_tensor(self):
        raw = {"Inference-Header-Content-Length": "0"}
        self.assert_bad("/v2/models/sum/infer", bytes(8), headers=raw)
        self.assert_bad("/v2/models/FP32/infer", bytes(7), headers=raw)
        self.assertEqual(self.post("/v2/models/FP32/infer", bytes(4), raw)[0], 200)

    def test_b09_a_header_that_ends_early(self):
        head = json.dumps({"inputs": [self.tensor()]}).encode()
        for length in (1, 5, len(head) - 1):
            self.assert_bad_binary(None, b"", str(length), head=head)
        self.assert_bad_binary(None, head, "2", head=b"{}")

    def test_b10_which_outputs_are_binary(self):
        head = json.dumps({"inputs": [self.tensor()], "parameters": {"binary_data_output": True},
                           "outputs": [{"name": "y", "parameters": {"binary_data": False}}]})
        status, answer, _ = self.post("/v2/models/FP32/infer", head)
        self.assertEqual((status, answer["outputs"][0]["data"]), (200, [1.0]))


if __name__ == "__main__":
    unittest.main()

"""What onnxruntime-extensions does to strings and segments within graphs."""

import json
import unittest

import numpy

import oracle
import texts
from test_tokenizers import BOOL, FLOAT, INT64, STRING, by_extensions, model_of, strings

NONE = numpy.zeros(0, numpy.int64)


def whole(*numbers):
    return numpy.array(numbers, numpy.int64)


class StringOperators(unittest.TestCase):
    def check(self, op, inputs, outputs, expected=None, **attributes):
        """`expected`: where they crash, or differ from the library that they follow."""
        model, feeds = model_of(op, inputs, outputs, **attributes)
        if expected is None:
            expected = by_extensions(model, feeds)
            self.assertIsInstance(expected, list, f"{op}: {expected}")
        oracle.assert_same(self, model, feeds, rtol=0, atol=0, outputs=expected, levels=("all",))

    def refusal(self, op, inputs, outputs, **attributes):
        return oracle.refusal(*model_of(op, inputs, outputs, **attributes))

    def test_case_length_and_ends(self):
        self.check("StringUpper", [strings(*texts.TEXTS)], [STRING])
        self.check("StringStrip", [strings(*(text for text in texts.TEXTS if not text or text.strip()))], [STRING])
        # Theirs leaves these, tensorflow's does not.
        self.check("StringStrip", [strings(" ", " \t\n")], [STRING], [strings("", "")])
        self.check("StringLower", [strings("AbÉ", "ÜBER 12", "")], [STRING])
        # Theirs leaves what is not Latin.
        self.check("StringLower", [strings("ΑΒ", "ẞЖ")], [STRING], [strings("αβ", "ßж")])
        self.check("StringLength", [strings(*texts.TEXTS)], [INT64])
        self.check("StringLength", [strings("aß", "色")[None]], [INT64])

    def test_concat_and_equal(self):
        self.check("StringConcat", [strings("a", ""), strings("c", "é")], [STRING])
        self.check("StringEqual", [strings("a", "b"), strings("a", "c")], [BOOL])
        self.check("StringEqual", [strings("a", "b"), strings("b")], [BOOL])
        self.assertIn("texts of shapes [2] and [1]", self.refusal("StringConcat", [strings("a", "b"), strings("a")], [STRING]))

    def test_join(self):
        cube = strings(*"abcdefgh").reshape(2, 2, 2)
        for x, axis in ((cube, 0), (cube, 1), (cube, 2), (strings("a", "b"), 0), (strings(), 0), (strings().reshape(0, 2), 0)):
            with self.subTest(shape=x.shape, axis=axis):
                self.check("StringJoin", [x, strings(", "), whole(axis)], [STRING])
        self.assertIn("axis 1 of [1]", self.refusal("StringJoin", [strings("a"), strings(""), whole(1)], [STRING]))

    def test_split(self):
        for separators in (",", ", ", "x"):
            for skips in (False, True):
                self.check("StringSplit", [strings("a,b, c", ",", "", ",x,,", "é色,"), strings(separators), numpy.array([skips])],
                           [INT64, STRING, INT64])
        self.check("StringSplit", [strings("abc", ""), strings(""), numpy.array([False])], [INT64, STRING, INT64])
        # They cut characters of several bytes apart.
        self.check("StringSplit", [strings("é色"), strings(""), numpy.array([False])], [INT64, STRING, INT64],
                   [numpy.array([[0, 0], [0, 1]]), strings("é", "色"), whole(1, 2)])

    def test_expressions(self):
        lines = strings("abc aab", "é1 22", "")
        for pattern, rewrite in (("a(b)", r"<\1>"), (r"\d+", "#"), (r"(\w)\s(\w)", r"\2 \1"), (".", "x")):
            for everywhere in (0, 1):
                self.check("StringRegexReplace", [lines, strings(pattern), strings(rewrite)], [STRING], global_replace=everywhere)
        for pattern, rewrite in (("a(b)", "<$1>"), ("[ab]", "[$&$$]"), ("A", r"\1$")):
            for ignores in (0, 1):
                self.check("StringECMARegexReplace", [lines, strings(pattern), strings(rewrite)], [STRING], ignore_case=ignores)
        for op, pattern in (("StringRegexReplace", "a(b"), ("StringECMARegexReplace", "a(?=b)"), ("StringRegexReplace", "")):
            self.assertIn("pattern", self.refusal(op, [lines, strings(pattern), strings("")], [STRING]))
        self.assertIn("rewrite", self.refusal("StringRegexReplace", [lines, strings("a"), strings(r"\7")], [STRING]))

    def test_split_at_expressions(self):
        lines = strings("hello  there", "", "a,b c", " ", " end ")
        for kept in ("", r"\s", ","):
            self.check("StringRegexSplitWithOffsets", [lines, strings(r"(\s|,)"), strings(kept)], [STRING, INT64, INT64, INT64])

    def test_maps(self):
        self.check("StringMapping", [strings("a", "b", "c")], [STRING], map="a\tX\n\nb\tY Z")
        for x in (strings("a", "b", "q"), strings("a", "b")[None]):
            self.check("StringToVector", [x], [INT64], map="a\t0 1\nb\t2 -3", unk="-1 -2")
        for x in (numpy.array([[0, 1], [2, -3], [7, 7]]), numpy.array([[[0, 1]]])):
            self.check("VectorToString", [x], [STRING], map="a\t0 1\nb\t2 -3", unk="U")
        for x in (whole(0, 2, 9), numpy.array([[0], [2]]), numpy.array(2)):
            self.check("VectorToString", [x], [STRING], map="a\t0\nb\t2", unk="U")
        self.assertIn("is no TEXT<tab>TEXT", self.refusal("StringMapping", [strings("a")], [STRING], map="a X"))
        self.assertIn("has 1 numbers, others have 2", self.refusal("StringToVector", [strings("a")], [INT64], map="a\t0 1\nb\t2", unk="0 0"))
        self.assertIn("'x' is no whole number", self.refusal("StringToVector", [strings("a")], [INT64], map="a\tx", unk="0"))

    def test_masked_fill(self):
        self.check("MaskedFill", [strings("a", "b", "c"), numpy.array([True, False, True])], [STRING])

    def test_ragged_tensors(self):
        for rows in (whole(0, 2, 2, 5), whole(0, 5), whole(0, 0)):
            self.check("RaggedTensorToSparse", [rows], [INT64, INT64])
            self.check("RaggedTensorToDense", [whole(0), whole(1, 2, 3, 4, 5), whole(-1), rows], [INT64])
        self.assertIn("rows end at 9 of 5 values", self.refusal(
            "RaggedTensorToDense", [whole(0), whole(1, 2, 3, 4, 5), whole(-1), whole(0, 2, 9)], [INT64]))
        self.assertIn("do not ascend", self.refusal("RaggedTensorToSparse", [whole(0, 3, 2)], [INT64, INT64]))

    def test_segments(self):
        for x in (whole(0, 0, 1, 1, 0, 2, 2, 2, 3), numpy.array([[0, 1, 1]]), whole(0, 0)):
            self.check("SegmentExtraction", [x], [INT64, INT64])
        data = numpy.arange(6, dtype=numpy.float32).reshape(3, 2)
        for ids in (whole(0, 0, 1), whole(1, 1, 2), whole(0, 1, 2)):
            self.check("SegmentSum", [data, ids], [FLOAT])
        self.check("SegmentSum", [data[:0], NONE], [FLOAT], [data[:0]])
        self.assertIn("2 follows 0", self.refusal("SegmentSum", [data, whole(0, 2, 2)], [FLOAT]))

    def test_numbers(self):
        x = numpy.array([[1, -2], [0, 4]], numpy.float32)
        self.check("NegPos", [x], [FLOAT, FLOAT])
        model, feeds = model_of("Inverse", [x], [FLOAT])
        oracle.assert_same(self, model, feeds, outputs=by_extensions(model, feeds), levels=("all",))

    def test_basic_tokenizer(self):
        """Where letters are Latin or Chinese: of others theirs changes none."""
        for text in [*texts.LINES[:3], *texts.LINES[4:6], texts.LINES[9]]:
            for options in ({}, {"tokenize_punctuation": 1}, {"do_lower_case": 0, "strip_accents": 1},
                            {"tokenize_chinese_chars": 0, "remove_control_chars": 0}):
                with self.subTest(text=text, **options):
                    self.check("BasicTokenizer", [strings(text)], [STRING], **options)

    def test_wordpiece_tokenizer(self):
        """As tensorflow_text: a word with a part that is no token is unknown as a whole."""
        options = {"vocab": json.dumps({"a": 0, "##b": 1, "[unk]": 2, "hello": 3, "##lo": 4, "hel": 5}),
                   "suffix_indicator": "##", "unknown_token": "[unk]"}
        kinds = [STRING, INT64, INT64, INT64]
        for rows in (whole(0, 3), NONE, whole(0, 1, 3)):
            self.check("WordpieceTokenizer", [strings("hello ab", "ab", " hello  ab "), rows], kinds, **options)
        self.check("WordpieceTokenizer", [strings("abc hello"), NONE], kinds,
                   [strings("[unk]", "hello"), whole(0, 2), whole(0), whole(2)], **options)
        self.check("WordpieceTokenizer", [strings("hello ab"), NONE], kinds, max_input_chars_per_word=4, **options)
        self.assertIn("rows must ascend", self.refusal("WordpieceTokenizer", [strings("a"), whole(0, 2)], kinds, **options))


if __name__ == "__main__":
    unittest.main()

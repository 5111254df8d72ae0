"""Tokenizers within graphs (onnxruntime-extensions' operators) give what the libraries give whose vocabularies they have:
Hugging Face's tokenizers and sentencepiece. onnxruntime-extensions itself is the oracle where it has none, and a second
one where it does not crash."""

import itertools
import json
import os
import pickle
import signal
import unittest

import numpy
import onnx
import onnxruntime
import onnxruntime_extensions
import sentencepiece
from onnx import TensorProto, helper
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

import oracle
import texts

BOOL, FLOAT, INT32, INT64, STRING = (
    TensorProto.BOOL, TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.STRING)


def strings(*values):
    return numpy.array(values, object)


def model_of(op, inputs, outputs, domain="ai.onnx.contrib", **attributes):
    """One node; `inputs`: arrays in order; `outputs`: element types."""
    names = [f"i{i}" for i in range(len(inputs))]
    infos = [helper.make_tensor_value_info(
        name, STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in zip(names, inputs)]
    results = [helper.make_tensor_value_info(f"o{i}", kind, None) for i, kind in enumerate(outputs)]
    node = helper.make_node(op, names, [info.name for info in results], domain=domain, **attributes)
    return helper.make_model(helper.make_graph([node], op, infos, results), ir_version=9, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid(domain, 1)]), dict(zip(names, inputs))


def by_extensions(model, feeds):
    """What onnxruntime-extensions gives; its error; or None where it crashes or hangs. In a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.close(read)
        try:
            options = onnxruntime.SessionOptions()
            options.log_severity_level = 4
            options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
            result = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
        except Exception as error:  # of the oracle, whatever it is
            result = str(error)
        with os.fdopen(write, "wb") as out:
            out.write(pickle.dumps(result))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as out:
        data = out.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else None


def padded(rows, pad=0, length=None):
    """[ids, mask] of rows of different lengths."""
    length = length or max(map(len, rows))
    ids = numpy.full((len(rows), length), pad, numpy.int64)
    mask = numpy.zeros((len(rows), length), numpy.int64)
    for i, row in enumerate(rows):
        row = row[:length]
        ids[i, :len(row)] = row
        mask[i, :len(row)] = 1
    return [ids, mask]


def padded_offsets(rows):
    out = numpy.zeros((len(rows), max(map(len, rows)), 2), numpy.int64)
    for i, row in enumerate(rows):
        if row:
            out[i, :len(row)] = row
    return out


class Tokenizers(unittest.TestCase):
    def check(self, model, feeds, outputs):
        oracle.assert_same(self, model, feeds, rtol=0, atol=0, outputs=outputs, levels=("all",))

    def check_op(self, op, inputs, outputs, expected, **attributes):
        model, feeds = model_of(op, inputs, outputs, **attributes)
        self.check(model, feeds, expected)
        return model, feeds


class Bert(Tokenizers):
    def tokenizer(self, lower, accents, chinese):
        vocabulary = texts.word_pieces()
        made = Tokenizer(models.WordPiece({token: i for i, token in enumerate(vocabulary)}, unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=chinese, strip_accents=accents, lowercase=lower)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        numbers = {token: vocabulary.index(token) for token in ("[CLS]", "[SEP]")}
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=list(numbers.items()))
        return made

    def test_one_text(self):
        for lower, accents, chinese in ((1, 1, 1), (1, 0, 1), (0, 0, 1), (0, 1, 0)):
            tokenizer = self.tokenizer(bool(lower), bool(accents), bool(chinese))
            for text in texts.TEXTS:
                expected = tokenizer.encode(text)
                with self.subTest(text=text, lower=lower, accents=accents, chinese=chinese):
                    self.check_op(
                        "BertTokenizer", [strings(text)], [INT64] * 4,
                        [numpy.array(expected.ids), numpy.array(expected.type_ids), numpy.ones(len(expected.ids), int),
                         numpy.array(expected.offsets)],
                        vocab_file="\n".join(texts.word_pieces()), do_lower_case=lower, strip_accents=accents,
                        tokenize_chinese_chars=chinese)

    def test_two_texts_and_truncation(self):
        strategies = {"longest_first": "longest_first", "only_first": "only_first", "only_second": "only_second"}
        one, two = texts.LINES[0], texts.LINES[3]
        for (name, strategy), length in itertools.product(strategies.items(), (-1, 20, 64)):
            tokenizer = self.tokenizer(True, False, True)
            if length > 0:
                tokenizer.enable_truncation(length, strategy=strategy)
            try:
                expected = tokenizer.encode(one, two)
            except Exception:  # the one text that may give is too short
                continue
            with self.subTest(strategy=name, length=length):
                options = {"vocab_file": "\n".join(texts.word_pieces()), "max_length": length,
                           "truncation_strategy_name": name}
                ids, types = numpy.array(expected.ids), numpy.array(expected.type_ids)
                self.check_op("BertTokenizer", [strings(one, two)], [INT64] * 3, [ids, types, numpy.ones_like(ids)],
                              **options)
                self.check_op("HfBertTokenizer", [strings(one, two)], [INT64] * 3,
                              [ids[None], numpy.ones_like(ids)[None], types[None]], **options)

    def test_as_extensions_do(self):
        """Where every word can be cut into tokens: else they keep the tokens that were found before the unknown part, of
        what BERT takes for one unknown word."""
        vocabulary = "\r\n".join(texts.word_pieces())
        known = ["the model answers requests", "it shares one batch, and they wait", "THE SERVER SAYS"]
        for text, options in itertools.product(known, ({}, {"do_basic_tokenize": 0}, {"max_length": 5})):
            if "," in text and options.get("do_basic_tokenize") == 0:
                continue
            model, feeds = model_of("BertTokenizer", [strings(text)], [INT64] * 3, vocab_file=vocabulary, **options)
            expected = by_extensions(model, feeds)
            with self.subTest(text=text, **options):
                self.assertIsInstance(expected, list)
                self.check(model, feeds, expected)

    def test_decoder(self):
        vocabulary = texts.word_pieces()
        for text in texts.LINES:
            ids = numpy.array(self.tokenizer(True, True, True).encode(text).ids)
            none = numpy.zeros((0, 2), numpy.int64)
            for options in ({}, {"skip_special_tokens": 1}, {"clean_up_tokenization_spaces": 0}):
                model, feeds = model_of("BertTokenizerDecoder", [ids, none], [STRING], vocab_file="\n".join(vocabulary),
                                        **options)
                expected = by_extensions(model, feeds)
                with self.subTest(text=text, **options):
                    self.assertIsInstance(expected, list)
                    self.check(model, feeds, expected)
            model, feeds = model_of("BertTokenizerDecoder", [ids, numpy.array([[1, 4], [2, 3]])], [STRING],
                                    vocab_file="\n".join(vocabulary), use_indices=1)
            self.check(model, feeds, by_extensions(model, feeds))


class BytePairs(Tokenizers):
    def check_rows(self, op, tokenizer, inputs, pad, attributes, count=3):
        rows = [tokenizer.encode(text) for text in inputs]
        expected = [*padded([row.ids for row in rows], pad), padded_offsets([row.offsets for row in rows])]
        self.check_op(op, [strings(*inputs)], [INT64] * count, expected[:count], **attributes)

    def test_gpt2(self):
        vocabulary, merges = texts.byte_level()
        tokenizer = Tokenizer(models.BPE(vocabulary, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=False)
        tokenizer.add_special_tokens(["<|endoftext|>"])
        attributes = {"vocab": json.dumps(vocabulary), "merges": "#version: 0.2\n" + "\n".join(map(" ".join, merges))}
        for text in texts.TEXTS:
            with self.subTest(text=text):
                self.check_rows("GPT2Tokenizer", tokenizer, [text], 0, attributes)
        self.check_rows("GPT2Tokenizer", tokenizer, texts.TEXTS, 0, attributes)
        rows = [tokenizer.encode(text).ids for text in texts.TEXTS]
        self.check_op("GPT2Tokenizer", [strings(*texts.TEXTS)], [INT64] * 2, padded(rows, 0, 12), padding_length=12,
                      **attributes)
        model, feeds = model_of("GPT2Tokenizer", [strings(*texts.LINES)], [INT64] * 2, **attributes)
        self.check(model, feeds, by_extensions(model, feeds))

    def test_roberta(self):
        learned, merges = texts.byte_level()
        vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3}
        vocabulary.update({token: number + 4 for token, number in learned.items()})
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True,
                                                                add_prefix_space=False)
        tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
        attributes = {"vocab": json.dumps(vocabulary), "merges": "\n".join(map(" ".join, merges))}
        self.check_rows("RobertaTokenizer", tokenizer, texts.TEXTS, 1, attributes)
        added = AddedToken("<mask>", normalized=False)
        tokenizer.add_special_tokens([added])
        number = tokenizer.token_to_id("<mask>")
        self.check_rows("RobertaTokenizer", tokenizer, texts.TEXTS, 1, {**attributes, "added_token": f"<mask>={number}"})

    def test_clip(self):
        learned, merges = texts.byte_level()
        vocabulary = {token: i for i, token in enumerate(token for token in learned if token != "<|endoftext|>")}
        for token in list(vocabulary):
            vocabulary[token + "</w>"] = len(vocabulary)
        merges = [(left, right + end) for left, right in merges if not left.startswith("Ġ") for end in ("", "</w>")]
        for token in ("<|startoftext|>", "<|endoftext|>"):
            vocabulary[token] = len(vocabulary)
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"), "removed", True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        begin, end = (vocabulary[token] for token in ("<|startoftext|>", "<|endoftext|>"))
        tokenizer.post_processor = processors.RobertaProcessing(("<|endoftext|>", end), ("<|startoftext|>", begin),
                                                                trim_offsets=True, add_prefix_space=False)
        tokenizer.add_special_tokens(["<|startoftext|>", "<|endoftext|>"])
        attributes = {"vocab": json.dumps(vocabulary), "merges": "\n".join(map(" ".join, merges))}
        self.check_rows("CLIPTokenizer", tokenizer, texts.TEXTS, end, attributes)

    def test_llama(self):
        model = sentencepiece.SentencePieceProcessor(model_proto=texts.sentencepiece_model(
            model_type="bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False))
        vocabulary = {model.id_to_piece(i): i for i in range(model.vocab_size())}
        scores = {model.id_to_piece(i): model.get_score(i) for i in range(model.vocab_size())}
        # Pairs in the order of what they become, as transformers reads such a model.
        merges = sorted(((left, right) for whole in vocabulary for i in range(1, len(whole))
                         for left, right in ((whole[:i], whole[i:]),) if left in vocabulary and right in vocabulary),
                        key=lambda pair: (-scores["".join(pair)], vocabulary[pair[0]], vocabulary[pair[1]]))
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
        tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
        # A line end separates merges, and so is no part of one.
        lines = [" ".join(pair) for pair in merges if "\n" not in "".join(pair)]
        attributes = {"vocab": json.dumps(vocabulary), "merges": "\n".join(lines)}
        self.check_rows("SpmTokenizer", tokenizer, texts.TEXTS, 0, attributes, count=2)

    def test_decoder(self):
        vocabulary, merges = texts.byte_level()
        tokenizer = Tokenizer(models.BPE(vocabulary, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|endoftext|>"])
        by_number = sorted(vocabulary, key=vocabulary.get)
        characters = {chr(byte): byte for byte in [*range(33, 127), *range(161, 173), *range(174, 256)]}
        characters.update({chr(256 + i): byte for i, byte in enumerate(
            byte for byte in range(256) if chr(byte) not in characters)})
        attributes = {"id_vocab": "\n".join(by_number), "all_special_ids": "0", "added_tokens": "0\t<|endoftext|>",
                      "byte_decoder": "\n".join(f"{ord(character)}\t{byte}" for character, byte in characters.items())}
        for skip in (0, 1):
            rows = [tokenizer.encode(text).ids for text in texts.TEXTS]
            ids, _ = padded(rows)
            expected = [tokenizer.decode(row, skip_special_tokens=bool(skip)) for row in ids]
            with self.subTest(skip=skip):
                self.check_op("BpeDecoder", [ids], [STRING], [strings(*expected)], skip_special_tokens=skip, **attributes)
                self.check_op("BpeDecoder", [ids[None]], [STRING], [strings(*expected)[None]], skip_special_tokens=skip,
                              **attributes)
                for row in rows[:4]:
                    model, feeds = model_of("BpeDecoder", [numpy.array(row)], [STRING], skip_special_tokens=skip,
                                            **attributes)
                    self.check(model, feeds, by_extensions(model, feeds))


class Sentencepiece(Tokenizers):
    KINDS = {
        "unigram": {},
        "bpe": {"model_type": "bpe"},
        "bpe, bytes": {"model_type": "bpe", "byte_fallback": True},
        "unigram, bytes": {"byte_fallback": True},
        "char": {"model_type": "char"},
        "word": {"model_type": "word"},
        "symbols": {"user_defined_symbols": "<sep>,[MASK],endof", "control_symbols": "<ctl>"},
        "symbols, bpe": {"model_type": "bpe", "user_defined_symbols": "<sep>,[MASK],endof"},
        "identity": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False},
        "no prefix": {"add_dummy_prefix": False, "normalization_rule_name": "nfkc_cf"},
        "suffix": {"treat_whitespace_as_suffix": True},
    }

    def inputs(self, rows, bos=False, eos=False, reverse=False, fairseq=None):
        flags = [numpy.array([flag]) for flag in (bos, eos, reverse)]
        more = [] if fairseq is None else [numpy.array([fairseq])]
        return [strings(*rows), numpy.array([0]), numpy.array([0], numpy.float32), *flags, *more]

    def expected(self, processor, rows):
        encoded = [processor.encode(row, out_type="proto") for row in rows]
        ids = [piece.id for row in encoded for piece in row.pieces]
        begins = numpy.cumsum([0, *(len(row.pieces) for row in encoded)])
        places = [piece.begin for row in encoded for piece in row.pieces]
        return [numpy.array(ids, numpy.int32), begins, numpy.array(places, numpy.int32)]

    def test_encode(self):
        for kind, options in self.KINDS.items():
            model = texts.sentencepiece_model(**options)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            for text in texts.TEXTS:
                with self.subTest(kind=kind, text=text):
                    self.check_op("SentencepieceTokenizer", self.inputs([text]), [INT32, INT64, INT32],
                                  self.expected(processor, [text]), model=model)
            self.check_op("SentencepieceTokenizer", self.inputs(texts.TEXTS), [INT32, INT64],
                          self.expected(processor, texts.TEXTS)[:2], model=model)

    def test_flags_as_extensions_have_them(self):
        model = texts.sentencepiece_model()
        for bos, eos, reverse in itertools.product((False, True), repeat=3):
            # They forget fairseq's numbers in reverse.
            for fairseq in (None, False) if reverse else (None, False, True):
                node, feeds = model_of("SentencepieceTokenizer", self.inputs(texts.LINES, bos, eos, reverse, fairseq),
                                       [INT32, INT64, INT32], model=model)
                with self.subTest(bos=bos, eos=eos, reverse=reverse, fairseq=fairseq):
                    self.check(node, feeds, by_extensions(node, feeds))

    def test_decode(self):
        for kind, options in self.KINDS.items():
            model = texts.sentencepiece_model(**options)
            processor = sentencepiece.SentencePieceProcessor(model_proto=model)
            for text in texts.TEXTS:
                ids = [1, *processor.encode(text), 2]
                with self.subTest(kind=kind, text=text):
                    self.check_op("SentencepieceDecoder", [numpy.array(ids, numpy.int64)], [STRING],
                                  [strings(processor.decode(ids))], model=model)
        model = texts.sentencepiece_model()
        for fairseq in (False, True):
            node, feeds = model_of("SentencepieceDecoder", [numpy.arange(60), numpy.array([fairseq])], [STRING], model=model)
            self.check(node, feeds, by_extensions(node, feeds))

    def test_refused(self):
        model = texts.sentencepiece_model()
        sampled = self.inputs(["a"])
        sampled[1] = numpy.array([5])
        self.assertIn("nbest_size 5", oracle.refusal(*model_of("SentencepieceTokenizer", sampled, [INT32, INT64], model=model)))
        self.assertIn("token 100000 is not in [0, ", oracle.refusal(
            *model_of("SentencepieceDecoder", [numpy.array([100000])], [STRING], model=model)))
        for broken in (b"", b"abc", model[:1003]):
            self.assertIn("INVALID_ARGUMENT", oracle.refusal(*model_of("SentencepieceDecoder", [numpy.array([1])], [STRING], model=broken)))


class Json(Tokenizers):
    """tokenizer.json, step by step and as known models have them."""

    def check_tokenizer(self, tokenizer, inputs=texts.TEXTS, config=None, pad=0, offsets=True):
        """`offsets`: false where the library places what it composes or replaces at the first or last character alone, and
        bytes at all characters of their word; here they are where they come from."""
        rows = [tokenizer.encode(text) for text in inputs]
        expected = [*padded([row.ids for row in rows], pad), padded_offsets([row.offsets for row in rows])]
        count = 3 if offsets else 2
        self.check_op("HfJsonTokenizer", [strings(*inputs)], [INT64] * count, expected[:count],
                      tokenizer_vocab=tokenizer.to_str(), tokenizer_config=json.dumps(config or {}))

    def bytes_model(self, **options):
        vocabulary, merges = texts.byte_level()
        return Tokenizer(models.BPE(vocabulary, merges, **options))

    def pieces_model(self):
        vocabulary = {token: i for i, token in enumerate(texts.word_pieces())}
        return Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))

    def unigram_model(self, **options):
        model = sentencepiece.SentencePieceProcessor(model_proto=texts.sentencepiece_model(**options))
        pieces = [(model.id_to_piece(i), model.get_score(i)) for i in range(model.vocab_size())]
        return Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=bool(options.get("byte_fallback"))))

    def test_normalizers(self):
        steps = {
            "bert": normalizers.BertNormalizer(), "bert, cased": normalizers.BertNormalizer(lowercase=False),
            "nfc": normalizers.NFC(), "nfd": normalizers.NFD(), "nfkc": normalizers.NFKC(), "nfkd": normalizers.NFKD(),
            "lower": normalizers.Lowercase(), "strip": normalizers.Strip(), "left": normalizers.Strip(right=False),
            "accents": normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.NFC()]),
            "replace": normalizers.Replace("an", "<>"), "expression": normalizers.Replace(Regex(r"\s{2,}|\d+"), "_"),
            "prepend": normalizers.Prepend("▁"), "nmt": normalizers.Nmt(),
        }
        for name, step in steps.items():
            tokenizer = self.pieces_model()
            tokenizer.normalizer = step
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            with self.subTest(normalizer=name):
                self.check_tokenizer(tokenizer, offsets=name in ("bert", "bert, cased", "lower", "strip", "left", "nmt"))

    def test_pre_tokenizers(self):
        cuts = pre_tokenizers
        steps = {
            "whitespace": cuts.Whitespace(), "blanks": cuts.WhitespaceSplit(), "bert": cuts.BertPreTokenizer(),
            "marks": cuts.Punctuation(), "digits": cuts.Digits(), "each digit": cuts.Digits(individual_digits=True),
            "delimiter": cuts.CharDelimiterSplit("e"),
            "sequence": cuts.Sequence([cuts.WhitespaceSplit(), cuts.Punctuation(), cuts.Digits(True)]),
            **{f"split, {behavior}, {invert}": cuts.Split(Regex(r"[aeiou]\w|\s"), behavior, invert)
               for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
               for invert in (False, True)},
        }
        for name, step in steps.items():
            tokenizer = self.pieces_model()
            tokenizer.normalizer = normalizers.Lowercase()
            tokenizer.pre_tokenizer = step
            with self.subTest(pre_tokenizer=name):
                self.check_tokenizer(tokenizer)

    def test_bytes(self):
        cuts = pre_tokenizers
        words = {
            "gpt2": cuts.ByteLevel(add_prefix_space=False), "prefix": cuts.ByteLevel(add_prefix_space=True),
            "llama 3": cuts.Sequence([cuts.Split(Regex(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"),
                "isolated"), cuts.ByteLevel(add_prefix_space=False, use_regex=False)]),
            "digits": cuts.Sequence([cuts.Digits(True), cuts.ByteLevel(add_prefix_space=False)]),
        }
        for name, step in words.items():
            for after in (None, processors.ByteLevel(trim_offsets=True, add_prefix_space=name == "prefix")):
                for options in ({}, {"ignore_merges": True}):
                    tokenizer = self.bytes_model(**options)
                    tokenizer.pre_tokenizer = step
                    if after:
                        tokenizer.post_processor = after
                    with self.subTest(words=name, after=str(after), **options):
                        self.check_tokenizer(tokenizer)

    def test_sentencepiece_models(self):
        for name, options in {"xlm": {}, "bytes": {"byte_fallback": True}}.items():
            for scheme, split in itertools.product(("always", "first", "never"), (True, False)):
                tokenizer = self.unigram_model(**options)
                tokenizer.normalizer = normalizers.NFKC()
                tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
                tokenizer.post_processor = processors.TemplateProcessing(
                    single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
                tokenizer.add_special_tokens(["<s>", "</s>", "[MASK]"])
                with self.subTest(model=name, scheme=scheme, split=split):
                    self.check_tokenizer(tokenizer, offsets=False)

    def test_table_of_characters(self):
        """The one in a model of sentencepiece, as XLM-RoBERTa's and T5's tokenizers have it."""
        import sentencepiece.sentencepiece_model_pb2 as proto
        spec = proto.ModelProto.FromString(texts.sentencepiece_model())
        tokenizer = self.unigram_model()
        tokenizer.normalizer = normalizers.Sequence([
            normalizers.Precompiled(spec.normalizer_spec.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        # Their library maps a character and the marks on it together or not at all, sentencepiece the longest of them.
        self.check_tokenizer(tokenizer, [text for text in texts.TEXTS if "combining" not in text and "नमस्ते" not in text],
                             offsets=False)

    def test_words(self):
        vocabulary = {"<unk>": 0}
        for line in texts.LINES:
            for word in line.split():
                vocabulary.setdefault(word, len(vocabulary))
        tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        self.check_tokenizer(tokenizer)

    def test_added_tokens(self):
        for lstrip, rstrip, single, normalized in itertools.product((False, True), repeat=4):
            tokenizer = self.pieces_model()
            tokenizer.normalizer = normalizers.Lowercase()
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            options = {"lstrip": lstrip, "rstrip": rstrip, "single_word": single, "normalized": normalized}
            tokenizer.add_tokens([AddedToken(text, **options) for text in ("The", "shares one", "ode", "[MASK]", "<s>")])
            with self.subTest(**options):
                self.check_tokenizer(tokenizer, [*texts.TEXTS, "the The THE  The shares one [MASK]  [MASK] the<s>", "The", "odeTheode"])

    def test_configuration(self):
        tokenizer = self.bytes_model()
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.add_special_tokens(["<|endoftext|>", "<pad>"])
        pad = tokenizer.token_to_id("<pad>")
        inputs = texts.LINES[:4]
        self.check_tokenizer(tokenizer, inputs, {"pad_token": "<pad>", "bos_token": "<|endoftext|>"}, pad)
        self.check_tokenizer(tokenizer, inputs, {"pad_token": {"content": "<pad>"}}, pad)
        rows = [[0, *tokenizer.encode(text).ids, 0] for text in inputs]
        self.check_op("HfJsonTokenizer", [strings(*inputs)], [INT64] * 2, padded(rows), tokenizer_vocab=tokenizer.to_str(),
                      tokenizer_config=json.dumps({"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>",
                                                   "add_bos_token": True, "add_eos_token": True}))

    def test_truncation_and_padding(self):
        for direction, other in itertools.permutations(("left", "right")):
            for options in ({}, {"length": 24}, {"pad_to_multiple_of": 8}):
                tokenizer = self.pieces_model()
                tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
                tokenizer.post_processor = processors.TemplateProcessing(
                    single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
                tokenizer.enable_truncation(17, direction=direction)
                tokenizer.enable_padding(direction=other, pad_id=7, **options)
                rows = tokenizer.encode_batch(texts.TEXTS)
                with self.subTest(cut=direction, **options):
                    self.check_op(
                        "HfJsonTokenizer", [strings(*texts.TEXTS)], [INT64] * 3,
                        [numpy.array([getattr(row, name) for row in rows]) for name in ("ids", "attention_mask", "offsets")],
                        tokenizer_vocab=tokenizer.to_str(), tokenizer_config="")

    def test_pairs(self):
        """Our own operator: onnxruntime-extensions have none for it."""
        bert = self.pieces_model()
        bert.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        bert.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
        plain = self.pieces_model()
        plain.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        processed = {"bert": processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2)),
                     "roberta": processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))}
        tokenizers = {"template": bert, "none": Tokenizer.from_str(plain.to_str())}
        for name, processor in processed.items():
            tokenizers[name] = Tokenizer.from_str(plain.to_str())
            tokenizers[name].post_processor = processor
        seconds = [*reversed(texts.TEXTS)]
        for (name, tokenizer), strategy, length in itertools.product(
                tokenizers.items(), ("longest_first", "only_first", "only_second"), (None, 31, 64)):
            one, two = texts.TEXTS, seconds
            if length and strategy != "longest_first":
                # The one that may not be cut must leave room.
                kept = one if strategy == "only_second" else two
                rows = [i for i, text in enumerate(kept) if len(plain.encode(text).ids) < length - 5]
                one, two = [one[i] for i in rows], [two[i] for i in rows]
            if length:
                tokenizer.enable_truncation(length, strategy=strategy)
            else:
                tokenizer.no_truncation()
            rows = [tokenizer.encode(*pair) for pair in zip(one, two)]
            ids, mask = padded([row.ids for row in rows])
            types, _ = padded([row.type_ids for row in rows])
            with self.subTest(tokenizer=name, strategy=strategy, length=length):
                model, feeds = model_of("JsonPairTokenizer", [strings(*one), strings(*two)], [INT64] * 3, domain="onnxd",
                                        tokenizer_vocab=tokenizer.to_str(), tokenizer_config="")
                self.check(model, feeds, [ids, mask, types])

    def check_decoder(self, tokenizer, seed=0):
        """Rows of any tokens, whose bytes need be no text, and those of texts."""
        random = numpy.random.default_rng(seed)
        nothing = tokenizer.get_vocab_size() + 3  # no token has this number
        rows = random.integers(0, nothing, (60, 9)).tolist() + [tokenizer.encode(text).ids for text in texts.TEXTS]
        ids, mask = padded(rows)
        ids[mask == 0] = nothing
        for skips in (0, 1):
            expected = [tokenizer.decode(row, skip_special_tokens=bool(skips)) for row in rows]
            self.check_op("JsonTokenDecoder", [ids], [STRING], [strings(*expected)], domain="onnxd",
                          tokenizer_vocab=tokenizer.to_str(), skip_special_tokens=skips)

    def test_decoders(self):
        """The way back to text."""
        ways = decoders
        llama = ways.Sequence([ways.Replace("▁", " "), ways.ByteFallback(), ways.Fuse(), ways.Strip(" ", 1, 0)])
        bytes_model, pieces, unigram = self.bytes_model(), self.pieces_model(), self.unigram_model(byte_fallback=True)
        for tokenizer in (bytes_model, pieces, unigram):
            tokenizer.add_special_tokens(["<|end|>", "<s>"])
            tokenizer.add_tokens([AddedToken("né"), AddedToken(" of ")])
        cases = {
            "bytes": (bytes_model, ways.ByteLevel()), "metaspace": (unigram, ways.Metaspace()),
            "metaspace, never": (unigram, ways.Metaspace(prepend_scheme="never")), "llama": (unigram, llama),
            "pieces": (pieces, ways.WordPiece()), "pieces as they are": (pieces, ways.WordPiece(cleanup=False)),
            "suffix": (pieces, ways.BPEDecoder("e")), "ctc": (pieces, ways.CTC("[PAD]", "s")),
            "strip": (pieces, ways.Strip("e", 2, 0)), "expression": (pieces, ways.Replace(Regex("[aeiou]"), "_")),
            "none": (pieces, None),
        }
        for name, (tokenizer, decoder) in cases.items():
            if decoder is not None:
                tokenizer.decoder = decoder
            else:
                saved = json.loads(tokenizer.to_str())
                tokenizer = Tokenizer.from_str(json.dumps({**saved, "decoder": None}))
            with self.subTest(decoder=name):
                self.check_decoder(tokenizer)

    def test_refused(self):
        tokenizer = self.bytes_model()
        saved = json.loads(tokenizer.to_str())
        for change, message in (
                ({"normalizer": {"type": "Sung"}}, "the normalizer 'Sung' is not there yet"),
                ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "the pre-tokenizer 'UnicodeScripts' is not there yet"),
                ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, "token 'a' has the number -1"),
                ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}}, "the merge 'a' is no pair"),
                ({"model": {"type": "WordPiece", "vocab": {"a": 0}, "unk_token": "b"}}, "unk_token is not in its vocab"),
                ({"model": None}, "the tokenizer has no model"),
                ({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a(?=b)"}, "behavior": "Isolated"}},
                 "the expression 'a(?=b)'")):
            model, feeds = model_of("HfJsonTokenizer", [strings("a")], [INT64], tokenizer_config="",
                                    tokenizer_vocab=json.dumps({**saved, **change}))
            self.assertIn(message, oracle.refusal(model, feeds))
        row = [numpy.zeros((1, 1), numpy.int64)]
        for decoder, message in (
                ({"type": "Sung"}, "the decoder 'Sung' is not there yet"),
                ({"type": "Sequence", "decoders": [{"type": "Sequence", "decoders": []}]}, "the decoder 'Sequence'"),
                ({"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 65}, "puts in 65 bytes"),
                ({"type": "Strip", "content": ""}, "the decoder Strip has no content")):
            model, feeds = model_of("JsonTokenDecoder", row, [STRING], domain="onnxd",
                                    tokenizer_vocab=json.dumps({**saved, "decoder": decoder}))
            self.assertIn(message, oracle.refusal(model, feeds))
        for text in ("", "{", "[]", "{}"):
            model, feeds = model_of("HfJsonTokenizer", [strings("a")], [INT64], tokenizer_config="", tokenizer_vocab=text)
            self.assertIn("the tokenizer ", oracle.refusal(model, feeds))


if __name__ == "__main__":
    unittest.main()

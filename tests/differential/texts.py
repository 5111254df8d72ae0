"""Texts of many writing systems, and small vocabularies learned from them."""

import functools
import io
import json
import tempfile
import unicodedata

import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LINES = [
    "The server answers each request with the model's outputs, or it says what was wrong with the inputs.",
    "A batch of requests shares one run; it's faster, and they'll never wait longer than they said they would.",
    "Numbers such as 3.14159, 2,000,000 and 1e-5 are common in logs; so are C++20, x86_64 and #hashtags.",
    "Der schnelle braune Fuchs springt über den faulen Hund. Größe, Straße, äußerst, ÜBERMÄẞIG.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia; ¿quién lo diría? ¡Nadie!",
    "Voix ambiguë d'un cœur qui, au zéphyr, préfère les jattes de kiwis. L'été, où es-tu ?",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Москва, 1980 год.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΟΔΥΣΣΕΥΣ",
    "色は匂へど散りぬるを 我が世誰ぞ常ならむ。今日は良い天気ですね。",
    "生活的真谛是宽恕与忘记。今天天气很好，我们去公园散步吧！",
    "한국어 문장도 여기에 있습니다. 모델은 빠르게 응답합니다.",
    "ยินดีต้อนรับสู่ประเทศไทย नमस्ते दुनिया, आप कैसे हैं? مرحبا بالعالم، كيف حالك؟ שלום עולם",
    "İstanbul'da ışıklar yanıyor; DIŞARI ÇIKALIM. Việt Nam đất nước mến yêu. Příliš žluťoučký kůň.",
]
ODD = [
    "", " ", "  \t \n ", "a", " a", "a ", "  two  spaces  and\ttab\nline\r\n\r\nend  ",
    "I'm sure they've said we'd go, it's what you're after; he'll DON'T can't 'tis 'S 'LL",
    "emoji 😀👍🏽👩‍👩‍👧 and flags 🇩🇪, symbols ½ ² ① ㎏ ﬁ Å № ™ …",
    "full width ＡＢＣ１２３　ｋａｔａｋａｎａ ｶﾞ",
    "combining e\u0301 a\u0308\u0323 n\u0303 \u1100\u1161\u11a8 \u0915\u093c",
    "zero\u200bwidth\u00a0nbsp\u2009thin\u3000ideographic\ufeffbom\u00adhyphen",
    "control \x01\x02\x7f\x85 chars and \ufffd replacement",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "12345678901234567890 1 12 123 1234 ٣٤٥ Ⅷ",
    "!!!???...;;; --- ___ ((([[[{{{ <<>> @#$%^&*",
    "x<|endoftext|> y <|endoftext|><|endoftext|>z <s> [MASK] </s> <mask> <unk>",
    "▁already▁marked ▁ text",
]
TEXTS = LINES + ODD


@functools.cache
def corpus():
    return [word for line in LINES for word in (line, line.lower(), line.upper(), unicodedata.normalize("NFKC", line))] * 4


def learned(tokenizer, trainer):
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


@functools.cache
def byte_level(size=700):
    """GPT-2's kind: {token: number}, [(left, right)]."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned(tokenizer, trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                           show_progress=False, special_tokens=["<|endoftext|>"]))
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], [tuple(merge) for merge in model["merges"]]


@functools.cache
def word_pieces(size=700):
    """BERT's kind: the tokens in the order of their numbers."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    learned(tokenizer, trainers.WordPieceTrainer(vocab_size=size, show_progress=False, special_tokens=[
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    vocabulary = tokenizer.get_vocab()
    return sorted(vocabulary, key=vocabulary.get)


@functools.cache
def sentencepiece_model(**options):
    """The bytes of a model file."""
    model = io.BytesIO()
    options = {"vocab_size": 900, "model_type": "unigram", "character_coverage": 0.98, "hard_vocab_limit": False,
               **options}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus()), model_writer=model, minloglevel=2, **options)
    return model.getvalue()

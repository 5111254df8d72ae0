#!/usr/bin/env python3
"""Times tokenizers within graphs beside Hugging Face's tokenizers library, and beside onnxruntime-extensions where that
takes the same file: medians in ms of one thread, and what loading takes. The tokenizers are learned from the sources of
Python's own library (GPT-2's kind, BERT's, and one of sentencepiece's), which takes a minute.

    bench/session/versus_tokenizers.py --onnxd build/release/tools/onnxd [FOLDER]
"""

import argparse
import glob
import io
import json
import os
import pathlib
import statistics
import subprocess
import sysconfig
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import numpy
import onnxruntime
import onnxruntime_extensions
import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as sentencepiece_proto
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parents[2]


def lines():
    files = sorted(glob.glob(sysconfig.get_path("stdlib") + "/**/*.py", recursive=True))[:600]
    return [line for file in files for line in open(file, errors="ignore") if len(line) > 20]


def byte_level(corpus):
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=30000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return made


def word_pieces(corpus):
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(corpus, trainers.WordPieceTrainer(
        vocab_size=30000, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    return made


def unigram(corpus):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(corpus[:60000]), model_writer=model, vocab_size=20000,
                                             minloglevel=2, hard_vocab_limit=False)
    spec = sentencepiece_proto.ModelProto.FromString(model.getvalue())
    made = Tokenizer(models.Unigram([(piece.piece, piece.score) for piece in spec.pieces], unk_id=0))
    made.normalizer = normalizers.Precompiled(spec.normalizer_spec.precompiled_charsmap)
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    return made


def model_of(tokenizer):
    values = [helper.make_tensor_value_info("text", TensorProto.STRING, [None])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in ("ids", "mask")]
    node = helper.make_node("HfJsonTokenizer", ["text"], ["ids", "mask"], domain="ai.onnx.contrib", tokenizer_vocab=tokenizer,
                            tokenizer_config=json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    return helper.make_model(helper.make_graph([node], "g", values, outputs), ir_version=9, opset_imports=[
        helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.contrib", 1)])


def median(run, count):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e3


def by_onnxd(binary, model, texts, count):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "model.onnx").write_bytes(model.SerializeToString())
        (path / "input_0.pb").write_bytes(numpy_helper.from_array(numpy.array(texts, object)).SerializeToString())
        done = subprocess.run([binary, "bench", path / "model.onnx", "--inputs", folder, "--iterations", str(count), "--json"],
                              check=True, capture_output=True, text=True)
    report = json.loads(done.stdout)
    return report["latency_ms"]["median"], report["load_ms"]


def by_extensions(model, texts, count):
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    begin = time.perf_counter()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    load = (time.perf_counter() - begin) * 1e3
    feeds = {"text": numpy.array(texts, object)}
    return median(lambda: session.run(None, feeds), count), load


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnxd", default=str(ROOT / "build/release/tools/onnxd"))
    parser.add_argument("folder", nargs="?", default=str(ROOT / "build/tokenizers"), help="where the learned ones are kept")
    arguments = parser.parse_args()
    folder = pathlib.Path(arguments.folder)
    folder.mkdir(parents=True, exist_ok=True)
    text = (ROOT / "README.md").read_text()
    samples = {"57 bytes": ["The server answers each request with the model's outputs."], "2 KB": [text[2000:4000]],
               "64 of 200": [text[i * 200:i * 200 + 200] for i in range(64)],
               "64 KB": [((ROOT / "ARCHITECTURE.md").read_text() * 4)[:65536]]}
    print("| tokenizer | texts | onnxd | tokenizers | ratio | extensions | ratio | load: onnxd | tokenizers | extensions |")
    print("| --- " * 10 + "|")
    for name, learn in {"byte pairs": byte_level, "word pieces": word_pieces, "unigram": unigram}.items():
        path = folder / f"{name}.json"
        if not path.exists():
            learn(lines()).save(str(path))
        begin = time.perf_counter()
        tokenizer = Tokenizer.from_file(str(path))
        load = (time.perf_counter() - begin) * 1e3
        model = model_of(path.read_text())
        for sample, texts in samples.items():
            count = 30 if sample == "64 KB" else 300
            # In turns: half of the runs of each, twice.
            ours, theirs, others = [], [], []
            for _ in range(2):
                ours.append(by_onnxd(arguments.onnxd, model, texts, count))
                theirs.append(median(lambda: tokenizer.encode_batch(texts), count))
                # It takes no other kinds of tokenizer.json.
                others += [by_extensions(model, texts, count)] if name == "byte pairs" else []
            mine, mine_load = min(ours)
            row = [name, sample, f"{mine:.3f}", f"{min(theirs):.3f}", f"{min(theirs) / mine:.1f}"]
            row += [f"{min(others)[0]:.3f}", f"{min(others)[0] / mine:.1f}"] if others else ["", ""]
            row += [f"{mine_load:.0f}", f"{load:.0f}", f"{min(others)[1]:.0f}" if others else ""]
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()

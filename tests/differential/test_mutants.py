"""Changed pieces of the exports give onnxruntime's outputs, however they are optimized, and end no process.

MUTANTS_SEEDS=100:200 takes other changes, MUTANTS_MODELS other files (separated by colons, with their weights),
MUTANTS_PROVIDERS other providers, MUTANTS_KEEP a folder for what fails."""

import collections
import multiprocessing
import os
import pathlib
import subprocess
import tempfile
import unittest
import zlib

import numpy
import onnx
from onnx import numpy_helper

import mutants
import oracle
import seeded_weights

EXPORTS = pathlib.Path(__file__).parent / "exports"
MODELS = [pathlib.Path(path) for path in os.environ.get("MUTANTS_MODELS", "").split(":") if path]
SEEDS = range(*map(int, os.environ.get("MUTANTS_SEEDS", "0:3").split(":")))
PROVIDERS = os.environ.get("MUTANTS_PROVIDERS", "cpu")
KEEP = os.environ.get("MUTANTS_KEEP")
SECONDS = 120


def perturbed(feeds, seed):
    """Floats that differ in their last bits."""
    random = numpy.random.default_rng(seed)
    return {name: (value * (1 + 2e-6 * random.uniform(-1, 1, value.shape))).astype(value.dtype)
            if value.dtype.kind == "f" else value for name, value in feeds.items()}


def spread(outputs, others):
    """The largest difference of each output; infinite where it is of another kind."""
    spreads = []
    for a, b in zip(outputs, others):
        same_kind = a.shape == b.shape and (
            (numpy.isfinite(a) == numpy.isfinite(b)).all() if a.dtype.kind == "f" else (a == b).all())
        finite = same_kind and a.dtype.kind == "f" and numpy.isfinite(a)
        apart = numpy.abs(a[finite].astype(numpy.float64) - b[finite]) if same_kind and a.dtype.kind == "f" else None
        spreads.append(numpy.inf if not same_kind else 0.0 if apart is None or not apart.size else apart.max())
    return spreads


def difference(got, wanted, sensitivity):
    """What is wrong with an output; empty where nothing is. NaN may be where either has it: which of NaN and a number is
    the larger one is left open by MaxPool and by libraries' ReLU."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{list(got.shape)}, expected {wanted.dtype}{list(wanted.shape)}"
    if got.dtype.kind != "f":
        equal = got == wanted
        return "" if equal.all() or sensitivity else f"{(~equal).sum()} of {equal.size} elements differ"
    got, wanted = numpy.atleast_1d(got).astype(numpy.float64), numpy.atleast_1d(wanted).astype(numpy.float64)
    finite = numpy.isfinite(wanted)
    scale = numpy.abs(wanted[finite]).max() if finite.any() else 1.0
    with numpy.errstate(invalid="ignore"):
        apart = numpy.where(got == wanted, 0, numpy.abs(got - wanted))
    allowed = 1e-4 * scale + 1e-3 * numpy.where(finite, numpy.abs(wanted), 0) + 30 * sensitivity + 1e-7
    bad = apart > allowed  # false for NaN
    return f"{bad.sum()} of {bad.size} elements differ, by {apart[bad].max():.3g} of {scale:.3g}" if bad.any() else ""


def read_outputs(folder, count):
    outputs = []
    for i in range(count):
        tensor = onnx.TensorProto()
        tensor.ParseFromString((pathlib.Path(folder) / f"output_{i}.pb").read_bytes())
        outputs.append(numpy_helper.to_array(tensor))
    return outputs


def judge(piece):
    """A kind, and what was seen: equal, refused (by the oracle), strict (by onnxd alone, as the model's fault), or else a
    fault of onnxd's."""
    try:
        session = oracle.plain_session(piece.model, threads=1)
        wanted = session.run(None, piece.feeds)
    except Exception:  # whatever it throws, it has no answer
        wanted = None
    with tempfile.TemporaryDirectory() as folder:
        oracle.write_case(piece.model, piece.feeds, [], folder)
        for level in oracle.LEVELS:
            try:
                done = subprocess.run(
                    [oracle.BINARY, "run", f"{folder}/model.onnx", "--inputs", folder, "--outputs", folder,
                     "--optimization", level, "--providers", PROVIDERS], capture_output=True, text=True, timeout=SECONDS)
            except subprocess.TimeoutExpired:
                return "hang", level
            if done.returncode not in (0, 1):
                return "crash", f"{level}: exit code {done.returncode}: {done.stderr[-300:]}"
            if wanted is None:
                continue
            if done.returncode == 1:
                strict = any(code in done.stderr for code in ("INVALID_ARGUMENT", "OUT_OF_RANGE"))
                return "strict" if strict and level == "disable" else "refusal", f"{level}: {done.stderr[-300:]}"
            outputs = read_outputs(folder, len(wanted))
            if not any(difference(*pair, 0) for pair in zip(outputs, wanted)):
                continue
            # Small differences may grow: what they do to the oracle's own outputs is allowed.
            spreads = [spread(wanted, session.run(None, perturbed(piece.feeds, seed))) for seed in range(2)]
            for i, pair in enumerate(zip(outputs, wanted)):
                wrong = difference(*pair, max(spreads[0][i], spreads[1][i]))
                if wrong:
                    return "wrong", f"{level}: output {i}, {piece.model.graph.output[i].name}: {wrong}"
    return ("refused" if wanted is None else "equal"), ""


def keep(piece, name):
    folder = pathlib.Path(KEEP) / name
    folder.mkdir(parents=True, exist_ok=True)
    oracle.write_case(piece.model, piece.feeds, [], folder)


def judge_seeds(path, seeds, pipe):
    """Sends (seed, kind, what was seen), and before each judgement that it begins."""
    model = onnx.load(path)
    if not MODELS:
        model = seeded_weights.fill(model)
    dims = {dim.dim_param: 1 if MODELS else 2 for value in model.graph.input
            for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    feeds = oracle.random_feeds(model, 1, dims)
    values = mutants.every_value(model, feeds)
    for seed in seeds:
        pipe.send((seed, "begun", ""))
        piece = mutants.mutant(model, values, zlib.crc32(path.stem.encode()) * 1000003 + seed)
        if piece is None:
            pipe.send((seed, "none", ""))
            continue
        kind, seen = judge(piece)
        if KEEP and kind not in ("equal", "refused", "strict"):
            keep(piece, f"{kind}_{path.stem}_{seed}")
        pipe.send((seed, kind, f"{seen} after {piece.changes}"))
    pipe.send((None, "done", ""))


def judgements(path):
    """Those of all seeds. Each model's are made in a process of their own, which the oracle may end: what it does not
    survive has no answer."""
    made, first = [], SEEDS.start
    while first < SEEDS.stop:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.Process(target=judge_seeds, args=(path, range(first, SEEDS.stop), sender))
        process.start()
        sender.close()
        begun = None
        try:
            while True:
                seed, kind, seen = receiver.recv()
                if kind == "done":
                    begun, first = None, SEEDS.stop
                    break
                if kind == "begun":
                    begun, first = seed, seed + 1
                else:
                    made.append((seed, kind, seen))
        except EOFError:
            if begun is None:
                raise RuntimeError(f"{path.name}: not even the model itself ran") from None
            made.append((begun, "refused", ""))
        process.join()
    return made


class Mutants(unittest.TestCase):
    def test_changes_keep_to_the_oracle(self):
        counts = collections.Counter()
        for path in MODELS or sorted(EXPORTS.glob("*.onnx")):
            if "vgg" in path.stem:
                continue  # its values take seconds to compute, of convolutions as in the others
            for seed, kind, seen in judgements(path):
                counts[kind] += 1
                with self.subTest(model=path.stem, seed=seed):
                    self.assertIn(kind, ("equal", "refused", "strict", "none"), seen)
        print(dict(counts))
        # Else this says nothing of what onnxd computes.
        self.assertGreater(counts["equal"], counts.total() / 2)


if __name__ == "__main__":
    unittest.main()

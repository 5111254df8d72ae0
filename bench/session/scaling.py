#!/usr/bin/env python3
"""What a second thread, and a second caller, bring either engine.

For each model: one thread, two threads for one call, and two callers on one session of one thread; both engines, all
six in turns, as versus_onnxruntime.py does it. Printed are throughputs in units of the engine's own single thread
(medians of the rounds' ratios), and beside them what two processes that share nothing reach: more than that the machine
does not have.

Needs onnx, onnxruntime and numpy. Usage: scaling.py [--rounds N] [--dim NAME=SIZE] MODEL.onnx...
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import threading

import versus_onnxruntime as versus

# Two callers share a session: onnxruntime lets go of Python's lock while it runs.
PEER = versus.PEER.replace("import json, sys, time", "import json, sys, threading, time").replace("""    for _ in range(count):
        session.run(None, feeds)
    print((time.perf_counter() - begin) * 1000 / count, flush=True)
""", """    def call():
        for _ in range(count):
            session.run(None, feeds)
    callers = [threading.Thread(target=call) for _ in range(int(sys.argv[4]))]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    print((time.perf_counter() - begin) * 1000 / count / len(callers), flush=True)
""")
assert "threading.Thread" in PEER

SETTINGS = {"single": (1, 1), "threads": (2, 1), "callers": (1, 2)}


def start(model, folder, onnxd):
    """By engine and setting."""
    racers = {}
    for setting, (threads, callers) in SETTINGS.items():
        racers["onnxruntime", setting] = versus.Racer(
            [sys.executable, "-c", PEER, str(model), folder, str(threads), str(callers)])
        racers["onnxd", setting] = versus.Racer(
            [onnxd, "bench", str(model), "--threads", str(threads), "--callers", str(callers), "--paced", "--json",
             "--inputs", f"{folder}/inputs"])
    for engine in ("onnxruntime", "onnxd"):
        racers[engine, "twin"] = versus.Racer(
            [sys.executable, "-c", PEER, str(model), folder, "1", "1"] if engine == "onnxruntime" else
            [onnxd, "bench", str(model), "--threads", "1", "--paced", "--json", "--inputs", f"{folder}/inputs"])
    return racers


def two_processes(racers, engine, runs):
    """Milliseconds a run while the single one and its twin run side by side."""
    times = {}

    def measure(setting):
        times[setting] = racers[engine, setting].milliseconds(runs)

    threads = [threading.Thread(target=measure, args=(setting,)) for setting in ("single", "twin")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1 / (1 / times["single"] + 1 / times["twin"])


def scale(model, arguments):
    sizes = dict((name, int(size)) for name, size in (text.split("=") for text in arguments.dim))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "inputs").mkdir()
        (folder / "outputs").mkdir()
        versus.write_inputs(model, folder, 1, sizes)
        racers = start(model, name, arguments.onnxd)
        once = max(min(racer.milliseconds(4) for _ in range(4)) for racer in racers.values())
        runs = max(1, int(arguments.turn / once))
        gains = {}
        for _ in range(arguments.rounds):
            for engine in ("onnxruntime", "onnxd"):
                times = {setting: racers[engine, setting].milliseconds(runs) for setting in SETTINGS}
                times["processes"] = two_processes(racers, engine, runs)
                for setting in ("threads", "callers", "processes"):
                    gains.setdefault((engine, setting), []).append(times["single"] / times[setting])
        for racer in racers.values():
            racer.report()
    return {key: statistics.median(values) for key, values in gains.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--onnxd", default=str(pathlib.Path(__file__).parents[2] / "build/release/tools/onnxd"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=200, help="milliseconds that one turn lasts, at least one run")
    parser.add_argument("--dim", action="append", default=[], help="NAME=SIZE of one free dimension")
    arguments = parser.parse_args()
    print("| model | two threads, theirs / ours | two callers | two processes |\n| --- | --- | --- | --- |")
    for model in arguments.models:
        gains = scale(model, arguments)
        cells = [f"{gains['onnxruntime', setting]:.2f} / {gains['onnxd', setting]:.2f}"
                 for setting in ("threads", "callers", "processes")]
        print(f"| {versus.name_of(model)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Repositories that are half written, swapped, huge, damaged or changed all the time."""

import http.client
import json
import os
import pathlib
import random
import re
import shutil
import socket
import tempfile
import threading
import time
import unittest
import urllib.parse

import grpc
import numpy
import onnx
from onnx import TensorProto, helper

import daemon
import protos
from repositories import RepositoryCase, factor_model
from soak import scaled


# What names no model, or none in a repository.
BAD_NAMES = ("../x", "..", ".", " .. ", "/abs", "/etc/passwd", "a/b", "a\\b", "%2e%2e", "%252e%252e", "", " ", "a b",
             "m" * 129, "m\0", "m\r\nX: y", "\u2024\u2024/x", "\uff0e\uff0e/x", "m\u2215x", ".hidden", "-x", "--help", "index",
             "m/1", "m/../m", "\x7f")


class Requests(RepositoryCase):
    """Loads by request, beside a folder that must not be touched."""

    def setUp(self):
        super().setUp()
        outside = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, outside)
        self.put(1, factor_model(9), "x", folder=outside)
        inner = outside / "repository"
        shutil.copytree(self.folder, inner)
        self.folder = inner

    def explicit(self, **options):
        return self.serve(ONNXD_MODELS_CONTROL_MODE="explicit", **options)

    def request(self, served, name, verb="load", parameters=None):
        document = None if parameters is None else {"parameters": parameters}
        return self.post(served, f"/v2/repository/models/{urllib.parse.quote(name, safe='')}/{verb}", document)

    @unittest.skipUnless(shutil.which("strace"), "strace is not installed")
    def test_r01_names_that_lead_elsewhere_touch_no_file(self):
        trace = pathlib.Path(tempfile.mkdtemp()) / "trace"
        self.addCleanup(shutil.rmtree, trace.parent)
        served = self.explicit(prefix=("strace", "-D", "-f", "-qq", "-o", str(trace), "-e", "trace=%file"))
        self.assertEqual(self.request(served, "m")[0], 200)
        before = trace.read_text().count("\n")
        channel = grpc.insecure_channel(f"127.0.0.1:{served.grpc_port}")
        load = protos.unary(channel, "inference.GRPCInferenceService", "RepositoryModelLoad")
        request = protos.message("inference.RepositoryModelLoadRequest")
        for name in BAD_NAMES:
            for verb in ("load", "unload"):
                status, answer = self.request(served, name, verb)
                self.assertIn(status, (400, 404), (name, verb, answer))
            with self.assertRaises(grpc.RpcError) as refused:
                load(request(model_name=name), timeout=10)
            self.assertIn(refused.exception.code(), (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND), name)
        channel.close()
        opened = re.findall(r'"([^"]*)"', "\n".join(trace.read_text().splitlines()[before:]))
        folder = str(self.folder)
        self.assertTrue(any(path.startswith(folder) for path in opened))  # of names that could be there
        # "": what is open already.
        elsewhere = {path for path in opened if path and not (path + "/").startswith(folder + "/")
                     and not path.startswith(("/proc/self", "/sys/"))}
        self.assertEqual(elsewhere, set())
        self.assertEqual([model["name"] for model in self.post(served, "/v2/repository/index")[1]], ["m"])

    def test_r02_folders_that_are_no_versions_are_left_out_and_named_once(self):
        folder = self.folder / "m"
        names = ("0", "-1", "01", "1.5", "latest", str(2**64), "+2", "2 ", "0x2", "\u0662")
        for name in names:
            shutil.copytree(folder / "1", folder / name)
        served = self.serve(ONNXD_MODELS_VERSIONS="all", ONNXD_MODELS_POLL_INTERVAL_S="1")
        for name in names:
            self.assertTrue(served.logged(f"{folder / name} is no version"), name)
        self.assertEqual(self.get(served, "/v2/models/m")[1]["versions"], ["1"])
        time.sleep(2.5)
        self.assertEqual(sum("is no version" in line for line in served.stderr_lines), len(names))
        for name in (*names, "1/../2", "..", "1%00"):
            path = f"/v2/models/m/versions/{urllib.parse.quote(name, safe='')}"
            self.assertIn(self.get(served, path)[0], (400, 404), name)

    def test_r03_a_load_may_bring_a_configuration_of_its_own(self):
        self.settings("batching:\n  max_batch_size: 32\n")
        self.put(2, factor_model(2))
        served = self.explicit()

        def limit():
            return self.get(served, "/v2/models/m/config")[1]["max_batch_size"]

        self.assertEqual(self.request(served, "m")[0], 200)
        self.assertTrue(self.eventually(lambda: limit() == 32))
        config = json.dumps({"max_batch_size": 8, "version_policy": {"specific": {"versions": [1]}}})
        self.assertEqual(self.request(served, "m", parameters={"config": config})[0], 200)
        self.assertTrue(self.eventually(lambda: limit() == 8))
        self.assertEqual(self.get(served, "/v2/models/m")[1]["versions"], ["1"])
        for bad, reason in (("{", "config: "), ('{"max_batch_sise": 1}', "max_batch_sise"), ('{"backend": "python"}', "only ONNX"),
                            ('{"version_policy": {"specific": {"versions": [-1]}}}', "-1"), ("[]", "config: "),
                            ('{"dynamic_batching": {"preferred_batch_size": [64]}, "max_batch_size": 8}', "is over the 8")):
            status, answer = self.request(served, "m", parameters={"config": bad})
            self.assertEqual(status, 400, bad)
            self.assertIn(reason, answer["error"])
            self.assertEqual((limit(), self.answer(served)), (8, 1))  # serves on
        self.assertEqual(self.request(served, "m")[0], 200)  # and is over with the next load
        self.assertTrue(self.eventually(lambda: limit() == 32))
        self.assertEqual(self.answer(served), 2)

    def test_r03_other_parameters_are_refused(self):
        served = self.explicit()
        for parameters in ({"file:1/model.onnx": "AAAA"}, {"config": 3}, {"config": "{}", "file:x": ""}, {"unknown": 1},
                           {"unload_dependents": True}):
            status, answer = self.request(served, "m", parameters=parameters)
            self.assertEqual(status, 400, parameters)
            self.assertIn("parameter '", answer["error"])
        self.assertEqual(self.request(served, "m", "unload", {"unload_dependents": 1})[0], 400)
        self.assertEqual(self.post(served, "/v2/repository/index")[1], [])

    def test_an_ensemble_may_take_its_members_with_it(self):
        for name, members in (("e", ("m",)), ("f", ("m",))):
            (self.folder / name).mkdir()
            self.settings("ensemble:\n  steps:\n" + "".join(
                f"  - {{model: {member}, inputs: {{x: x}}, outputs: {{y: y}}}}\n" for member in members), name)
        served = self.explicit()
        for name in ("e", "f"):
            self.assertEqual(self.request(served, name)[0], 200)
        self.assertEqual(self.request(served, "e", "unload", {"unload_dependents": True})[0], 200)
        self.assertEqual(self.answer(served, "/predict/f"), 1)  # which needs m
        self.assertEqual(self.request(served, "f", "unload", {"unload_dependents": True})[0], 200)
        self.assertEqual(self.get(served, "/v2/models/m/ready")[0], 404)


class Worst(RepositoryCase):
    def serve(self, *arguments, **environment):
        return super().serve(*arguments, **{"ONNXD_MODELS_POLL_INTERVAL_S": "1", **environment})

    def test_files_as_copying_tools_leave_them_meanwhile(self):
        whole = factor_model(2).SerializeToString()
        served = self.serve()
        folder = self.folder / "m" / "2"
        folder.mkdir()
        (folder / ".model.onnx.Xa81bc").write_bytes(whole[:50])  # rsync's own name
        (folder / "model.onnx.part").write_bytes(whole[:50])
        time.sleep(0.5)
        with open(folder / "model.onnx", "wb") as file:
            step = max(1, len(whole) // 8)
            for begin in range(0, len(whole), step):
                file.write(whole[begin:begin + step])
                file.flush()
                time.sleep(scaled(0.2, 1))
                self.assertEqual(self.answer(served), 1)
        self.assertTrue(self.eventually(lambda: self.answer(served) == 2))
        self.assertFalse([line for line in served.stderr_lines if " error " in line])

    def test_a_damaged_update_is_tried_once_and_the_old_version_serves(self):
        whole = factor_model(2).SerializeToString()
        rng = random.Random(3)
        served = self.serve()
        for version in range(2, scaled(4, 200)):
            damaged = bytearray(whole)
            for _ in range(8):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
            self.put(version, bytes(damaged[:rng.randrange(1, len(damaged))]))
            self.assertTrue(served.logged(f"version {version} ("), served.stderr_lines)
            self.assertEqual(self.answer(served), 1)
        time.sleep(2.5)
        for version in range(2, scaled(4, 200)):
            self.assertEqual(sum(f"version {version} (" in line for line in served.stderr_lines), 1)
        self.assertEqual(self.metric(served, 'onnxd_model_loads_total{model="m",result="failed"}'), scaled(2, 198))

    def test_a_version_whose_warm_up_answers_nan_is_not_published_if_the_settings_say_so(self):
        self.settings("warm_up_failure: refuse\n")
        served = self.serve()
        logarithm = daemon.model_of(  # of rows of both signs
            [helper.make_node("Log", ["x"], ["logarithm"]), helper.make_node("Add", ["logarithm", "two"], ["y"])],
            [("x", TensorProto.FLOAT, ["batch", 4])], [("y", TensorProto.FLOAT, ["batch", 4])],
            [("two", numpy.array(2, numpy.float32))])
        self.put(2, logarithm)
        self.assertTrue(served.logged("the warm-up run answered NaN or infinity in output 'y'"))
        self.assertEqual(self.answer(served), 1)
        self.assertEqual(self.metric(served, 'onnxd_model_loads_total{model="m",result="failed"}'), 1)
        reasons = [entry["reason"] for entry in self.post(served, "/v2/repository/index", {})[1]]
        self.assertTrue(any("NaN" in reason for reason in reasons), reasons)
        self.settings("warm_up_failure: publish\n")
        self.assertTrue(self.eventually(lambda: self.answer(served) == 2))

    def test_links_that_are_swapped_and_roots_that_go_away(self):
        real = [self.folder / f".real{i}" for i in range(2)]
        for i, folder in enumerate(real):
            (folder / "1").mkdir(parents=True)
            onnx.save(factor_model(10 + i), folder / "1" / "model.onnx")
        link = self.folder / "linked"
        link.symlink_to(real[0])
        served = self.serve()
        self.assertEqual(self.answer(served, "/predict/linked"), 10)
        for i in (1, 0, 1):
            swap = self.folder / ".swap"
            swap.symlink_to(real[i])
            swap.replace(link)
            self.assertTrue(self.eventually(lambda: self.answer(served, "/predict/linked") == 10 + i))
        away = self.folder.with_name(self.folder.name + ".away")
        self.folder.rename(away)
        time.sleep(1.5)
        self.assertEqual(self.answer(served), 1)
        away.rename(self.folder)
        self.put(2, factor_model(2))
        self.assertTrue(self.eventually(lambda: self.answer(served) == 2))

    def test_many_entries_and_files_of_other_kinds(self):
        count = scaled(2000, 90_000)
        for i in range(count):
            (self.folder / f"file{i}").touch()
        odd = self.folder / "odd"
        for i in range(1, 8):
            (odd / str(i)).mkdir(parents=True)
        os.mkfifo(odd / "1" / "model.onnx")
        (odd / "2" / "model.onnx").mkdir()
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(odd / "3" / "model.onnx"))
            (odd / "4" / "model.onnx").symlink_to("/dev/zero")
            (odd / "5" / "model.onnx").symlink_to("model.onnx")
            (odd / "6" / "model.onnx").touch()  # the only file, and empty
            (odd / "7").rmdir()
            (odd / "7").touch()
            deep = self.folder / "deep"
            for _ in range(200):
                deep = deep / "d"
            deep.mkdir(parents=True)
            (self.folder / "setuid").mkdir()
            served = self.serve()
            self.assertEqual(self.answer(served), 1)
            self.assertEqual(self.status(served, "/predict/odd")[0], 503)
            self.assertEqual(self.status(served, "/predict/deep")[0], 404)
            time.sleep(2)
            of_scan = [line for line in served.stderr_lines if "'odd'" in line and " REST " not in line]
            self.assertEqual(len(of_scan), 1)
        for i in range(100_001 if scaled(0, 1) else 0):
            (self.folder / f"more{i}").touch()
        self.assertEqual(self.answer(served), 1)

    def test_contents_that_change_behind_equal_sizes_and_times(self):
        served = self.serve()
        path = self.folder / "m" / "1" / "model.onnx"
        before = path.stat()
        other = factor_model(2).SerializeToString()
        self.assertEqual(len(other), before.st_size)
        path.write_bytes(other)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertTrue(self.eventually(lambda: self.answer(served) == 2))

    def test_a_version_that_goes_while_requests_are_in_flight(self):
        self.put(1, daemon.slow_model(700, 1500), "slow")
        served = self.serve()
        body = json.dumps({"input": [[0.5] * 700]}).encode()
        statuses, stop = [], threading.Event()

        def client():
            while not stop.is_set():
                statuses.append(self.status(served, "/predict/slow", body, timeout=60)[0])

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        shutil.rmtree(self.folder / "slow")
        self.assertTrue(self.eventually(lambda: 404 in statuses))
        stop.set()
        for thread in threads:
            thread.join()
        self.assertLessEqual(set(statuses), {200, 404})
        self.assertTrue(self.eventually(
            lambda: self.metric(served, 'onnxd_model_memory_bytes{kind="weights",model="slow",version="1"}') == 0))

    def test_a_storm_of_loads_by_two_administrators(self):
        for i in range(10):
            self.put(1, factor_model(i), f"m{i}")
        served = self.serve(ONNXD_MODELS_CONTROL_MODE="explicit")
        self.assertEqual(self.post(served, "/v2/repository/models/m/load")[0], 200)
        until, statuses, failures = time.monotonic() + scaled(3, 120), set(), []

        def administrator(seed):
            rng = random.Random(seed)
            while time.monotonic() < until:
                verb, model = rng.choice(("load", "unload")), f"m{rng.randrange(10)}"
                statuses.add(self.post(served, f"/v2/repository/models/{model}/{verb}")[0])

        def client():
            while time.monotonic() < until:
                if self.status(served)[0] != 200:
                    failures.append(1)

        threads = [threading.Thread(target=administrator, args=(i,)) for i in range(2)] + [
            threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertLessEqual(statuses, {200, 404})
        self.assertEqual(failures, [])

    def test_answers_belong_to_a_version_and_never_go_back(self):
        """Versions follow each other under load; a client sees their numbers rise and nothing fail."""
        served = self.serve()
        stop, failures, last = threading.Event(), [], [0] * 8
        connections = [http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=20) for _ in last]

        def client(i):
            connection = connections[i]
            body = json.dumps({"input": [[1, 1, 1, 1]]})
            while not stop.is_set():
                connection.request("POST", "/predict/m", body)
                response = connection.getresponse()
                document = json.loads(response.read())
                if response.status != 200:
                    failures.append(document)
                    return
                version, value = int(document["model_version"]), document["prediction"][0][0]
                if version != value or version < last[i]:
                    failures.append((version, value, last[i]))
                last[i] = version

        threads = [threading.Thread(target=client, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for version in range(2, scaled(4, 102)):
            self.put(version, factor_model(version))
            self.assertTrue(self.eventually(lambda: min(last) == version or failures), last)
        stop.set()
        for thread, connection in zip(threads, connections):
            thread.join()
            connection.close()
        self.assertEqual(failures, [])


if __name__ == "__main__":
    unittest.main()

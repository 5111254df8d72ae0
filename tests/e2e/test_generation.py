"""The section `generation` of a model.yaml: a model writes texts, token after token, for many clients at once."""

import concurrent.futures
import http.client
import json
import pathlib
import queue
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request

import numpy
import onnx
import onnxruntime
import openapi_spec_validator
import tritonclient.grpc

import daemon
import decoders
from repositories import RepositoryCase

SHARED_MODELS = daemon.ROOT.parent / "shared" / "models"
WEIGHTS = decoders.Weights()
# Of different lengths, and one with characters of several bytes.
PROMPTS = ["hello", "x", "a longer text than the others", "é", "abc def"]


def written(text, tokens=20, weights=WEIGHTS):
    return decoders.greedy(weights, text, tokens).decode(errors="replace")


def events(raw):
    return [line[6:] for line in raw.decode().split("\n\n") for line in [line] if line.startswith("data: ")]


class GenerationCase(RepositoryCase):
    first = decoders.decoder(WEIGHTS)

    def files(self, settings="", name="m", version=1, **files):
        """Beside the model: its tokenizer and what else libraries leave there."""
        folder = self.folder / name / str(version)
        files.setdefault("config", {"max_position_embeddings": decoders.CONTEXT, "eos_token_id": decoders.END})
        for file, content in {"tokenizer": decoders.TOKENIZER, **files}.items():
            (folder / f"{file}.json").write_text(json.dumps(content))
        self.settings("generation:\n  tokenizer: tokenizer.json\n" + settings, name)

    def complete(self, served, prompt, tokens=20, **fields):
        status, answer = self.post(served, "/v1/completions", {
            "prompt": prompt, "max_tokens": tokens, "temperature": 0, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def texts(self, served, prompt, tokens=20, **fields):
        return [choice["text"] for choice in self.complete(served, prompt, tokens, **fields)["choices"]]

    def refusal(self, served, path="/v1/completions", **fields):
        status, answer = self.post(served, path, fields)
        self.assertGreaterEqual(status, 400, answer)
        return status, answer["error"]["message"] if path.startswith("/v1/") else answer["error"]

    def stream(self, served, path, document):
        """Pieces of the body, each with when it came."""
        connection = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=30)
        self.addCleanup(connection.close)
        connection.request("POST", path, json.dumps(document))
        response = connection.getresponse()
        pieces = []
        while piece := response.readline():
            pieces.append(piece)
        return response, events(b"".join(pieces))


class Completions(GenerationCase):
    def test_the_likeliest_tokens_are_written(self):
        self.files()
        served = self.serve()
        for prompt in PROMPTS:
            self.assertEqual(self.texts(served, prompt), [written(prompt)])
        self.assertTrue(served.logged("writes texts: 96 tokens of context, sequences take steps padded before their tokens, "
                                      "states are written in place"))

    def test_texts_outgrow_the_room_of_their_states(self):
        """Which is 64 tokens; others come and go meanwhile."""
        self.files()
        served = self.serve()
        wanted = list(zip(PROMPTS * 3, [66, 20, 60, 65, 40, 64, 50] * 3))
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            texts = list(pool.map(lambda one: self.texts(served, one[0], one[1], ignore_eos=True), wanted))
        self.assertEqual(texts, [[written(prompt, tokens)] for prompt, tokens in wanted])

    def test_many_texts_are_written_at_once(self):
        """Whoever comes or goes in between, each is what it is alone."""
        self.files()
        served = self.serve()
        lengths = [(prompt, tokens) for tokens in (1, 7, 30, 55, 12) for prompt in PROMPTS] * 4
        with concurrent.futures.ThreadPoolExecutor(24) as pool:
            texts = list(pool.map(lambda one: self.texts(served, *one), lengths))
        self.assertEqual(texts, [[written(*one)] for one in lengths])
        self.assertGreater(self.metric(served, 'onnxd_generation_tokens_total{kind="generated",model="m",version="1"}'), 2000)

    def test_several_prompts_and_several_answers(self):
        self.files()
        served = self.serve()
        self.assertEqual(self.texts(served, PROMPTS), [written(prompt) for prompt in PROMPTS])
        self.assertEqual(self.texts(served, ["x", "abc"], n=2), [written(text) for text in ("x", "x", "abc", "abc")])
        self.assertEqual(self.texts(served, list(b"hello")), [written("hello")])
        self.assertEqual(self.texts(served, [list(b"hello")]), [written("hello")])
        self.assertEqual(self.texts(served, [list(b"hello"), list(b"x")], n=2), [written(text) for text in ("hello", "hello", "x", "x")])
        for prompt in ("hello", list(b"hello")):
            self.assertEqual(self.texts(served, prompt, echo=True), ["hello" + written("hello")])
            self.assertEqual(self.texts(served, prompt, 0, echo=True), ["hello"])

    def test_what_the_answer_says_besides(self):
        self.files()
        served = self.serve()
        answer = self.complete(served, "hello", 7)
        self.assertEqual((answer["object"], answer["model"]), ("text_completion", "m"))
        self.assertEqual(answer["usage"], {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12})
        self.assertEqual(answer["choices"][0]["finish_reason"], "length")
        self.assertEqual(self.complete(served, "hello", 500)["usage"]["total_tokens"], decoders.CONTEXT)
        status, models = self.get(served, "/v1/models")
        self.assertEqual([(model["id"], model["object"]) for model in models["data"]], [("m", "model")])

    def test_the_document_of_the_server_has_them(self):
        self.files()
        served = self.serve()
        document = self.get(served, "/openapi.json")[1]
        openapi_spec_validator.validate(document)
        for path, field in (("/v1/completions", "prompt"), ("/v1/chat/completions", "messages")):
            content = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
            self.assertEqual(content["schema"]["properties"]["model"]["enum"], ["m"])
            self.assertEqual(content["schema"]["required"], [field])
        example = document["paths"]["/v1/completions"]["post"]["requestBody"]["content"]["application/json"]["example"]
        self.assertEqual(self.post(served, "/v1/completions", example)[0], 200)

    def test_texts_that_end_it(self):
        self.files()
        served = self.serve()
        whole = written("hello", 40)
        for stop in (whole[5:8], [whole[30:33], whole[10:12]], whole[7]):
            stops = stop if isinstance(stop, list) else [stop]
            answer = self.complete(served, "hello", 40, stop=stop)["choices"][0]
            self.assertEqual(answer["text"], whole[:min(whole.index(text) for text in stops)])
            self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(self.texts(served, "hello", 40, stop="0"), [whole])

    def test_tokens_that_end_it(self):
        whole = decoders.greedy(WEIGHTS, "hello", 40)
        end = whole[9]
        self.files(config={"max_position_embeddings": 96}, generation_config={"eos_token_id": [end, 300]})
        served = self.serve()
        answer = self.complete(served, "hello", 40)
        self.assertEqual(answer["choices"][0]["text"], whole[:whole.index(end)].decode())
        self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
        self.assertEqual(answer["usage"]["completion_tokens"], whole.index(end) + 1)
        self.assertEqual(self.texts(served, "hello", 40, ignore_eos=True), [written("hello", 40)])

    def test_a_special_token_is_the_end_and_is_not_written(self):
        weights = decoders.Weights()
        weights.bias[decoders.END] = 4
        self.put(1, decoders.decoder(weights))
        self.files()
        served = self.serve()
        ids = list(b"hello")
        for _ in range(60):
            ids.append(int(decoders.logits(weights, ids).argmax()))
        self.assertIn(decoders.END, ids)
        self.assertEqual(self.texts(served, "hello", 60), [bytes(ids[5:ids.index(decoders.END)]).decode()])
        seen = self.texts(served, "hello", 60, ignore_eos=True, skip_special_tokens=False)[0]
        self.assertIn("<|end|>", seen)

    def test_choices_by_chance(self):
        self.files()
        served = self.serve()
        sampled = [self.texts(served, "hello", 30, temperature=1.5, seed=seed)[0] for seed in (1, 1, 2)]
        self.assertEqual(sampled[0], sampled[1])
        self.assertNotEqual(sampled[0], sampled[2])
        self.assertNotEqual(sampled[0], written("hello", 30))
        self.assertEqual(len(set(self.texts(served, "hello", 30, temperature=1.5, seed=1, n=4))), 4)
        for only in ({"top_k": 1}, {"top_p": 0}, {"min_p": 1}):
            self.assertEqual(self.texts(served, "hello", temperature=1.5, **only), [written("hello")], only)
        biased = self.texts(served, "hello", 5, logit_bias={str(ord("q")): 100})
        self.assertEqual(biased, ["qqqqq"])
        self.assertNotIn("q", self.texts(served, "hello", 40, logit_bias={str(ord("q")): -100})[0])
        rare = self.texts(served, "hello", 20, frequency_penalty=2, presence_penalty=2, repetition_penalty=2)[0]
        self.assertGreater(len(set(rare)), len(set(written("hello", 20))))

    def test_the_files_say_how_it_is_chosen(self):
        self.files(generation_config={"do_sample": False})
        served = self.serve()
        status, answer = self.post(served, "/v1/completions", {"prompt": "hello", "max_tokens": 20})
        self.assertEqual(answer["choices"][0]["text"], written("hello"))

    def test_what_is_refused(self):
        self.files()
        served = self.serve()
        for fields, message in (
                ({"prompt": ""}, "the prompt has no tokens"),
                ({"prompt": "a" * 96}, "the prompt has 96 tokens, and prompt and answer have 96 together at most"),
                ({}, 'the body needs "prompt"'),
                ({"prompt": "a", "temperature": -1}, "temperature is -1, expected 0 to 100"),
                ({"prompt": "a", "max_tokens": -1}, "max_tokens is -1"), ({"prompt": "a", "max_tokens": 0}, "max_tokens is 0"),
                ({"prompt": "a" * 100_000}, "a prompt of 100000 bytes, more than the 96 tokens of the context can be"),
                ({"prompt": "a", "max_tokens": "1"}, "max_tokens must be a whole number"),
                ({"prompt": "a", "stop": ""}, "stop must be"),
                ({"prompt": "a", "logprobs": 21}, '"logprobs" must be 0 to 20'),
                ({"prompt": "a", "logprobs": True}, '"logprobs" must be 0 to 20'),
                *(({"prompt": prompt}, '"prompt" must be a text')
                  for prompt in (["a", 1], [1, "a"], [[1], "a"], ["a", [1]], [1, [2]], [[1], 2], [[[1]]], [["a"]], 1, [1.5], [None])),
                ({"prompt": [[1], [-1]]}, "a token below 0"), ({"prompt": []}, 'the body needs "prompt"'),
                ({"prompt": [[1], []]}, "the prompt has no tokens"), ({"prompt": [[]] * 65}, "more than 64 prompts"),
                ({"prompt": [-1]}, "a token below 0"),
                ({"prompt": "a", "n": 65}, '"n" must be 1 to 64'),
                ({"prompt": "a" * 2_000_000, "n": 64}, "64 times prompts of 2000000 bytes, of which 67108864 are the most"),
                ({"prompt": [1] * 200_000, "n": 64}, "64 times prompts of 1600000 bytes"),
                ({"prompt": "a", "model": "other"}, "other")):
            self.assertIn(message, self.refusal(served, **fields)[1])
        self.assertEqual(self.texts(served, "hello", logprobs=None, user="somebody", best_of=1), [written("hello")])

    def test_tokens_that_the_model_does_not_have(self):
        """The run fails, and what is written beside it goes on."""
        self.files()
        served = self.serve()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            good = [pool.submit(self.texts, served, "hello", 60) for _ in range(6)]
            for _ in range(10):
                status, message = self.refusal(served, prompt=[1, 5000])
                self.assertEqual(status, 400, message)
            self.assertEqual([one.result() for one in good], [[written("hello", 60)]] * 6)

    def test_more_texts_than_may_wait(self):
        self.files("  max_sequences: 1\n  queue_requests: 0\n")
        served = self.serve()
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda _: self.post(served, "/v1/completions", {
                "prompt": "hello", "max_tokens": 80, "temperature": 0}), range(24)))
        self.assertLessEqual({status for status, _ in answers}, {200, 503})
        self.assertTrue(all(answer["choices"][0]["text"] == written("hello", 80) for status, answer in answers if status == 200))


class Models(GenerationCase):
    """Kinds of models, and how their sequences are joined."""

    def check(self, model, settings="", way="padded before their tokens", **files):
        self.put(1, model)
        self.files(settings, **files)
        served = self.serve()
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(lambda prompt: self.texts(served, prompt), PROMPTS * 3))
        self.assertEqual(texts, [[written(prompt)] for prompt in PROMPTS * 3])
        self.assertTrue(served.logged(f"sequences take steps {way}"))
        return served

    def test_is_prepared_ahead_of_time(self):
        self.put(1, decoders.decoder(WEIGHTS))
        self.files()
        with tempfile.TemporaryDirectory() as cache:
            model = next(pathlib.Path(self.folder).rglob("model.onnx"))
            subprocess.run([daemon.BINARY, "compile", model, "--cache", cache, "--texts", "--profile", "input_ids=1x6:4x6"],
                           check=True, capture_output=True)
            served = self.serve(self.folder, "--cache", cache)
            self.assertTrue(served.logged("found in the cache"))
            self.assertEqual(self.texts(served, PROMPTS[0]), [written(PROMPTS[0])])
            served.close()

    def test_positions_from_the_number_of_tokens(self):
        """Padding would move them: each takes its own steps."""
        self.check(decoders.decoder(WEIGHTS, positions=False), way="one by one")

    def test_without_a_mask(self):
        self.check(decoders.decoder(WEIGHTS, mask=False), way="one by one")

    def test_prompts_in_pieces(self):
        self.check(decoders.decoder(WEIGHTS), "  prefill_tokens: 3\n")

    def test_context_and_ends_by_settings(self):
        served = self.check(decoders.decoder(WEIGHTS), "  context_length: 60\n  stop_tokens: [48, 49]\n", config={})
        self.assertEqual(self.complete(served, "hello", 500)["usage"]["total_tokens"], 60)
        self.assertIn("60 together", self.refusal(served, prompt="a" * 60)[1])

    def test_with_the_flag(self):
        """Those of models that take tokens alone are not touched."""
        self.files()
        (self.folder / "m" / "model.yaml").unlink()
        served = self.serve(self.folder, "--texts")
        self.assertEqual(self.texts(served, "hello"), [written("hello")])
        plain = self.serve(self.folder)
        self.assertEqual(self.refusal(plain, prompt="a", model="m")[0], 400)
        self.assertEqual(self.get(plain, "/v2/models/m")[1]["inputs"][0]["name"], "input_ids")

    def test_settings_for_tensors_hold(self):
        """A model.yaml that says how tensors are served is not overruled by the flag."""
        self.files()
        self.settings("response_cache: {enabled: true}\n")
        served = self.serve(self.folder, "--texts")
        self.assertEqual(self.get(served, "/v2/models/m")[1]["inputs"][0]["name"], "input_ids")

    def test_what_cannot_be_served(self):
        self.put(1, decoders.decoder(WEIGHTS))
        for settings, message in (
                ("generation:\n  tokenizer: other.json\n", "other.json"),
                ("generation:\n  tokenizer: ../tokenizer.json\n", "must be the name of a file beside the model's"),
                ("generation:\n  max_sequences: 3\n", "generation: it needs a tokenizer"),
                ("generation:\n  tokenizer: tokenizer.json\nresponse_cache:\n  enabled: true\n", "goes with none of")):
            self.files()
            self.settings(settings)
            served = self.serve()
            self.assertTrue(served.logged(message), served.stderr_lines)
            served.close()

    def test_a_new_version_beside_one_that_writes(self):
        self.files()
        served = self.serve()
        other = decoders.Weights(3)
        hidden = self.folder / ".2"
        shutil.copytree(self.folder / "m" / "1", hidden)
        onnx.save(decoders.decoder(other), hidden / "model.onnx")
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            running = [pool.submit(self.texts, served, "hello", 80) for _ in range(16)]
            hidden.rename(self.folder / "m" / "2")
            end = time.monotonic() + 20
            while self.texts(served, "hello") == [written("hello")] and time.monotonic() < end:
                time.sleep(0.05)
            self.assertEqual(self.texts(served, "hello"), [written("hello", weights=other)])
            for one in running:
                self.assertIn(one.result(), ([written("hello", 80)], [written("hello", 80, other)]))


class Streams(GenerationCase):
    def test_pieces_come_as_they_are_written(self):
        self.files()
        served = self.serve()
        response, pieces = self.stream(served, "/v1/completions", {
            "prompt": "abc def", "max_tokens": 30, "temperature": 0, "stream": True, "stream_options": {"include_usage": True}})
        self.assertEqual(response.getheader("Content-Type"), "text/event-stream; charset=utf-8")
        self.assertEqual(pieces.pop(), "[DONE]")
        chunks = [json.loads(piece) for piece in pieces]
        usage = chunks.pop()
        self.assertEqual((usage["choices"], usage["usage"]["completion_tokens"]), ([], 30))
        self.assertEqual([chunk["choices"][0]["finish_reason"] for chunk in chunks], [None] * (len(chunks) - 1) + ["length"])
        self.assertEqual("".join(chunk["choices"][0]["text"] for chunk in chunks), written("abc def", 30))
        self.assertGreater(len(chunks), 20)
        self.assertTrue(all("�" in chunk["choices"][0]["text"] or chunk["choices"][0]["text"].isascii() or
                            "é" in chunk["choices"][0]["text"] for chunk in chunks))

    def test_several_answers_come_beside_each_other(self):
        self.files()
        served = self.serve()
        _, pieces = self.stream(served, "/v1/completions", {
            "prompt": ["x", "abc def"], "n": 2, "max_tokens": 30, "temperature": 0, "stream": True, "echo": True})
        self.assertEqual(pieces.pop(), "[DONE]")
        choices = [json.loads(piece)["choices"][0] for piece in pieces]
        for index, prompt in enumerate(["x", "x", "abc def", "abc def"]):
            own = [choice for choice in choices if choice["index"] == index]
            self.assertEqual("".join(choice["text"] for choice in own), prompt + written(prompt, 30))
            self.assertEqual([choice["finish_reason"] for choice in own], [None] * (len(own) - 1) + ["length"])

    def test_a_connection_goes_on_behind_a_stream(self):
        self.files()
        served = self.serve()
        connection = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=30)
        self.addCleanup(connection.close)
        for _ in range(5):
            connection.request("POST", "/v1/completions", json.dumps(
                {"prompt": "hello", "max_tokens": 9, "temperature": 0, "stream": True}))
            pieces = events(connection.getresponse().read())
            text = "".join(json.loads(piece)["choices"][0]["text"] for piece in pieces[:-1])
            self.assertEqual(text, written("hello", 9))

    def test_an_old_client_reads_until_the_end_of_the_connection(self):
        self.files()
        served = self.serve()
        body = json.dumps({"prompt": "hello", "max_tokens": 9, "temperature": 0, "stream": True}).encode()
        with socket.create_connection(("127.0.0.1", served.http_port), timeout=30) as plain:
            plain.sendall(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            raw = b""
            while piece := plain.recv(65536):
                raw += piece
        head, _, rest = raw.partition(b"\r\n\r\n")
        self.assertNotIn(b"chunked", head)
        self.assertEqual(events(rest)[-1], "[DONE]")

    def test_an_error_before_the_first_piece_has_its_status(self):
        self.files()
        served = self.serve()
        self.assertEqual(self.refusal(served, prompt="a" * 200, stream=True)[0], 400)

    def test_clients_that_go_end_their_texts(self):
        """Nothing is written for them any more: what others ask is not kept waiting."""
        self.files("  max_sequences: 1\n")
        served = self.serve()
        body = json.dumps({"prompt": "hello", "max_tokens": 90, "n": 4, "ignore_eos": True}).encode()
        gone = [socket.create_connection(("127.0.0.1", served.http_port), timeout=30) for _ in range(60)]
        for one in gone:
            one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        gone[0].recv(1)
        for one in gone:
            one.close()
        self.assertEqual(self.texts(served, "hello"), [written("hello")])
        labels = 'code="CANCELLED",model="m",protocol="http",version="1"'
        self.assertTrue(self.eventually(lambda: self.metric(served, f"onnxd_requests_total{{{labels}}}") > 5))
        self.assertLess(self.metric(served, 'onnxd_generation_tokens_total{kind="generated",model="m",version="1"}'), 60 * 4 * 90)
        self.assertEqual(self.metric(served, "onnxd_generation_sequences"), 0)

    def test_a_deadline_ends_a_text(self):
        self.files()
        served = self.serve()
        status, answer = self.post(served, "/v2/models/m/generate", {"text_input": "hello", "timeout": 1})
        self.assertIn(status, (503, 504), answer)

    def test_draining_lets_texts_end(self):
        self.files()
        served = self.serve()
        body = {"prompt": "hello", "max_tokens": 90, "temperature": 0, "stream": True}
        connection = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=30)
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        first = response.readline()
        served.process.terminate()
        pieces = events(first + response.read())
        self.assertEqual(pieces[-1], "[DONE]")
        self.assertEqual(served.process.wait(20), 0)


def token_text(token):
    """As OpenAI's API writes bytes that are no character."""
    return "<|end|>" if token == decoders.END else chr(token) if token < 128 else f"bytes:\\x{token:02x}"


class LogProbabilities(GenerationCase):
    def check(self, scores, prompt, answer, likeliest, echo=False):
        """Against those computed without a cache, one token after the other."""
        ids = [*prompt, *answer]
        first = 0 if echo else len(prompt)
        self.assertEqual(scores["tokens"], [token_text(token) for token in ids[first:]])
        for i, token in enumerate(ids[first:], first):
            own, top = scores["token_logprobs"][i - first], scores["top_logprobs"][i - first]
            if i == 0:
                self.assertEqual((own, top), (None, None))
                continue
            expected = decoders.log_probabilities(WEIGHTS, ids[:i])
            order = numpy.argsort(-expected)[:likeliest]
            self.assertAlmostEqual(own, expected[token], delta=1e-3)
            self.assertEqual(list(top), list(dict.fromkeys([token_text(int(one)) for one in order] + [token_text(token)])))
            for one in order:
                self.assertAlmostEqual(top[token_text(int(one))], expected[one], delta=1e-3)

    def test_of_texts(self):
        self.files()
        served = self.serve()
        for prompt in PROMPTS:
            answer = decoders.greedy(WEIGHTS, prompt, 20)
            for likeliest in (0, 3):
                scores = self.complete(served, prompt, logprobs=likeliest)["choices"][0]["logprobs"]
                self.check(scores, prompt.encode(), answer, likeliest)
        offsets = self.complete(served, "é", logprobs=0, echo=True)["choices"][0]["logprobs"]["text_offset"]
        self.assertEqual(offsets[:3], [0, 1, 1])
        self.assertIsNone(self.complete(served, "x")["choices"][0]["logprobs"])

    def test_they_are_the_model_s_before_penalties(self):
        self.files()
        served = self.serve()
        choice = self.complete(served, "hello", logprobs=2, temperature=1.5, seed=3, presence_penalty=1.5, top_k=9)["choices"][0]
        answer = [ord(token) if len(token) == 1 else int(token[-2:], 16) for token in choice["logprobs"]["tokens"]]
        self.assertNotEqual(bytes(answer), decoders.greedy(WEIGHTS, "hello", 20))
        self.check(choice["logprobs"], b"hello", answer, 2)

    def test_of_a_prompt(self):
        self.files("  prefill_tokens: 3\n")
        served = self.serve()
        prompts = [text.encode() for text in PROMPTS]
        for asked in (PROMPTS, [list(prompt) for prompt in prompts]):
            for tokens in (0, 5):
                choices = self.complete(served, asked, tokens, echo=True, logprobs=2)["choices"]
                for choice, prompt, text in zip(choices, prompts, PROMPTS):
                    self.assertEqual(choice["text"], (prompt + decoders.greedy(WEIGHTS, text, tokens)).decode(errors="replace"))
                    self.check(choice["logprobs"], prompt, decoders.greedy(WEIGHTS, text, tokens), 2, echo=True)

    def test_in_pieces(self):
        self.files()
        served = self.serve()
        body = {"prompt": "é", "max_tokens": 40, "temperature": 0, "logprobs": 2, "echo": True}
        whole = self.post(served, "/v1/completions", body)[1]["choices"][0]
        _, pieces = self.stream(served, "/v1/completions", {**body, "stream": True})
        scores = [choice["logprobs"] for piece in pieces[:-1] for choice in json.loads(piece)["choices"]]
        for field in whole["logprobs"]:
            self.assertEqual([one for score in scores if score for one in score[field]], whole["logprobs"][field])

    def test_where_a_text_ends(self):
        self.files()
        served = self.serve()
        answer = decoders.greedy(WEIGHTS, "hello", 40)
        scores = self.complete(served, "hello", 40, logprobs=1, stop=answer[5:8].decode())["choices"][0]["logprobs"]
        self.check(scores, b"hello", answer[:8], 1)

    def test_of_conversations(self):
        self.files(tokenizer_config={"chat_template": "{{ messages[0].content }}"})
        served = self.serve()
        body = {"messages": [{"role": "user", "content": "abc def"}], "max_tokens": 20, "temperature": 0, "logprobs": True}
        answer = decoders.greedy(WEIGHTS, "abc def", 20)
        for likeliest in (0, 4):
            scores = self.post(served, "/v1/chat/completions", {**body, "top_logprobs": likeliest})[1]["choices"][0]["logprobs"]
            self.assertEqual([one["bytes"] for one in scores["content"]], [[token] for token in answer])
            self.assertEqual([one["token"] for one in scores["content"]], [token_text(token) for token in answer])
            for i, one in enumerate(scores["content"]):
                expected = decoders.log_probabilities(WEIGHTS, [*b"abc def", *answer[:i]])
                self.assertAlmostEqual(one["logprob"], expected[answer[i]], delta=1e-3)
                self.assertEqual([top["token"] for top in one["top_logprobs"]],
                                 [token_text(int(token)) for token in numpy.argsort(-expected)[:likeliest]])
        _, pieces = self.stream(served, "/v1/chat/completions", {**body, "stream": True})
        scores = [choice["logprobs"] for piece in pieces[:-1] for choice in json.loads(piece)["choices"]]
        self.assertEqual([one["bytes"][0] for score in scores if score for one in score["content"]], list(answer))

    def test_more_than_an_answer_may_have(self):
        self.files("  context_length: 100000\n")
        served = self.serve()
        status, message = self.refusal(served, prompt="a", logprobs=20, max_tokens=90_000)
        self.assertIn("up to 1890000 log probabilities, of which 1048576 are the most", message)


CHAT = "{% for message in messages %}{{ message.role[0] }}:{{ message.content }}|{% endfor %}{% if add_generation_prompt %}a:{% endif %}"


class Chat(GenerationCase):
    def chat(self, served, messages, tokens=12, **fields):
        return self.post(served, "/v1/chat/completions", {"messages": messages, "max_tokens": tokens, "temperature": 0, **fields})

    def test_a_conversation_is_written_by_the_model_s_template(self):
        self.files(tokenizer_config={"chat_template": CHAT})
        served = self.serve()
        messages = [{"role": "system", "content": "be"}, {"role": "user", "content": [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]}]
        status, answer = self.chat(served, messages)
        self.assertEqual(status, 200, answer)
        self.assertEqual((answer["object"], answer["choices"][0]["finish_reason"]), ("chat.completion", "length"))
        self.assertEqual(answer["choices"][0]["message"], {"role": "assistant", "content": written("s:be|u:hi|a:", 12)})
        self.assertEqual(answer["usage"]["prompt_tokens"], len("s:be|u:hi|a:"))
        _, pieces = self.stream(served, "/v1/chat/completions", {"messages": messages, "max_tokens": 12, "temperature": 0, "stream": True})
        self.assertEqual(pieces.pop(), "[DONE]")
        deltas = [json.loads(piece)["choices"][0]["delta"] for piece in pieces]
        self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
        self.assertEqual(deltas[-1], {})
        self.assertEqual("".join(delta.get("content", "") for delta in deltas), written("s:be|u:hi|a:", 12))
        # Without max_tokens: until the context is full.
        self.assertEqual(self.post(served, "/v1/chat/completions", {"messages": messages, "temperature": 0})[1]["usage"]["total_tokens"], 96)

    def test_variables_of_the_template(self):
        self.files(tokenizer_config={"chat_template": "{{ bos_token }}{{ messages[0].content }}{{ word|default('?') }}", "bos_token": "b"})
        served = self.serve()
        for fields, prompt in (({}, "bhi?"), ({"chat_template_kwargs": {"word": "w"}}, "bhiw")):
            answer = self.chat(served, [{"role": "user", "content": "hi"}], **fields)[1]
            self.assertEqual(answer["choices"][0]["message"]["content"], written(prompt, 12))

    def test_a_template_in_a_file(self):
        (self.folder / "m" / "1" / "chat_template.jinja").write_text("<{{ messages[0].content }}>")
        (self.folder / "m" / "1" / "mine.jinja").write_text("({{ messages[0].content }})")
        self.files()
        served = self.serve()
        self.assertEqual(self.chat(served, [{"role": "user", "content": "hi"}])[1]["choices"][0]["message"]["content"], written("<hi>", 12))
        self.files("  chat_template: mine.jinja\n")
        served = self.serve()
        self.assertEqual(self.chat(served, [{"role": "user", "content": "hi"}])[1]["choices"][0]["message"]["content"], written("(hi)", 12))

    def test_what_is_refused(self):
        self.files(tokenizer_config={"chat_template": "{{ raise_exception('only users') if messages[0].role != 'user' }}{{ messages[0].content }}"})
        served = self.serve()
        good = {"role": "user", "content": "hi"}
        for messages, message in (
                ([], "messages: it must be an array"), ([1], "each must be an object"), ([{"content": "a"}], 'each needs a "role"'),
                ([{"role": "bot", "content": "a"}], "the chat template: line 1: only users"),
                ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}], "the model takes nothing else"),
                ([{**good, "deep": eval("[" * 70 + "]" * 70)}], "")):
            status, text = self.refusal(served, "/v1/chat/completions", messages=messages)
            self.assertEqual(status, 400)
            self.assertIn(message, text)
        for fields, message in (({"messages": "a"}, 'the body needs "messages"'), ({}, 'the body needs "messages"'),
                                ({"messages": [good], "top_logprobs": 2}, '"top_logprobs" needs "logprobs": true'),
                                ({"messages": [good], "logprobs": 2}, '"logprobs" must be true or false'),
                                ({"messages": [good], "echo": True}, '"echo" is not there yet'),
                                ({"messages": [good], "tools": [{"type": "function"}]}, '"tools" is not there yet'),
                                ({"messages": [good], "response_format": {"type": "json_object"}}, '"response_format" is not there yet')):
            self.assertIn(message, self.refusal(served, "/v1/chat/completions", **fields)[1])
        self.assertEqual(self.chat(served, [good], response_format={"type": "text"}, tools=[], tool_choice="none", store=False)[0], 200)

    def test_without_a_template_that_can_be_used(self):
        self.files()
        served = self.serve()
        self.assertIn("the model has no chat template", self.refusal(
            served, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])[1])
        self.files(tokenizer_config={"chat_template": "{% sing %}"})
        served = self.serve()
        self.assertTrue(served.logged("the model's chat template: line 1: the statement 'sing' is not there yet"))
        self.assertIn("the statement 'sing'", self.refusal(
            served, "/v1/chat/completions", messages=[{"role": "user", "content": "hi"}])[1])
        self.assertEqual(self.texts(served, "hello"), [written("hello")])


class Generate(GenerationCase):
    """Triton's extension, and the protocol's own call."""

    def test_generate_and_its_stream(self):
        self.files()
        served = self.serve()
        status, answer = self.post(served, "/v2/models/m/generate", {
            "id": "7", "text_input": "hello", "parameters": {"max_tokens": 9, "temperature": 0, "stop": ["zz"]}})
        self.assertEqual(answer, {"id": "7", "model_name": "m", "model_version": "1", "text_output": written("hello", 9)})
        _, pieces = self.stream(served, "/v2/models/m/generate_stream", {"text_input": "hello", "max_tokens": 9, "temperature": 0})
        self.assertEqual(len(pieces), 9)
        self.assertEqual("".join(json.loads(piece)["text_output"] for piece in pieces), written("hello", 9))
        self.assertIn("temperature must be a number", self.refusal(
            served, "/v2/models/m/generate", text_input="a", temperature="warm")[1])
        self.assertEqual(self.refusal(served, "/v2/models/m/generate_stream", text_input="")[0], 400)

    def test_infer(self):
        self.files()
        served = self.serve()
        status, answer = self.post(served, "/v2/models/m/infer", {
            "inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [2], "data": ["hello", "x"]}],
            "parameters": {"max_tokens": 9, "temperature": 0}})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["outputs"][0]["data"], [written("hello", 9), written("x", 9)])
        metadata = self.get(served, "/v2/models/m")[1]
        self.assertEqual(metadata["inputs"], [{"name": "text_input", "datatype": "BYTES", "shape": [-1]}])
        self.assertEqual(metadata["outputs"], [{"name": "text_output", "datatype": "BYTES", "shape": [-1]}])

    def test_grpc(self):
        """A call gets the whole text; a stream pieces of it, and an empty last one."""
        self.files()
        served = self.serve()
        text = tritonclient.grpc.InferInput("text_input", [1], "BYTES")
        text.set_data_from_numpy(numpy.array(["hello"], object))
        parameters = {"max_tokens": 9, "temperature": 0, "seed": 1}
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{served.grpc_port}") as client:
            answer = client.infer("m", [text], parameters=parameters)
            self.assertEqual(answer.as_numpy("text_output")[0].decode(), written("hello", 9))
            with self.assertRaisesRegex(Exception, "temperature must be a number"):
                client.infer("m", [text], parameters={"temperature": "warm"})
            came = queue.Queue()
            client.start_stream(lambda result, error: came.put((result, error)))
            client.async_stream_infer("m", [text], request_id="7", parameters=parameters)
            pieces = []
            while True:
                result, error = came.get(timeout=20)
                self.assertIsNone(error)
                self.assertEqual(result.get_response().id, "7")
                pieces.append(result.as_numpy("text_output")[0].decode())
                if result.get_response().parameters["triton_final_response"].bool_param:
                    break
            self.assertEqual((len(pieces), "".join(pieces), pieces[-1]), (10, written("hello", 9), ""))
            client.async_stream_infer("m", [text], parameters={"max_tokens": -1})
            result, error = came.get(timeout=20)
            self.assertIn("max_tokens is -1", str(error))
            client.stop_stream()

    def test_metrics(self):
        self.files()
        served = self.serve()
        self.texts(served, "hello", 20)
        labels = 'model="m",version="1"'
        self.assertEqual(self.metric(served, f"onnxd_generation_first_token_seconds_count{{{labels}}}"), 1)
        self.assertEqual(self.metric(served, f"onnxd_generation_token_seconds_count{{{labels}}}"), 19)
        self.assertEqual(self.metric(served, f'onnxd_generation_tokens_total{{kind="prompt",{labels}}}'), 5)


def words(count):
    """A tokenizer of as many tokens, each a word: its number."""
    return {"added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "unk_token": "0", "vocab": {str(i): i for i in range(count)}}}


class RealModels(unittest.TestCase):
    """Small models of other projects, of random weights: several ways of keeping what was before, in float and float16.
    What onnxruntime computes of one text at a time, without padding, is the likeliest here as well, or as likely as that:
    of close logits another may be the largest in float16, or in another order of additions."""

    COUNTS = {"gpt2_fp32": 1000, "lfm2_fp32": 1000, "llama_fp16": 32000, "gqa_graphcapture": 256}
    # What lfm2 writes does not depend on what was before (its weights are a stub): nothing says how to join it.
    # Keys and values in one tensor, or rounded behind the attention, are copied.
    WAYS = {"gpt2_fp32": "padded before their tokens", "lfm2_fp32": "one by one", "llama_fp16": "padded before their tokens",
            "gqa_graphcapture": "padded behind their tokens, states are written in place"}

    def oracle(self, name):
        session = onnxruntime.InferenceSession(str(SHARED_MODELS / f"genai_tiny_{name}" / "model.onnx"))
        inputs, outputs = session.get_inputs(), [output.name for output in session.get_outputs()]
        types = {"tensor(float)": numpy.float32, "tensor(float16)": numpy.float16, "tensor(int64)": numpy.int64,
                 "tensor(int32)": numpy.int32}

        def logits(ids):
            feeds = {}
            for one in inputs:
                shape = [1 if "batch" in str(size) else 0 if "past" in str(size) else size for size in one.shape]
                values = {"input_ids": [ids], "attention_mask": [[1] * len(ids)], "position_ids": [list(range(len(ids)))]}
                feeds[one.name] = numpy.asarray(values[one.name], types[one.type]) if one.name in values else numpy.zeros(
                    shape, types[one.type])
            return session.run(["logits"], feeds)[0][0, -1].astype(numpy.float64)

        return logits

    def test_texts_are_the_likeliest(self):
        for name, count in self.COUNTS.items():
            if not (SHARED_MODELS / f"genai_tiny_{name}").exists():
                self.skipTest(f"{SHARED_MODELS}: models from elsewhere are not there")
            with self.subTest(model=name), tempfile.TemporaryDirectory() as folder:
                version = pathlib.Path(folder) / "m" / "1"
                shutil.copytree(SHARED_MODELS / f"genai_tiny_{name}", version)
                (version / "tokenizer.json").write_text(json.dumps(words(count)))
                served = daemon.Daemon(folder, "--texts")
                self.addCleanup(served.close)
                self.assertTrue(served.logged(f"steps {self.WAYS[name]}"), served.stderr_lines)
                random = numpy.random.default_rng(0)
                prompts = [random.integers(0, count, length).tolist() for length in (3, 17, 1, 8)]

                def complete(prompt):
                    body = json.dumps({"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True}).encode()
                    with urllib.request.urlopen(served.url + "/v1/completions", body, timeout=60) as answer:
                        return [int(word) for word in json.load(answer)["choices"][0]["text"].split()]

                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    texts = list(pool.map(complete, prompts))
                logits = self.oracle(name)
                for prompt, text in zip(prompts, texts):
                    self.assertEqual(len(text), 12)
                    for i, token in enumerate(text):
                        expected = logits(prompt + text[:i])
                        spread = expected.max() - expected.min()
                        self.assertLess(expected.max() - expected[token], 0.01 * spread, (prompt, text, i))
                served.close()


if __name__ == "__main__":
    unittest.main()

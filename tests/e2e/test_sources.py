"""Repositories that are not folders: buckets, hubs and web servers."""

import base64
import hashlib
import hmac
import json
import logging
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import unittest
import urllib.error
import urllib.parse
import urllib.request

import boto3
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from moto.server import ThreadedMotoServer

import daemon
from object_server import ObjectServer
from repositories import RepositoryCase, factor_model

# What the machine of a test could know by itself.
NO_CREDENTIALS = {name: "" for name in ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "HF_TOKEN", "AZURE_STORAGE_KEY", "http_proxy", "https_proxy",
                                        "HTTPS_PROXY", "HTTP_PROXY", "GOOGLE_APPLICATION_CREDENTIALS")}


def content(factor):
    return factor_model(factor).SerializeToString()


class SourceCase(RepositoryCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.home)
        self.cache = self.home / "cache"

    def environment(self, **more):
        return {**NO_CREDENTIALS, "HOME": str(self.home), "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "*",
                "GCE_METADATA_HOST": "127.0.0.1:1", "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:1",
                "ONNXD_SOURCES_CACHE_DIR": str(self.cache), "ONNXD_SOURCES_POLL_INTERVAL_S": "1", **more}

    def start(self, url, *arguments, **environment):
        return self.serve(url, *arguments, **self.environment(**environment))

    def failure(self, url, **environment):
        """What a daemon says that ends because of its source."""
        served = self.start(url, **environment)
        self.assertEqual(served.process.wait(60), 4)
        return served.last_words()

    def ready(self, served):
        self.assertTrue(self.eventually(lambda: self.get(served, "/health/ready")[0] == 200), served.stderr_lines)

    def downloaded(self, served):
        return self.metric(served, "onnxd_source_bytes_total")


class S3(SourceCase):
    @classmethod
    def setUpClass(cls):
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        cls.moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        cls.moto.start()
        cls.endpoint = "http://127.0.0.1:%d" % cls.moto.get_host_and_port()[1]

    @classmethod
    def tearDownClass(cls):
        cls.moto.stop()

    def setUp(self):
        super().setUp()
        urllib.request.urlopen(urllib.request.Request(self.endpoint + "/moto-api/reset", method="POST"))
        self.keys = {"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret"}
        self.client = self.as_user("AKIAEXAMPLE", "secret", "s3")
        self.client.create_bucket(Bucket="models")

    def as_user(self, key, secret, service):
        return boto3.client(service, endpoint_url=self.endpoint, region_name="us-east-1", aws_access_key_id=key,
                            aws_secret_access_key=secret)

    def ask_for_signatures_after(self, requests):
        urllib.request.urlopen(urllib.request.Request(
            self.endpoint + "/moto-api/reset-auth", str(requests).encode(), {"Content-Type": "text/plain"}, method="POST"))

    def upload(self, key, body):
        self.client.put_object(Bucket="models", Key=key, Body=body)

    def start(self, url, *arguments, **environment):
        return super().start(url, *arguments, **{"AWS_ENDPOINT_URL": self.endpoint, **self.keys, **environment})

    def test_a_repository_is_followed(self):
        self.upload("prod/m/1/model.onnx", content(1))
        served = self.start("s3://models/prod")
        self.ready(served)
        self.assertEqual(self.answer(served), 1)
        self.upload("prod/m/2/model.onnx", content(2))
        self.assertTrue(self.eventually(lambda: self.answer(served) == 2))
        self.upload("prod/m/2/model.onnx", content(20))
        self.assertTrue(self.eventually(lambda: self.answer(served) == 20))
        self.client.delete_object(Bucket="models", Key="prod/m/2/model.onnx")
        self.assertTrue(self.eventually(lambda: self.answer(served) == 1))
        self.upload("prod/n/7/model.onnx", content(7))
        self.assertTrue(self.eventually(lambda: self.get(served, "/v2/models/n/ready")[0] == 200))

    def test_only_what_the_settings_want_comes(self):
        for version in range(1, 6):
            self.upload(f"m/{version}/model.onnx", content(version))
        self.upload("m/model.yaml", b"versions: latest:2\nlabels:\n  stable: 1\n")
        served = self.start("s3://models")
        self.ready(served)
        self.assertEqual(self.get(served, "/v2/models/m")[1]["versions"], ["1", "4", "5"])
        folders = sorted(path.parent.name for path in self.cache.glob("*/models/m/*/model.onnx"))
        self.assertEqual(folders, ["1", "4", "5"])

    def test_more_than_a_page_and_names_of_all_kinds(self):
        self.upload("wide/m-ü+&=~'()*!/1/model.onnx", content(4))
        for i in range(1100):
            self.upload(f"wide/m-ü+&=~'()*!/1/file {i:04}", b"")
        served = self.start("s3://models/wide", ONNXD_SOURCES_POLL_INTERVAL_S="0")
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/" + urllib.parse.quote("m-ü+&=~'()*!")), 4)
        self.assertEqual(len(list(self.cache.glob("*/models/*/1/*"))), 1101)

    def test_a_second_start_downloads_nothing_and_needs_no_source(self):
        self.upload("m/1/model.onnx", content(3))
        served = self.start("s3://models")
        self.ready(served)
        self.assertEqual(self.downloaded(served), len(content(3)))
        served.terminate()
        served = self.start("s3://models")
        self.ready(served)
        self.assertEqual(self.downloaded(served), 0)
        served.terminate()
        served = self.start("s3://models", AWS_ENDPOINT_URL="http://127.0.0.1:1")
        self.ready(served)
        self.assertEqual(self.answer(served), 3)
        self.assertTrue(served.logged("what came before serves"))

    def test_requests_are_signed(self):
        iam = self.as_user("AKIAEXAMPLE", "secret", "iam")
        iam.create_user(UserName="reader")
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        iam.put_user_policy(UserName="reader", PolicyName="read", PolicyDocument=json.dumps(
            {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}))
        self.upload("ü/m/1/model.onnx", content(5))
        self.ask_for_signatures_after(0)
        self.addCleanup(self.ask_for_signatures_after, 1_000_000)
        good = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        served = self.start("s3://models/ü", **good)
        self.ready(served)
        self.assertEqual(self.answer(served), 5)
        said = self.failure("s3://models/other", **{**good, "AWS_SECRET_ACCESS_KEY": "wrong"})
        self.assertIn("SignatureDoesNotMatch", said)

    def test_credentials_are_found_in_the_profile(self):
        (self.home / ".aws").mkdir()
        (self.home / ".aws" / "credentials").write_text(
            "[default]\naws_access_key_id = AKIADEFAULT\n[ci]\naws_access_key_id=AKIACI\naws_secret_access_key = s\n")
        (self.home / ".aws" / "config").write_text("[profile ci]\nregion = eu-west-3\n")
        with_tag = ObjectServer()
        self.addCleanup(with_tag.close)
        with_tag.answers["/"] = lambda handler, path: handler.reply(403, b"<Error/>") or True
        self.failure("s3://models", AWS_ACCESS_KEY_ID="", AWS_PROFILE="ci", AWS_ENDPOINT_URL=with_tag.url)
        authorization = with_tag.headers[0][2]["Authorization"]
        self.assertRegex(authorization, r"Credential=AKIACI/\d{8}/eu-west-3/s3/aws4_request,")
        # Without any, the message says where they are looked for.
        said = self.failure("s3://models", AWS_ACCESS_KEY_ID="", HOME="/nonexistent", AWS_ENDPOINT_URL=with_tag.url)
        self.assertIn("needs credentials: AWS_ACCESS_KEY_ID, ~/.aws/credentials or a role", said)

    def test_an_mlflow_model(self):
        self.upload("runs/1/artifacts/net/MLmodel", b"flavors:\n  onnx:\n    data: net.onnx\n    onnx_version: 1.16.0\n")
        self.upload("runs/1/artifacts/net/net.onnx", content(8))
        self.upload("runs/1/artifacts/net/requirements.txt", b"onnx")
        served = self.start("s3://models/runs/1/artifacts/net")
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/net"), 8)
        self.upload("other/MLmodel", b"flavors:\n  sklearn: {}\n")
        self.assertIn("it has no flavor onnx, only: sklearn", self.failure("s3://models/other"))

    def test_one_file(self):
        self.upload("x/net.onnx", content(9))
        served = self.start("s3://models/x/net.onnx", "--model-name", "mine")
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/mine"), 9)

    def test_two_servers_of_one_cache_download_an_object_once(self):
        self.upload("m/1/model.onnx", content(6))
        first, second = self.start("s3://models"), self.start("s3://models")
        for served in (first, second):
            self.ready(served)
            self.assertEqual(self.answer(served), 6)
        self.assertEqual(self.downloaded(first) + self.downloaded(second), len(content(6)))

    def test_the_cache_has_a_limit(self):
        self.upload("old/1/model.onnx", content(1))
        self.upload("old/1/data", os.urandom(700_000))
        self.upload("new/1/model.onnx", content(2))
        self.upload("new/1/data", os.urandom(700_000))
        for name in ("old", "new"):
            self.client.create_bucket(Bucket=name)
            for file in ("model.onnx", "data"):
                self.client.copy_object(Bucket=name, Key=f"m/1/{file}", CopySource=f"models/{name}/1/{file}")
        limit = {"ONNXD_SOURCES_CACHE_BYTES": str(1 << 20)}
        first = self.start("s3://old", **limit)
        self.ready(first)
        self.assertIn("would pass sources.cache_bytes", self.failure("s3://new", **limit))
        first.terminate()
        second = self.start("s3://new", **limit)  # nobody serves the other any more
        self.ready(second)
        self.assertEqual(self.answer(second), 2)
        self.assertEqual(len(list(self.cache.glob("*/models/m"))), 1)

    def test_a_source_that_is_not_there_says_so(self):
        self.assertIn("NoSuchBucket", self.failure("s3://absent"))
        self.assertIn("there is nothing", self.failure("s3://models/none"))


class WebServers(SourceCase):
    def setUp(self):
        super().setUp()
        self.server = ObjectServer()
        self.addCleanup(self.server.close)

    def test_a_file_with_its_checksum(self):
        self.server.objects["/net.onnx"] = content(3)
        digest = hashlib.sha256(content(3)).hexdigest()
        served = self.start(f"{self.server.url}/net.onnx#sha256={digest}")
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/net"), 3)
        said = self.failure(f"{self.server.url}/net.onnx#sha256={'0' * 64}")
        self.assertIn(f"its checksum is {digest}, expected {'0' * 64}", said)
        self.assertEqual(list(self.cache.glob("*/models/net/1/*")), [next(self.cache.glob("*/models/net/1/model.onnx"))])

    def test_a_changed_file_is_noticed_by_its_tag(self):
        self.server.objects["/net.onnx"] = content(3)
        served = self.start(f"{self.server.url}/net.onnx")
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/net"), 3)
        self.server.objects["/net.onnx"] = content(4)
        self.assertTrue(self.eventually(lambda: self.answer(served, "/predict/net") == 4))
        self.assertEqual(self.server.read["/net.onnx"], 2)

    def test_a_broken_download_goes_on_where_it_was(self):
        whole = content(3)
        self.server.objects["/net.onnx"] = whole
        self.server.break_after = 50
        served = self.start(f"{self.server.url}/net.onnx")
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/net"), 3)
        self.assertGreater(self.server.read["/net.onnx"], 2)
        self.assertEqual(self.server.sent["/net.onnx"], len(whole))

    def test_a_failed_download_goes_on_with_the_next_start(self):
        whole = content(3)
        self.server.objects["/net.onnx"] = whole
        self.server.break_after = 50
        self.server.answers["/net.onnx"] = lambda handler, _: (
            handler.command == "GET" and handler.server.read["/net.onnx"] > 0 and not handler.reply(503))
        self.assertIn("503", self.failure(f"{self.server.url}/net.onnx"))
        self.server.answers.clear()
        self.server.break_after = None
        served = self.start(f"{self.server.url}/net.onnx")
        self.ready(served)
        self.assertEqual(self.server.sent["/net.onnx"], len(whole))

    def test_servers_that_send_the_wrong_thing(self):
        whole = content(3)
        long, other = len(whole) + 5, content(4)
        self.server.objects["/net.onnx"] = whole

        def too_long(handler, _):
            if handler.command == "HEAD":
                return False
            handler.send_response(200)
            handler.send_header("Content-Length", str(long))
            handler.end_headers()
            handler.wfile.write(whole + b"12345")
            return True

        def wrong_part(handler, _):
            if handler.command == "HEAD":
                return False
            handler.reply(206, other, Content_Range="bytes 7-9/10")
            return True

        def another(handler, _):
            if handler.command == "HEAD":
                return False
            handler.reply(200, other, ETag='"another"')
            return True

        for answer, reason in ((too_long, f"more than the {len(whole)} bytes"), (wrong_part, "sends another part"),
                               (another, "it changed while it was read")):
            self.server.answers["/net.onnx"] = answer
            self.assertIn(reason, self.failure(f"{self.server.url}/net.onnx"))

    def test_the_end_does_not_wait_for_a_download_that_hangs(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)

        def hangs(handler, _):
            if handler.command == "HEAD":
                return False
            handler.send_response(200)
            handler.send_header("Content-Length", "1000")
            handler.end_headers()
            handler.wfile.write(b"1")
            go_on.wait(60)
            return True

        self.server.objects["/net.onnx"] = bytes(1000)
        self.server.answers["/net.onnx"] = hangs
        with subprocess.Popen([daemon.BINARY, "serve", f"{self.server.url}/net.onnx", "--http-port", "0", "--grpc-port", "0",
                               "--metrics-port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env={**os.environ, **self.environment()}) as served:
            self.addCleanup(served.kill)
            url = "http://" + re.search(r"127\.0\.0\.1:\d+", served.stdout.readline())[0]
            self.assertTrue(self.eventually(lambda: any(command == "GET" for command, _, _ in self.server.headers)))
            self.assertEqual(urllib.request.urlopen(url + "/health/live").status, 200)
            with self.assertRaises(urllib.error.HTTPError) as not_ready:
                urllib.request.urlopen(url + "/health/ready")
            self.assertEqual(not_ready.exception.code, 503)
            served.terminate()
            self.assertEqual(served.wait(10), 0)

    def test_what_came_before_another_file_failed_is_not_read_again(self):
        bodies = {"m/1/a.data": bytes(5000), "m/1/model.onnx": content(3)}
        body = "".join(f'<Contents><Key>{key}</Key><ETag>"{key}"</ETag><Size>{len(data)}</Size></Contents>' for key, data in bodies.items())
        broken, reads = [True], []

        def bucket(handler, path):
            if handler.query.get("list-type"):
                return handler.reply(200, f"<r>{body}</r>".encode()) or True
            key = path.removeprefix("/models/")
            reads.append(key)
            return handler.reply(*((404,) if key.endswith(".onnx") and broken[0] else (200, bodies[key]))) or True

        self.server.answers["/models"] = bucket
        self.failure("s3://models", AWS_ENDPOINT_URL=self.server.url)
        broken[0] = False
        served = self.start("s3://models", AWS_ENDPOINT_URL=self.server.url)
        self.ready(served)
        self.assertEqual(self.answer(served), 3)
        self.assertEqual(reads.count("m/1/a.data"), 1)

    def test_a_proxy_of_the_environment(self):
        self.server.answers["http://models.invalid:80/"] = lambda handler, path: handler.object(content(3), path) or True
        served = self.start("http://models.invalid/net.onnx", http_proxy=self.server.url, no_proxy="other.invalid")
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/net"), 3)

    def test_what_authorises_goes_to_no_other_host(self):
        other = ObjectServer()
        self.addCleanup(other.close)
        other.objects["/net.onnx"] = content(3)
        (self.home / ".netrc").write_text("machine 127.0.0.1 login me password secret\n")
        self.server.answers["/net.onnx"] = lambda handler, _: handler.reply(
            302, Location=f"{other.url.replace('127.0.0.1', 'localhost')}/net.onnx") or True
        served = self.start(f"{self.server.url}/net.onnx")
        self.ready(served)
        self.assertEqual(self.server.headers[0][2]["Authorization"], "Basic " + base64.b64encode(b"me:secret").decode())
        self.assertTrue(other.headers)
        self.assertFalse(any("Authorization" in headers for _, _, headers in other.headers))

    def test_urls_that_are_none(self):
        for url, reason in (("https://host", "expected https://HOST/PATH.onnx"), ("s3://", "expected a bucket's name"),
                            ("hf://only", "expected hf://"), ("http://u:p@h/x.onnx", "a password does not belong into a URL"),
                            ("https://h/x.onnx#md5=1", "only sha256="), ("s3://a b/c", "spaces or control characters")):
            done = subprocess.run([daemon.BINARY, "serve", url], capture_output=True, text=True, timeout=10)
            self.assertEqual(done.returncode, 2, url)
            self.assertIn(reason, done.stderr)

    def test_a_hub(self):
        whole = content(3)
        sha = hashlib.sha256(whole).hexdigest()
        files = [{"type": "file", "path": "onnx/model.onnx", "size": len(whole), "oid": "a1", "lfs": {"oid": sha, "size": len(whole)}},
                 {"type": "file", "path": "onnx/model.onnx_data", "size": 4, "oid": "a2"},
                 {"type": "file", "path": "onnx/model_int8.onnx", "size": len(whole), "oid": "a3"},
                 {"type": "directory", "path": "onnx"}, {"type": "file", "path": "README.md", "size": 1, "oid": "a4"},
                 {"type": "file", "path": "tokenizer.json", "size": 2, "oid": "a5"},
                 {"type": "file", "path": "1_Pooling/config.json", "size": 2, "oid": "a6"},
                 {"type": "file", "path": "openvino/tokenizer.json", "size": 2, "oid": "a7"},
                 {"type": "file", "path": "generation_config.json", "size": 2, "oid": "a8"}]
        page = {"/api/models/org/net/tree/c0ffee": files[:2], "/api/models/org/net/tree/c0ffee/2": files[2:]}

        def api(handler, path):
            if handler.headers.get("Authorization") != "Bearer hf_token":
                return handler.reply(401, b"no") or True
            if path.endswith("/revision/v1.0"):
                return handler.reply(200, json.dumps({"sha": "c0ffee"}).encode()) or True
            link = {"Link": f'<{handler.server.url}/api/models/org/net/tree/c0ffee/2>; rel="next"'} if not path.endswith("/2") else {}
            return handler.reply(200, json.dumps(page[path]).encode(), **link) or True

        self.server.answers["/api/"] = api
        self.server.objects["/org/net/resolve/c0ffee/onnx/model.onnx"] = whole
        self.server.objects["/org/net/resolve/c0ffee/onnx/model.onnx_data"] = b"data"
        self.server.objects["/org/net/resolve/c0ffee/onnx/model_int8.onnx"] = content(8)
        for path in ("tokenizer.json", "1_Pooling/config.json", "generation_config.json"):
            self.server.objects[f"/org/net/resolve/c0ffee/{path}"] = b"{}"
        hub = {"HF_ENDPOINT": self.server.url, "HF_TOKEN": "hf_token"}
        served = self.start("hf://org/net@v1.0", **hub)
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/net"), 3)
        self.assertEqual(sorted(path.name for path in self.cache.glob("*/models/net/1/*")), ["1_Pooling_config.json", "generation_config.json", "model.onnx", "model.onnx_data", "tokenizer.json"])
        served = self.start("hf://org/net@v1.0/onnx/model_int8.onnx", **hub)
        self.ready(served)
        self.assertEqual(self.answer(served, "/predict/model_int8"), 8)
        said = self.failure("hf://org/net@v1.0/none.onnx", **hub)
        self.assertIn("is none of the files: onnx/model.onnx, onnx/model_int8.onnx", said)
        self.assertIn("is not there, or needs a token: HF_TOKEN", self.failure("hf://org/net", HF_ENDPOINT=self.server.url))
        self.server.objects["/org/net/resolve/c0ffee/onnx/model.onnx"] = content(5)
        shutil.rmtree(self.cache)
        self.assertIn("its checksum is", self.failure("hf://org/net@v1.0", **hub))

    def test_google_cloud_storage(self):
        whole = content(3)
        items = [{"name": "prod/m/1/model.onnx", "size": str(len(whole)), "generation": "17",
                  "md5Hash": base64.b64encode(hashlib.md5(whole).digest()).decode()}]

        def listed(handler, path):
            if path != "/storage/v1/b/models/o":
                return False
            first = "pageToken" not in handler.query
            body = {"nextPageToken": "more"} if first else {"items": items}
            self.assertEqual(handler.query["prefix"], "prod")
            return handler.reply(200, json.dumps(body).encode()) or True

        self.server.answers["/storage/"] = listed
        self.server.objects["/storage/v1/b/models/o/prod/m/1/model.onnx"] = whole
        served = self.start("gs://models/prod", STORAGE_EMULATOR_HOST=self.server.url)
        self.ready(served)
        self.assertEqual(self.answer(served), 3)
        self.assertTrue(any("/o/prod%2Fm%2F1%2Fmodel.onnx?alt=media&generation=17" in path for _, path, _ in self.server.headers))
        items[0]["md5Hash"] = base64.b64encode(b"0" * 16).decode()
        shutil.rmtree(self.cache)
        self.assertIn("its checksum is", self.failure("gs://models/prod", STORAGE_EMULATOR_HOST=self.server.url))

    def azure(self):
        """A container of account `acc`, whose key is checked as Microsoft writes it down."""
        whole, key = content(3), b"the account's key"
        md5 = base64.b64encode(hashlib.md5(whole).digest()).decode()

        def signed(handler):
            path, _, query = handler.path.partition("?")
            parameters = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
            resource = f"/acc{path}" + "".join(f"\n{name}:{value}" for name, value in parameters)
            headers = "".join(f"{name.lower()}:{value}\n" for name, value in sorted(handler.headers.items()) if name.lower().startswith("x-ms-"))
            text = "\n".join(["GET", "", "", "", "", "", "", "", "", "", "", ""]) + "\n" + headers + resource
            signature = base64.b64encode(hmac.new(key, text.encode(), hashlib.sha256).digest()).decode()
            return handler.headers.get("Authorization") == f"SharedKey acc:{signature}"

        def blobs(handler, path):
            if handler.query.get("sig") != "sas" and not signed(handler):
                return handler.reply(403, b"<Error><Code>AuthenticationFailed</Code></Error>") or True
            if handler.query.get("comp") != "list":
                return False
            body = ("<?xml version='1.0'?><EnumerationResults><Blobs><Blob><Name>p/m/1/model.onnx</Name><Properties><Etag>0x1</Etag>"
                    f"<Content-Length>{len(whole)}</Content-Length><Content-MD5>{md5}</Content-MD5></Properties></Blob></Blobs>"
                    "<NextMarker/></EnumerationResults>")
            return handler.reply(200, body.encode()) or True

        self.server.answers["/models"] = blobs
        self.server.objects["/models/p/m/1/model.onnx"] = whole
        return {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_ENDPOINT": self.server.url}, base64.b64encode(key).decode()

    def test_azure_with_a_key(self):
        account, key = self.azure()
        self.server.break_after = 100  # a part is signed as well
        served = self.start("az://models/p", AZURE_STORAGE_KEY=key, **account)
        self.ready(served)
        self.assertEqual(self.answer(served), 3)
        self.assertIn("AuthenticationFailed", self.failure("az://models/other", AZURE_STORAGE_KEY="AAAA", **account))

    def test_azure_with_a_signature_or_a_connection_string(self):
        account, key = self.azure()
        served = self.start("az://models/p", AZURE_STORAGE_SAS_TOKEN="?sv=2021&sig=sas", **account)
        self.ready(served)
        shutil.rmtree(self.cache)
        served = self.start("az://models/p", AZURE_STORAGE_CONNECTION_STRING=(
            f"DefaultEndpointsProtocol=http;AccountName=acc;AccountKey={key};BlobEndpoint={self.server.url};"))
        self.ready(served)
        self.assertEqual(self.answer(served), 3)
        self.assertIn("needs AZURE_STORAGE_ACCOUNT", self.failure("az://models/other"))

    def test_names_that_lead_elsewhere_are_left_out(self):
        names = ("m/1/model.onnx", "../../../evil/1/model.onnx", "m/../1/model.onnx", "m/1/../../../x", "/abs/1/model.onnx",
                 "m/1/.hidden", "m/01/model.onnx", ".hidden/1/model.onnx", "m/1/sub/model.onnx", "m/1/a\\b", "m/1/\x07", "m/1/",
                 "m/latest/model.onnx", "x" * 129 + "/1/model.onnx", "m/1/" + "f" * 300)
        whole = content(3)
        body = "".join(f"<Contents><Key>{urllib.parse.quote(name, safe='')}</Key><ETag>\"t\"</ETag><Size>{len(whole)}</Size></Contents>"
                       for name in names)

        def bucket(handler, path):
            if handler.query.get("list-type"):
                return handler.reply(200, f"<ListBucketResult>{body}</ListBucketResult>".encode()) or True
            return handler.reply(200, whole) or True

        self.server.answers["/models"] = bucket
        served = self.start("s3://models", AWS_ENDPOINT_URL=self.server.url)
        self.ready(served)
        files = {str(path.relative_to(self.home)) for path in self.home.rglob("*") if path.is_file()}
        models = {name.partition("/models/")[2] for name in files} - {""}
        self.assertEqual(models, {"m/1/model.onnx"})
        self.assertTrue(all(name.startswith("cache/") for name in files), files)

    def test_lists_that_are_none(self):
        for body, reason in ((b"<a", "no XML"), (b"<a>" * 1_000_000, "no XML|there is nothing"), (b"{}", "no XML"),
                             (b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]><x>&b;</x>', "there is nothing|no XML")):
            self.server.answers["/models"] = lambda handler, _: handler.reply(200, body) or True
            self.assertRegex(self.failure("s3://models", AWS_ENDPOINT_URL=self.server.url), reason)


class Credentials(SourceCase):
    """Tokens that are asked for first: of the machine's services, a cluster's or an account's."""

    def setUp(self):
        super().setUp()
        self.server = ObjectServer()
        self.addCleanup(self.server.close)

    def serves(self, url, **environment):
        """A repository of one model `m` that answers 3 is served."""
        served = self.start(url, **environment)
        self.ready(served)
        self.assertEqual(self.answer(served), 3)

    def file(self, name, text):
        (self.home / name).write_text(text)
        return str(self.home / name)

    def answer_with(self, path, document, check):
        def answer(handler, _):
            check(handler)
            body = document if isinstance(document, bytes) else json.dumps(document).encode()
            return handler.reply(200, body) or True
        self.server.answers[path] = answer

    def bucket(self, token):
        """S3 of which requests are signed with that session's token."""
        body = f"<r><Contents><Key>m/1/model.onnx</Key><ETag>\"t\"</ETag><Size>{len(content(3))}</Size></Contents></r>".encode()

        def answer(handler, _):
            if handler.headers.get("x-amz-security-token") != token or "Credential=ASIA/" not in handler.headers["Authorization"]:
                return handler.reply(403) or True
            return handler.reply(200, body if handler.query.get("list-type") else content(3)) or True

        self.server.answers["/models"] = answer
        return {"AWS_ENDPOINT_URL": self.server.url}

    def test_amazon_web_identity(self):
        def check(handler):
            form = dict(urllib.parse.parse_qsl(handler.body.decode()))
            self.assertEqual((form["Action"], form["RoleArn"], form["WebIdentityToken"]),
                             ("AssumeRoleWithWebIdentity", "arn:aws:iam::1:role/r", "the cluster's"))

        self.answer_with("/sts", b"<R><Credentials><AccessKeyId>ASIA</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>web"
                         b"</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></R>", check)
        self.serves("s3://models", AWS_WEB_IDENTITY_TOKEN_FILE=self.file("token", "the cluster's\n"), AWS_ROLE_ARN="arn:aws:iam::1:role/r",
                    AWS_ENDPOINT_URL_STS=self.server.url + "/sts", **self.bucket("web"))

    def test_amazon_container(self):
        self.answer_with("/creds", {"AccessKeyId": "ASIA", "SecretAccessKey": "s", "Token": "pod"},
                         lambda handler: self.assertEqual(handler.headers["Authorization"], "the pod's"))
        self.serves("s3://models", AWS_CONTAINER_CREDENTIALS_FULL_URI=self.server.url + "/creds",
                    AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=self.file("token", "the pod's"), **self.bucket("pod"))

    def test_amazon_machine(self):
        def check(handler):
            self.assertEqual(handler.headers["X-aws-ec2-metadata-token"], "session")

        roles = "/latest/meta-data/iam/security-credentials/"
        self.answer_with(roles + "role", {"AccessKeyId": "ASIA", "SecretAccessKey": "s", "Token": "machine"}, check)
        self.answer_with(roles, b"role", check)
        self.answer_with("/latest/api/token", b"session", lambda handler: self.assertEqual(handler.command, "PUT"))
        self.serves("s3://models", AWS_EC2_METADATA_DISABLED="", AWS_EC2_METADATA_SERVICE_ENDPOINT=self.server.url, **self.bucket("machine"))

    def google(self, token):
        items = [{"name": "m/1/model.onnx", "size": str(len(content(3))), "generation": "1"}]

        def answer(handler, path):
            if handler.headers.get("Authorization") != f"Bearer {token}":
                return handler.reply(403) or True
            return handler.reply(200, json.dumps({"items": items}).encode() if path.endswith("/o") else content(3)) or True

        self.server.answers["/storage/"] = answer
        return {"CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": self.server.url + "/"}

    def test_google_service_account(self):
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()

        def decoded(text):
            return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))

        def check(handler):
            form = dict(urllib.parse.parse_qsl(handler.body.decode()))
            self.assertEqual(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer")
            header, claim, signature = form["assertion"].split(".")
            key.public_key().verify(decoded(signature), f"{header}.{claim}".encode(), padding.PKCS1v15(), hashes.SHA256())
            said = json.loads(decoded(claim))
            self.assertEqual((said["iss"], said["aud"]), ("me@project", self.server.url + "/token"))

        self.answer_with("/token", {"access_token": "jwt", "expires_in": 3600}, check)
        account = {"type": "service_account", "client_email": "me@project", "private_key": pem, "token_uri": self.server.url + "/token"}
        self.serves("gs://models", GOOGLE_APPLICATION_CREDENTIALS=self.file("key.json", json.dumps(account)), **self.google("jwt"))

    def test_google_user(self):
        def check(handler):
            form = dict(urllib.parse.parse_qsl(handler.body.decode()))
            self.assertEqual((form["grant_type"], form["refresh_token"]), ("refresh_token", "r"))

        self.answer_with("/token", {"access_token": "user", "expires_in": 3600}, check)
        (self.home / ".config" / "gcloud").mkdir(parents=True)
        self.file(".config/gcloud/application_default_credentials.json", json.dumps(
            {"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": self.server.url + "/token"}))
        self.serves("gs://models", **self.google("user"))

    def test_google_machine(self):
        self.answer_with("/computeMetadata/", {"access_token": "machine", "expires_in": 3600},
                         lambda handler: self.assertEqual(handler.headers["Metadata-Flavor"], "Google"))
        self.serves("gs://models", GCE_METADATA_HOST=self.server.url.removeprefix("http://"), **self.google("machine"))
        said = self.failure("gs://other", **self.google("another"))
        self.assertIn("needs credentials: GOOGLE_APPLICATION_CREDENTIALS", said)

    def azure(self, token):
        body = (f"<E><Blobs><Blob><Name>m/1/model.onnx</Name><Etag>1</Etag><Content-Length>{len(content(3))}</Content-Length></Blob></Blobs>"
                "<NextMarker/></E>").encode()

        def answer(handler, _):
            if handler.headers.get("Authorization") != f"Bearer {token}":
                return handler.reply(403) or True
            return handler.reply(200, body if handler.query.get("comp") else content(3)) or True

        self.server.answers["/models"] = answer
        return {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_ENDPOINT": self.server.url}

    def test_azure_workload_identity(self):
        def check(handler):
            form = dict(urllib.parse.parse_qsl(handler.body.decode()))
            self.assertEqual((form["client_id"], form["client_assertion"], form["scope"]), ("c", "federated", "https://storage.azure.com/.default"))

        self.answer_with("/tenant/oauth2/v2.0/token", {"access_token": "workload", "expires_in": 3600}, check)
        self.serves("az://models", AZURE_FEDERATED_TOKEN_FILE=self.file("token", "federated"), AZURE_CLIENT_ID="c", AZURE_TENANT_ID="tenant",
                    AZURE_AUTHORITY_HOST=self.server.url, **self.azure("workload"))

    def test_azure_machine(self):
        self.answer_with("/metadata/identity/oauth2/token", {"access_token": "machine", "expires_in": "3600"},
                         lambda handler: self.assertEqual(handler.headers["Metadata"], "true"))
        self.serves("az://models", AZURE_POD_IDENTITY_AUTHORITY_HOST=self.server.url, **self.azure("machine"))


class LocalMlflow(RepositoryCase):
    def test_a_folder_that_mlflow_saved_is_a_model(self):
        (self.folder / "m" / "1" / "model.onnx").rename(self.folder / "m" / "net.onnx")
        (self.folder / "m" / "1").rmdir()
        (self.folder / "m" / "MLmodel").write_text("flavors:\n  onnx:\n    data: net.onnx\n")
        self.assertEqual(self.answer(self.serve(self.folder / "m")), 1)
        served = self.serve(self.folder / "m", "--model-name", "mine")
        self.assertEqual(self.answer(served, "/predict/mine"), 1)


if __name__ == "__main__":
    unittest.main()

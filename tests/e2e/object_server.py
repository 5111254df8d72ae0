"""A web server of objects, with ranges and tags, that tests break on purpose."""

import collections
import hashlib
import http.server
import threading
import urllib.parse


class ObjectServer(http.server.ThreadingHTTPServer):
    """`objects` by path; `answers` by path are called with the handler instead, and say whether they did."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects, self.answers = {}, {}
        self.read = collections.Counter()  # whole or partial reads, by path
        self.sent = collections.Counter()  # bytes, by path
        self.headers = []
        self.break_after = None  # bytes of an object, then the connection ends
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            pass

    def reply(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        server, path = self.server, urllib.parse.unquote(self.path.partition("?")[0])
        self.query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))
        with server.lock:
            server.headers.append((self.command, self.path, dict(self.headers)))
        length = int(self.headers.get("Content-Length", 0))
        self.body = self.rfile.read(length)
        for prefix, answer in server.answers.items():
            if path.startswith(prefix) and answer(self, path):
                return
        if path not in server.objects:
            return self.reply(404, b"no such object")
        self.object(server.objects[path], path)

    do_HEAD = do_POST = do_PUT = do_GET

    def object(self, content, path):
        tag = '"%s"' % hashlib.md5(content).hexdigest()
        if self.command == "HEAD":
            self.send_response(200)
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content)))
            return self.end_headers()
        ranged, begin = self.headers.get("Range") or self.headers.get("x-ms-range"), 0
        if ranged:
            begin = int(ranged.removeprefix("bytes=").rstrip("-"))
        with self.server.lock:
            self.server.read[path] += 1
        if begin >= len(content) and begin:
            return self.reply(416)
        self.send_response(206 if begin else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(len(content) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        part = content[begin:]
        if self.server.break_after is not None:
            part = part[:self.server.break_after]
            self.close_connection = True
        with self.server.lock:
            self.server.sent[path] += len(part)
        self.wfile.write(part)

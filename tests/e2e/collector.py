"""A collector of OTLP over HTTP in JSON, which takes only what the protocol's own schema accepts."""

import base64
import http.server
import json
import threading
import time

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

IDS = ("traceId", "spanId", "parentSpanId")


def parse(body):
    """JSON to the schema's message. OTLP writes ids in hexadecimal, where JSON of protobuf has base64."""
    document = json.loads(body)
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for key in IDS:
                    if key in span:
                        span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return json_format.ParseDict(document, ExportTraceServiceRequest())


class Collector:
    """`spans` as they came, with `headers` and `resource` of the last message."""

    def __init__(self, status=200):
        self.spans, self.headers, self.paths, self.errors, self.resource = [], {}, set(), [], {}
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.headers = {name.lower(): value for name, value in self.headers.items()}
                collector.paths.add(self.path)
                if status == 200:
                    try:
                        collector.take(parse(body))
                    except Exception as error:  # noqa: BLE001: whatever it is, the test shows it
                        collector.errors.append(error)
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, message):
        for resource in message.resource_spans:
            self.resource = {a.key: a.value.string_value for a in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def of_trace(self, trace_id, least, timeout=10):
        """The spans of a trace, by name, once there are so many."""
        deadline = time.time() + timeout
        while True:
            found = {span.name: span for span in list(self.spans) if span.trace_id.hex() == trace_id}
            if self.errors:
                raise self.errors[0]
            if len(found) >= least or time.time() > deadline:
                return found
            time.sleep(0.02)

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def attributes(span):
    return {a.key: a.value.int_value if a.value.HasField("int_value") else a.value.string_value
            for a in span.attributes}

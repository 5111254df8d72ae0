"""What answers tell load balancers (ORCA)."""

import base64
import json
import unittest
import urllib.request

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tritonclient.grpc import service_pb2

import daemon
from http2_client import Http2Client

BODY = json.dumps({"input": [[5.1, 3.5, 1.4, 0.2]]}).encode()
SERVICE = "/inference.GRPCInferenceService"
TOLD, TOLD_BINARY = "endpoint-load-metrics", "endpoint-load-metrics-bin"
# Of xds.data.orca.v3.OrcaLoadReport, as https://github.com/cncf/xds has it.
NUMBERS = {"cpu_utilization": 1, "mem_utilization": 2, "rps_fractional": 6, "eps": 7, "application_utilization": 9}


def orca_load_report():
    """The message's class, of these numbers; its package generates other projects' classes, too, and hides theirs."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="orca.proto", package="orca", syntax="proto3")
    message = file.message_type.add(name="OrcaLoadReport")
    for name, number in NUMBERS.items():
        message.field.add(name=name, number=number, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    entry = message.nested_type.add(name="NamedMetricsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=field.TYPE_DOUBLE, label=field.LABEL_OPTIONAL)
    message.field.add(name="named_metrics", number=8, type=field.TYPE_MESSAGE, label=field.LABEL_REPEATED,
                      type_name=".orca.OrcaLoadReport.NamedMetricsEntry")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("orca.OrcaLoadReport"))


OrcaLoadReport = orca_load_report()


class LoadReport(unittest.TestCase):
    def serve(self, mode=None):
        running = daemon.Daemon(daemon.MODELS, environment={"ONNXD_SERVER_LOAD_REPORT": mode} if mode else {})
        self.addCleanup(running.close)
        return running

    def rest(self, served, **headers):
        request = urllib.request.Request(
            served.url + "/predict/iris_forest", BODY, {name.replace("_", "-"): value for name, value in headers.items()})
        with urllib.request.urlopen(request, timeout=20) as answer:
            answer.read()
            return answer.headers

    def asked(self, served, how):
        return self.rest(served, endpoint_load_metrics_format=how)

    def trailers(self, served, **metadata):
        """Of a call; gRPC's own clients keep the message for their load balancer."""
        with Http2Client(served.grpc_port) as client:
            return client.unary(f"{SERVICE}/ModelInfer", self.message(), **metadata).trailers

    def message(self):
        message = service_pb2.ModelInferRequest(model_name="iris_forest")
        entry = message.inputs.add(name="measurements", datatype="FP32", shape=[1, 4])
        entry.contents.fp32_contents.extend([5.1, 3.5, 1.4, 0.2])
        return message.SerializeToString()

    def binary(self, headers):
        return OrcaLoadReport.FromString(base64.b64decode(headers[TOLD_BINARY]))

    def check(self, report):
        self.assertGreaterEqual(report.cpu_utilization, 0)
        self.assertGreater(report.mem_utilization, 0)
        self.assertLess(report.mem_utilization, 1)
        self.assertGreaterEqual(report.application_utilization, 0)
        self.assertEqual(report.eps, 0)
        self.assertEqual(list(report.named_metrics), ["queued_requests"])

    def test_is_told_to_those_who_ask_in_the_form_they_ask_for(self):
        served = self.serve()
        json_text = self.asked(served, "json")[TOLD]
        self.assertTrue(json_text.startswith("JSON "))
        fields = json.loads(json_text.removeprefix("JSON "))
        text = self.asked(served, "TEXT")[TOLD]
        self.assertTrue(text.startswith("TEXT "))
        pairs = dict(field.split("=") for field in text.removeprefix("TEXT ").split(", "))
        self.assertEqual(set(pairs), {"named_metrics.queued_requests"} | set(fields) - {"named_metrics"})
        self.check(self.binary(self.asked(served, "bin")))
        self.check(self.binary(self.trailers(served, endpoint_load_metrics_format="bin")))
        self.assertTrue(self.trailers(served, endpoint_load_metrics_format="json")[TOLD].startswith("JSON {"))

    def test_is_not_told_to_those_who_do_not_ask(self):
        served = self.serve()
        for headers in (self.rest(served), self.asked(served, "xml"), self.trailers(served)):
            self.assertNotIn(TOLD, headers)
            self.assertNotIn(TOLD_BINARY, headers)

    def test_is_always_told_where_that_is_configured_and_never_where_it_is_off(self):
        served = self.serve("always")
        self.assertTrue(self.rest(served)[TOLD].startswith("TEXT "))
        self.check(self.binary(self.trailers(served)))
        silent = self.serve("off")
        self.assertNotIn(TOLD, self.asked(silent, "json"))
        self.assertNotIn(TOLD, self.trailers(silent, endpoint_load_metrics_format="json"))

    def test_counts_what_was_answered_and_what_the_server_computed(self):
        served = self.serve()
        last = None
        for _ in range(2000):
            last = self.binary(self.asked(served, "bin"))
            if last.rps_fractional > 20 and last.cpu_utilization > 0:
                return
        self.fail(last)

    def test_of_a_stream_is_in_its_trailers(self):
        with Http2Client(self.serve().grpc_port) as client:
            stream = client.open(f"{SERVICE}/ModelStreamInfer", endpoint_load_metrics_format="bin")
            client.send(stream, self.message(), end=True)
            self.check(self.binary(client.finish(stream).trailers))


if __name__ == "__main__":
    unittest.main()

"""Clients that hold connections, dawdle or take no answer meet the stated limits."""

import http.client
import json
import socket
import time
import unittest

import grpc
from onnx import TensorProto, helper

import daemon
import protos


SERVICE = "inference.GRPCInferenceService"
REQUEST = protos.message("inference.ServerLiveRequest")


def expander():
    """A model whose answer is as long as the request asks."""
    graph = helper.make_graph(
        [helper.make_node("Expand", ["x", "shape"], ["y"])], "expander",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1]),
         helper.make_tensor_value_info("shape", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def connect(server, receive_buffer=None, source="127.0.0.1"):
    client = socket.socket()
    client.bind((source, 0))
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(10)
    client.connect(("127.0.0.1", server.http_port))
    return client


def request(client, path="/health/live"):
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    return client.recv(65536)


def closed(client):
    """Whether the server closed the connection; waits for it."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


class Deadlines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.repository = daemon.repository(expander=expander())
        folder = cls.repository.__enter__()
        cls.server = daemon.Daemon(folder, environment={
            "ONNXD_LIMITS_HEADER_TIMEOUT_S": "1", "ONNXD_LIMITS_IDLE_TIMEOUT_S": "1",
            "ONNXD_LIMITS_WRITE_TIMEOUT_S": "1"})

    @classmethod
    def tearDownClass(cls):
        cls.server.close()
        cls.repository.__exit__(None, None, None)

    def test_a_header_that_does_not_end_is_answered_408(self):
        with connect(self.server) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n")
            begin = time.monotonic()
            answer = client.recv(65536)
            self.assertIn(b" 408 ", answer.split(b"\r\n")[0])
            self.assertGreater(time.monotonic() - begin, 0.5)
            self.assertTrue(closed(client))

    def test_dripping_bytes_do_not_extend_the_deadline(self):
        with connect(self.server) as client:
            client.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\nX: ")
            begin = time.monotonic()
            try:
                while time.monotonic() - begin < 8:
                    client.sendall(b"a")
                    time.sleep(0.1)
            except ConnectionError:
                pass
            self.assertLess(time.monotonic() - begin, 7)

    def test_an_idle_connection_is_closed(self):
        with connect(self.server) as client:
            self.assertIn(b"200", request(client))
            self.assertTrue(closed(client))

    def test_a_client_that_takes_no_byte_is_dropped(self):
        body = json.dumps({"inputs": [
            {"name": "x", "datatype": "FP32", "shape": [1], "data": [0.5]},
            {"name": "shape", "datatype": "INT64", "shape": [1], "data": [8_000_000]}]}).encode()
        with connect(self.server, receive_buffer=4096) as client:
            client.sendall(b"POST /v2/models/expander/infer HTTP/1.1\r\nHost: h\r\nContent-Length: "
                           + str(len(body)).encode() + b"\r\n\r\n" + body)
            time.sleep(4)
            received = 0
            try:
                while chunk := client.recv(1 << 20):
                    received += len(chunk)
            except ConnectionError:
                pass
            self.assertLess(received, 8_000_000 * 3)
        with connect(self.server) as client:
            self.assertIn(b"200", request(client))


class ConnectionLimit(unittest.TestCase):
    def test_the_longest_idle_connection_makes_room(self):
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_CONNECTIONS": "3", "ONNXD_LIMITS_CONNECTIONS_PER_CLIENT": "3"}) as server:
            clients = [connect(server) for _ in range(3)]
            for index in (1, 0, 2):  # client 1 has been idle for longest
                self.assertIn(b"200", request(clients[index]))
                time.sleep(0.05)
            with connect(server, source="127.0.0.2") as newcomer:
                self.assertIn(b"200", request(newcomer))
                self.assertTrue(closed(clients[1]))
                self.assertIn(b"200", request(clients[0]))
                self.assertIn(b"200", request(clients[2]))
            for client in clients:
                client.close()

    def test_one_client_does_not_take_all(self):
        # By default half of them; then the client with most gives way.
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_CONNECTIONS": "6"}) as server:
            def use(client):
                self.assertIn(b"200", request(client))
                time.sleep(0.05)  # the order in which they became idle is that of these calls

            own = [connect(server) for _ in range(3)]
            for client in own:
                use(client)
            own.append(connect(server))  # in the place of its own longest idle one
            use(own[-1])
            self.assertTrue(closed(own.pop(0)))
            others = [connect(server, source=f"127.0.0.{i}") for i in (2, 3, 4)]
            for client in others:
                use(client)
            with connect(server, source="127.0.0.5") as newcomer:
                use(newcomer)
                self.assertTrue(closed(own.pop(0)))
                for client in (*own, *others):
                    use(client)
            for client in (*own, *others):
                client.close()

    def test_proxies_have_any_number(self):
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_CONNECTIONS_PER_CLIENT": "1",
                                                       "ONNXD_SERVER_TRUSTED_PROXIES": "127.0.0.2"}) as server:
            proxied = [connect(server, source="127.0.0.2") for _ in range(5)]
            for client in proxied:
                self.assertIn(b"200", request(client))
            with connect(server) as direct:
                self.assertIn(b"200", request(direct))
                time.sleep(0.05)
                with connect(server) as second:
                    self.assertIn(b"200", request(second))
                    self.assertTrue(closed(direct))
            body = b"{"
            for source, forwarded, name in (("127.0.0.2", "192.0.2.1, 198.51.100.7", "198.51.100.7"),
                                            ("127.0.0.3", "198.51.100.8", "127.0.0.3")):
                with connect(server, source=source) as client:
                    client.sendall(b"POST /predict HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: " + forwarded.encode()
                                   + b"\r\nX-Request-Id: by-" + source.encode() + b"\r\nContent-Length: 1\r\n\r\n" + body)
                    self.assertIn(b"400", client.recv(65536))
                self.assertTrue(server.logged(f"request by-{source} of {name}:"), server.stderr_lines)
            for client in proxied:
                client.close()

    def test_busy_connections_are_left_alone(self):
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_CONNECTIONS": "2", "ONNXD_LIMITS_CONNECTIONS_PER_CLIENT": "2"}) as server:
            clients = [connect(server) for _ in range(2)]
            for client in clients:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: h\r\n")  # a request has begun
            time.sleep(0.3)
            with connect(server) as newcomer:
                self.assertTrue(closed(newcomer))
            for client in clients:
                client.sendall(b"\r\n")
                self.assertIn(b"HTTP/1.1", client.recv(65536))
                client.close()

    def test_grpc_refuses_the_new_connection(self):
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_CONNECTIONS": "1"}) as server:
            target = f"127.0.0.1:{server.grpc_port}"
            with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as first:
                live = protos.unary(first, SERVICE, "ServerLive")
                self.assertTrue(live(REQUEST(), timeout=5).live)
                with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as second:
                    other = protos.unary(second, SERVICE, "ServerLive")
                    with self.assertRaises(grpc.RpcError):
                        other(REQUEST(), timeout=2)
                self.assertTrue(live(REQUEST(), timeout=5).live)


class ConnectionAge(unittest.TestCase):
    def test_a_connection_of_some_age_is_told_to_close_with_an_answer(self):
        with daemon.Daemon(daemon.MODELS, environment={"ONNXD_LIMITS_CONNECTION_AGE_S": "1"}) as served:
            connection = http.client.HTTPConnection("127.0.0.1", served.http_port, timeout=20)
            begin = time.monotonic()
            while True:
                connection.request("GET", "/health/live")
                answer = connection.getresponse()
                answer.read()
                self.assertEqual(answer.status, 200)
                if answer.getheader("Connection") == "close":
                    break
                self.assertLess(time.monotonic() - begin, 10)
                time.sleep(0.02)
            connection.close()
        self.assertGreater(time.monotonic() - begin, 0.85)


if __name__ == "__main__":
    unittest.main()

"""gRPC calls over an HTTP/2 stack of its own: h2, in Python, which shares no code with gRPC's or the server's."""

import itertools
import socket
import struct

import h2.config
import h2.connection
import h2.events


class Call:
    def __init__(self):
        self.headers, self.trailers = {}, {}
        self.body = b""
        self.over = False
        self.reset = None

    def messages(self):
        found, rest = [], self.body
        while rest:
            compressed, size = struct.unpack(">BI", rest[:5])
            assert not compressed
            found.append(rest[5:5 + size])
            rest = rest[5 + size:]
        return found


class Http2Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.connection.initiate_connection()
        self.calls, self.pongs, self.goaway, self.unread = {}, 0, None, b""
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def flush(self):
        self.socket.sendall(self.connection.data_to_send())

    def open(self, path, **metadata):
        """The identifier of a new call."""
        identifier = self.connection.get_next_available_stream_id()
        headers = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
                   ("content-type", "application/grpc"), ("te", "trailers"),
                   *((name.replace("_", "-"), value) for name, value in metadata.items())]
        self.connection.send_headers(identifier, headers)
        self.calls[identifier] = Call()
        return identifier

    def send(self, identifier, message, end=False):
        data = struct.pack(">BI", 0, len(message)) + message
        while data:
            room = min(self.connection.local_flow_control_window(identifier), self.connection.max_outbound_frame_size)
            if room == 0:
                self.flush()
                self.read()
                continue
            self.connection.send_data(identifier, data[:room])
            data = data[room:]
            self.flush()
        if end:
            self.connection.end_stream(identifier)
            self.flush()

    def frames(self, data):
        """Those that are whole by now."""
        self.unread += data
        while len(self.unread) >= 9 and len(self.unread) >= (size := 9 + int.from_bytes(self.unread[:3], "big")):
            yield self.unread[:size]
            self.unread = self.unread[size:]

    def receive(self, frame):
        events = self.connection.receive_data(frame)
        # After GOAWAY h2 would neither read on nor write; what is under way goes on.
        self.connection.state_machine.state = h2.connection.ConnectionState.CLIENT_OPEN
        return events

    def read(self):
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("closed by the server")
        for event in itertools.chain.from_iterable(map(self.receive, self.frames(data))):
            if isinstance(event, h2.events.PingAckReceived):
                self.pongs += 1
            if isinstance(event, h2.events.ConnectionTerminated):
                self.goaway, self.last_stream = event.error_code, event.last_stream_id
            call = self.calls.get(getattr(event, "stream_id", None))
            if call is None:
                continue
            if isinstance(event, h2.events.ResponseReceived):
                call.headers = dict(event.headers)
            elif isinstance(event, h2.events.TrailersReceived):
                call.trailers = dict(event.headers)
            elif isinstance(event, h2.events.DataReceived):
                call.body += event.data
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamReset):
                call.reset = event.error_code
                call.over = True
            elif isinstance(event, h2.events.StreamEnded):
                call.over = True
        self.flush()

    def rest(self):
        """What comes until the server closes."""
        received = b""
        while data := self.socket.recv(65536):
            received += data
        return received

    def finish(self, identifier):
        call = self.calls[identifier]
        while not call.over:
            self.read()
        return call

    def unary(self, path, message, **metadata):
        identifier = self.open(path, **metadata)
        self.send(identifier, message, end=True)
        return self.finish(identifier)

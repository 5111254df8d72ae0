"""Python messages and stubs of this project's .proto files, generated into a temporary folder."""

import atexit
import shutil
import subprocess
import tempfile

import daemon

_folder = tempfile.mkdtemp(prefix="onnxd_protos_")
atexit.register(shutil.rmtree, _folder, True)
subprocess.run(
    ["protoc", f"--proto_path={daemon.ROOT / 'proto'}", f"--descriptor_set_out={_folder}/set.pb",
     "--include_imports", "onnxd.proto", "open_inference.proto", "health.proto"],
    check=True,
)

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: E402

with open(f"{_folder}/set.pb", "rb") as file:
    _set = descriptor_pb2.FileDescriptorSet.FromString(file.read())
_pool = descriptor_pool.DescriptorPool()
for _file in _set.file:
    _pool.Add(_file)


def message(name):
    """The message class of a full name, for example onnxd.v1.PredictRequest."""
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


def service(name):
    """The descriptor of a service."""
    return _pool.FindServiceByName(name)


def unary(channel, service, method):
    """A callable for one unary method, as a generated stub has it."""
    descriptor = _pool.FindServiceByName(service).FindMethodByName(method)
    return channel.unary_unary(
        f"/{service}/{method}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=message(descriptor.output_type.full_name).FromString,
    )

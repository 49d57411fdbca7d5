"""Descriptors of the gRPC binding of A2A: copies of what the official SDK has, without the options.

`python -m tests.protobuf` writes the copies, with `google.rpc.Status` and the details of errors. The options need
`google/api`, and say nothing about messages. They tell how HTTP paths belong to methods.
"""

import subprocess
from pathlib import Path
from typing import Final

from tests.interop.peers import peer_python

_ROOT: Final = Path(__file__).parents[1]
COPIES: Final = (
    _ROOT / "adapters" / "a2a" / "wire" / "a2a.binpb",
    _ROOT / "conformance" / "schemas" / "a2a-1.0.binpb",
)
"""Files with the descriptors: one of the gateway, and one of the check, which share no files."""
PEER: Final = "a2a-grpc"
_PROGRAM: Final = """
import sys
from a2a.types import a2a_pb2
from google.protobuf import descriptor_pb2
from google.rpc import error_details_pb2, status_pb2

def strip(message):
    options = getattr(message, "options", None)
    is_map = getattr(options, "map_entry", False)
    message.ClearField("options")
    if is_map:
        message.options.map_entry = True
    for field, value in message.ListFields():
        if field.name != "options" and field.message_type is not None:
            for each in value if hasattr(value, "extend") else (value,):
                strip(each)

files = descriptor_pb2.FileDescriptorSet()
for module in (status_pb2, error_details_pb2, a2a_pb2):
    file = files.file.add()
    file.ParseFromString(module.DESCRIPTOR.serialized_pb)
    needed = [name for name in file.dependency if not name.startswith("google/api/")]
    del file.dependency[:]
    file.dependency.extend(needed)
    strip(file)
sys.stdout.buffer.write(files.SerializeToString(deterministic=True))
"""


def read_published() -> bytes:
    """Return the descriptors of the official SDK, as the copies should have them."""
    command = (str(peer_python(PEER)), "-c", _PROGRAM)
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


if __name__ == "__main__":
    published = read_published()
    for copy in COPIES:
        copy.write_bytes(published)

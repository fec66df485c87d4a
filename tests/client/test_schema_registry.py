"""The examples of docs/schema-registry.md, with the registry of confluent-kafka's own tests.

`tests/interop/test_schema_registry.py` runs them with a real registry.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "schema-registry.md"
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = dict(
    zip(("avro", "json", "protobuf", "spark"), EXAMPLE.findall(PAGE.read_text()), strict=True)
)

#: What `protoc` generates from the page's flight.proto.
FLIGHT_PB2 = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

file = descriptor_pb2.FileDescriptorProto(name="flight.proto", syntax="proto3")
message = file.message_type.add(name="Flight")
message.field.add(name="number", number=1, type=9, label=1)
message.field.add(name="delay", number=2, type=5, label=1)
pool = descriptor_pool.Default()
pool.Add(file)
Flight = message_factory.GetMessageClass(pool.FindMessageTypeByName("Flight"))
"""


def run(code: str, folder: Path, servers: str, registry: tuple[str, str]) -> str:
    """Run an example; return its output."""
    (folder / "flight_pb2.py").write_text(FLIGHT_PB2)
    path = folder / "example.py"
    path.write_text(code.replace("127.0.0.1:9092", servers).replace(*registry))
    ended = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("kind", ["avro", "json", "protobuf"])
def test_example_prints_expected_output(partage_broker, tmp_path, kind):
    code, output = EXAMPLES[kind]
    mock = (
        'SchemaRegistryClient({"url": "http://127.0.0.1:8081", "timeout": 5})',
        'new("mock://")',
    )
    new = 'new = lambda url: SchemaRegistryClient.new_client({"url": url})\nregistry ='
    code = code.replace("registry =", new, 1)
    assert run(code, tmp_path, partage_broker.bootstrap_servers, mock) == output

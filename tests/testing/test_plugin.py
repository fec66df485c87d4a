"""The fixtures of the pytest plugin."""

import gc
import os
import subprocess
import sys
import weakref

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient


def test_broker_serves_produce_and_consume(partage_broker):
    servers = {"bootstrap.servers": partage_broker.bootstrap_servers}
    producer = Producer(servers)
    producer.produce("greetings", b"hello")
    assert producer.flush(10) == 0
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["greetings"])
    (message,) = consumer.consume(1, timeout=30)
    assert message.value() == b"hello"
    consumer.close()


@pytest.mark.parametrize("turn", [1, 2])
def test_broker_is_empty_in_each_test(partage_broker, turn):
    servers = {"bootstrap.servers": partage_broker.bootstrap_servers}
    producer = Producer(servers)
    topics = AdminClient(servers).list_topics(timeout=30).topics
    assert set(topics) == {"__consumer_offsets"}
    producer.produce("something", b"")
    assert producer.flush(10) == 0


@pytest.fixture
def references():
    """Check that the referenced brokers no longer exist after the end of their fixtures."""
    references = []
    yield references
    gc.collect()
    assert [found for reference in references if (found := reference()) is not None] == []


def test_broker_and_its_records_are_freed_after_the_test(references, request):
    broker = request.getfixturevalue("partage_broker")  # an argument would live longer
    references += [weakref.ref(broker), weakref.ref(broker.broker)]


@pytest.mark.partage_broker({"auto.create.topics.enable": "false"})
def test_marker_sets_broker_settings(partage_broker):
    servers = {"bootstrap.servers": partage_broker.bootstrap_servers}
    topics = AdminClient(servers).list_topics("nothing", timeout=30).topics
    assert topics["nothing"].error.str() == "Broker: Unknown topic or partition"


def test_create_topic(partage_broker):
    partage_broker.create_topic("t", partitions=3)
    servers = {"bootstrap.servers": partage_broker.bootstrap_servers}
    assert len(AdminClient(servers).list_topics(timeout=30).topics["t"].partitions) == 3
    with pytest.raises(ValueError, match="topic 't' was not created: "):
        partage_broker.create_topic("t")


def test_broker_process_survives_kill(partage_broker_process):
    broker = partage_broker_process
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer(servers)
    producer.produce("t", b"kept")
    assert producer.flush(10) == 0
    broker.kill()
    broker.start()
    assert servers["bootstrap.servers"] == broker.bootstrap_servers
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    (message,) = consumer.consume(1, timeout=30)
    assert message.value() == b"kept"
    consumer.close()
    assert broker.stop() == 0
    broker.start()


@pytest.mark.parametrize("autoload", [True, False])
def test_plugin_named_on_command_line_is_loaded_once(tmp_path, autoload):
    (tmp_path / "test_it.py").write_text(
        "def test_it(partage_broker):\n    assert partage_broker.bootstrap_servers\n"
    )
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "" if autoload else "1"}
    options = ["-c", os.devnull, "--rootdir", ".", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, "-p", "partage.testing.plugin"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout

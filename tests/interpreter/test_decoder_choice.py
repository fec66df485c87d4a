"""Choice between the compiled and the pure Python record decoder, in separate interpreters."""

from __future__ import annotations

import os
import subprocess
import sys

from partage.wire.records.decoder import DECODER


def test_compiled_decoder_is_preferred() -> None:
    """In separate processes, because the choice is made at import."""
    script = "from partage.wire.records.decoder import DECODER; print(DECODER)"

    def chosen(wanted: str | None) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if name != "PARTAGE_DECODER"}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        if wanted is not None:
            env["PARTAGE_DECODER"] = wanted
        return subprocess.run(
            [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=60
        )

    assert chosen("plain").stdout.strip() == "plain"
    assert "is not a decoder" in chosen("fast").stderr
    free, native = chosen(None), chosen("native")
    if native.returncode == 0:
        assert free.stdout.strip() == native.stdout.strip() == "native"
    else:
        assert free.stdout.strip() == "plain"
        assert "_native" in native.stderr
    assert DECODER in ("native", "plain")

"""Commands against a cluster that speaks TLS."""

from __future__ import annotations

from pathlib import Path

import trustme
from click.testing import CliRunner

from roquet.cli.main import roquet
from roquet.testing.background import background_broker


def test_a_cluster_that_speaks_tls(tmp_path: Path) -> None:
    ca = trustme.CA(key_type=trustme.KeyType.ECDSA)
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued = ca.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / "key.pem")
    options = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": tmp_path / "key.pem",
        "tls.server.keyPath": tmp_path / "key.pem",
    }
    with background_broker(options) as running:
        flags = ("-n", running.namesrv, "--tls-ca", str(tmp_path / "ca.pem"))
        assert CliRunner().invoke(roquet, ["context", "add", "safe", *flags]).exit_code == 0

        def exit_code(*flags: str) -> int:
            command = ["topic", "create", f"Safe-{len(flags)}", *flags]
            return CliRunner().invoke(roquet, command).exit_code

        assert exit_code() == 0
        assert exit_code("-n", running.namesrv, "--tls-no-verify") == 0
        assert exit_code("-n", running.namesrv, "--tls") == 3
        assert exit_code("-n", running.namesrv) == 3

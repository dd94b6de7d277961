"""The digests of the golden files."""

from __future__ import annotations

from pathlib import Path


def read_manifest(golden_data: Path) -> dict[str, str]:
    digests: dict[str, str] = {}
    for line in (golden_data / "MANIFEST.sha256").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            digest, name = line.split("  ", maxsplit=1)
            digests[name] = digest
    return digests

"""A real S3 server on loopback: Versity's gateway, which keeps objects in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow.fs as pafs

from tests.interop import gobuild
from tests.interop.process import ChildProcess, ProcessError, find_free_port

PACKAGE, VERSION = "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"
ACCESS, SECRET, REGION = "roquet", "roquet-secret", "us-east-1"
BUCKET = "lake"
START_TIMEOUT_S = 30
_LOOK_S = 0.05


@dataclass(frozen=True)
class Gateway:
    """A gateway that runs.

    Attributes:
        address: Where it is reached, ``host:port``.
        folder: The folder of its buckets.
    """

    address: str
    folder: Path

    def uri(self, path: str, *, address: str | None = None, bucket: str = BUCKET) -> str:
        """The URI of a path below the bucket, as ``--lake`` takes it."""
        endpoint = f"endpoint_override={address or self.address}&scheme=http&region={REGION}"
        return f"s3://{bucket}/{path}?{endpoint}"

    def objects(self, path: str) -> dict[str, int]:
        """The objects below a path, with their sizes."""
        base = self.folder / BUCKET
        files = (each for each in (base / path).rglob("*") if each.is_file())
        return {each.relative_to(base).as_posix(): each.stat().st_size for each in files}


def variables() -> Mapping[str, str]:
    """The variables with its credentials, as every client of S3 takes them."""
    return {
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def s3_gateway(folder: Path) -> Iterator[Gateway]:
    """Start a gateway with an empty bucket, and end it.

    Raises:
        OracleMissingError: Go or the network is missing.
    """
    program = gobuild.install(PACKAGE, VERSION)
    data, notes, port = folder / "s3", folder / "notes", find_free_port()
    data.mkdir(parents=True)
    notes.mkdir()
    address = f"127.0.0.1:{port}"
    command = [str(program), "--access", ACCESS, "--secret", SECRET, "--region", REGION]
    command += ["--port", address, "--quiet", "posix", "--sidecar", str(notes), str(data)]
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with ChildProcess("versitygw", command, folder=folder, environment=kept) as process:
        client = pafs.S3FileSystem(
            access_key=ACCESS,
            secret_key=SECRET,
            region=REGION,
            scheme="http",
            endpoint_override=address,
            allow_bucket_creation=True,
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                client.create_dir(BUCKET)
                break
            except OSError as error:
                if not process.is_running() or time.monotonic() > deadline:
                    raise ProcessError(f"{error}\n{process.log_tail()}") from error
                time.sleep(_LOOK_S)
        yield Gateway(address, data)

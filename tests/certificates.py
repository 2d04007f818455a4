"""Real certificates for loopback servers, made by openssl: an authority, and what it and another one have signed."""

from __future__ import annotations

import subprocess
from pathlib import Path

_AUTHORITY = """\
[ca]
default_ca = own
[own]
database = index
serial = serial
default_md = sha256
policy = any
copy_extensions = copy
rand_serial = yes
unique_subject = no
[any]
commonName = supplied
"""
NAMES = {
    "good": ("DNS:localhost,IP:127.0.0.1", "21000101000000Z"),
    "other": ("DNS:elsewhere.example", "21000101000000Z"),
    "expired": ("DNS:localhost,IP:127.0.0.1", "20200201000000Z"),
}
"""What servers show: for whom it is, and until when."""


def make_certificates(folder: Path) -> None:
    """`<name>.pem` and `<name>.key` for NAMES and `client`, `ca.pem` who signed them, `stranger.pem` another one."""
    for name in ("ca", "stranger"):
        _openssl(folder, "req", "-x509", *_new(name), "-subj", f"/CN={name}", "-days", "9000", "-out", f"{name}.pem")
    (folder / "authority").write_text(_AUTHORITY)
    (folder / "index").touch()
    for name, (subject, until) in {**NAMES, "client": ("DNS:client", "21000101000000Z")}.items():
        common = "postgres" if name == "client" else name
        request = ["-subj", f"/CN={common}", "-addext", f"subjectAltName={subject}", "-out", f"{name}.csr"]
        _openssl(folder, "req", *_new(name), *request)
        dates = ["-startdate", "20200101000000Z", "-enddate", until]
        sign = ["-batch", "-notext", "-config", "authority", "-cert", "ca.pem", "-keyfile", "ca.key", "-outdir", "."]
        _openssl(folder, "ca", *sign, *dates, "-in", f"{name}.csr", "-out", f"{name}.pem")


def _new(name: str) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]


def _openssl(folder: Path, *arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr.decode()

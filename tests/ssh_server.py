"""A real sshd on a loopback port that lets one key in and forwards only."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from instep.project.sections.reach import SshSection
from postgres_server import free_port
from programs import hand_over, program, serving, user


@dataclass(frozen=True)
class SshServer:
    """`ssh` gets in; `stranger` is the text of a key that does not."""

    ssh: SshSection
    stranger: str
    pid: int
    log: Path


def _key(folder: Path, name: str) -> tuple[str, str]:
    """(the private key's text, the public key as `type base64`)."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(folder / name)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return (folder / name).read_text(), " ".join((folder / f"{name}.pub").read_text().split()[:2])


@contextmanager
def ssh_server(*options: str) -> Iterator[SshServer]:
    """`options` are further lines of its configuration."""
    sshd, port = program("sshd"), free_port()
    folder = Path(tempfile.mkdtemp(prefix="instep-ssh-"))
    try:
        _, host = _key(folder, "host")
        inside, public = _key(folder, "client")
        stranger, _ = _key(folder, "stranger")
        (folder / "authorized").write_text(public + "\n")
        settings = [
            f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder / 'host'}", "PidFile none", "StrictModes no",
            f"AuthorizedKeysFile {folder / 'authorized'}", "PasswordAuthentication no", "UsePAM yes",
            "KbdInteractiveAuthentication no", "PermitTTY no", f"Banner {folder / 'banner'}", *options,
        ]  # fmt: skip
        (folder / "config").write_text("\n".join(settings) + "\n")
        (folder / "banner").write_text("Permission denied to strangers\n")
        (folder / "log").touch()
        hand_over(folder)
        with serving([sshd, "-D", "-e", "-f", str(folder / "config")], port, folder / "log") as child:
            ssh = SshSection.resolved(host="127.0.0.1", user=user(), port=port, key=inside, host_key=host)
            yield SshServer(ssh, stranger, child.pid, folder / "log")
    finally:
        shutil.rmtree(folder, ignore_errors=True)

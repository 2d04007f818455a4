"""Connections through an SSH server: one `ssh -W` a connection, which ends with the connection and so with the process.

No port stays open: a database driver is let in on a loopback port while it connects, and each connection that it
makes is handed over to an `ssh` of its own. The host key is always checked, the user's own ssh configuration is not
read, and keys reach `ssh` as files in memory. Each task opens its own.
"""

from __future__ import annotations

import re
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

from instep.errors import ConnectError, SetupError
from instep.project.sections.reach import SshSection
from instep.stage.secret_files import private_file

_ALIAS = "instep"
_ENDS = 2.0
"""Seconds that a failing `ssh` has to say why."""


class ServerAddress:
    """Address to reach a server: `address` and `port` to connect to, "" and 0 for the server's own."""

    address, port = "", 0

    def explain(self) -> None:
        """Raise ConnectError if it was the way that failed; called when a connection could not be made."""


@contextmanager
def through(ssh: SshSection | None, host: str, port: int, timeout: float) -> Iterator[ServerAddress]:
    """Open the way to `host`:`port` while the context lasts; connections made within outlive it."""
    if ssh is None:
        yield ServerAddress()
        return
    with ExitStack() as stack:
        key = stack.enter_context(private_file(ssh.key))
        known_hosts = stack.enter_context(private_file(f"{_ALIAS} {ssh.host_key}" if ssh.host_key else ""))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
        tunnel = _Tunnel(ssh, _command(ssh, host, port, timeout, key, known_hosts), listener, f"{host}:{port}")
        stack.callback(tunnel.close)
        yield tunnel


def _command(ssh: SshSection, host: str, port: int, timeout: float, key: str, known_hosts: str) -> list[str]:
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UpdateHostKeys": "no",
        "ConnectTimeout": str(int(timeout) or 60),
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
        "LogLevel": "INFO",
    }
    if key:
        options |= {"IdentityFile": _path(key), "IdentitiesOnly": "yes", "IdentityAgent": "none"}
    if known_hosts:
        options |= {"HostKeyAlias": _ALIAS}
    if file := known_hosts or ssh.known_hosts:
        options |= {"UserKnownHostsFile": _path(file), "GlobalKnownHostsFile": "/dev/null"}
    options_given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return [
        "ssh",
        "-F",
        "none",
        "-a",
        "-x",
        "-T",
        *options_given,
        "-p",
        str(ssh.port),
        "-l",
        ssh.user,
        "-W",
        target,
        ssh.host,
    ]


def _path(text: str) -> str:
    """Quote a path for ssh's options, which split at spaces and expand what begins with %."""
    return '"' + text.replace("%", "%%") + '"'


_running: list[subprocess.Popen[bytes]] = []
"""Kept until they have ended, so that they are waited for."""


class _Tunnel(ServerAddress):
    def __init__(self, ssh: SshSection, command: list[str], listener: socket.socket, target: str) -> None:
        self.ssh, self.command, self.listener, self.target = ssh, command, listener, target
        self.address, self.port = listener.getsockname()[:2]
        self._children: list[tuple[subprocess.Popen[bytes], IO[bytes]]] = []
        self._missing = False
        self._thread = threading.Thread(target=self._serve, name="ssh", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self._start(connection)

    def _start(self, connection: socket.socket) -> None:
        _running[:] = [child for child in _running if child.poll() is None]
        output = tempfile.TemporaryFile()  # noqa: SIM115 - closed when the tunnel is
        ends = connection.fileno()
        try:
            child = subprocess.Popen(self.command, stdin=ends, stdout=ends, stderr=output, start_new_session=True)
        except FileNotFoundError:
            output.close()
            self._missing = True
            return
        self._children.append((child, output))
        _running.append(child)

    def close(self) -> None:
        """Accept no more connections; open ones go on."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._thread.join()
        for _, output in self._children:
            output.close()

    def explain(self) -> None:
        """Raise what `ssh` said, if it failed."""
        if self._missing:
            raise SetupError("the program ssh is not installed, which a source with ssh needs", hint="install OpenSSH")
        for child, output in self._children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(_ENDS)
            output.seek(0)
            if child.returncode and (text := output.read().decode(errors="replace").strip()):
                raise explained(self.ssh, self.target, text) from None


def explained(ssh: SshSection, target: str, text: str) -> ConnectError:
    """Return our error for what `ssh` wrote: its last words, as the first ones may be the server's greeting."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" @\r")][::-1]
    changed = [line for line in lines if _CHANGED in line]
    for line in changed or lines:
        for mark, message, hint in _FAILURES:
            if re.search(mark, line):
                return ConnectError(f"{ssh.place}: {message.format(target=target)} ({line})", hint=hint)
    return ConnectError(f"{ssh.place}: ssh failed: {lines[0]}", hint="check the source's ssh settings")


_CHANGED = "IDENTIFICATION HAS CHANGED"
_FAILURES = (
    (_CHANGED, "the SSH server shows another host key than the known one",
     "somebody may be in between: ask its operator for the new key, then put it into ssh.host_key"),
    ("host key is known for|Host key verification failed", "the SSH server's host key is not known",
     "put the server's public key into ssh.host_key or a file for ssh.known_hosts; ssh-keyscan shows it: compare it"),
    ("invalid format|error in libcrypto|incorrect passphrase", "the private key cannot be read",
     "ssh.key is the whole text of a private key in OpenSSH's or PEM form, without a passphrase"),
    ("Permission denied", "the SSH server refuses this user and key",
     "check ssh.user and ssh.key, and that the public key is in the user's authorized_keys there"),
    ("administratively prohibited", "the SSH server does not allow forwarding to {target}",
     "allow it there: AllowTcpForwarding yes, and PermitOpen for the database"),
    ("open failed: connect failed", "the SSH server cannot reach {target}",
     "check the source's host and port as they are seen from the SSH server"),
    ("Connection refused", "nothing listens there", "check ssh.host and ssh.port, and that sshd runs there"),
    ("Could not resolve hostname", "the SSH server's host is unknown", "check ssh.host"),
    ("timed out", "no answer in time", "check ssh.host, ssh.port and firewall, or raise connect_timeout"),
)  # fmt: skip

"""Mail through real servers: every way of TLS, logins, and servers that refuse or do not answer."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from notify_world import message

from certificates import make_certificates
from instep.egress.guard import EgressGuard, EgressRefused
from instep.errors import ConnectError
from instep.notify.channel import NotDelivered
from instep.notify.mail import EmailChannel
from instep.project.sections.channels import EmailChannelSection
from receivers import post_office

LOOPBACK = EgressGuard(("127.0.0.0/8", "::1"))
PASSWORD = "canary-5f2e"


def channel(port: int, guard: EgressGuard = LOOPBACK, **said: object) -> EmailChannel:
    given = {"to": ("data@example.org", "b@example.org"), "tls": "none", "timeout": 5.0, "host": "localhost", **said}
    return EmailChannel(EmailChannelSection.resolved(type="email", sender="i@example.org", port=port, **given), guard)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


def shows(folder: Path, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return context


def test_a_mail_arrives_with_text_and_html() -> None:
    with post_office() as post:
        assert channel(post.port).send(message()) == 250
    [mail] = post.mails
    assert (mail["To"], mail["Auto-Submitted"]) == ("data@example.org, b@example.org", "auto-generated")
    for kind in ("plain", "html"):
        body = mail.get_body((kind,))
        assert body is not None
        assert "amount" in body.get_content()


@pytest.mark.parametrize("mode", ["starttls", "tls"])
def test_tls_is_used_and_checked(certificates: Path, mode: str) -> None:
    ca = str(certificates / "ca.pem")
    with post_office(shows(certificates, "good"), at_once=mode == "tls", users={"me": PASSWORD}) as post:
        sender = channel(post.port, tls=mode, ca=ca, user="me", password=PASSWORD)
        assert PASSWORD not in repr(sender._config)
        assert sender.send(message()) == 250
        assert (post.secured, post.logins) == ([True], ["me"])
        with pytest.raises(NotDelivered, match=r"the login was refused \(535\)") as refused:
            channel(post.port, tls=mode, ca=ca, user="me", password="wrong-canary").send(message())
        assert "wrong-canary" not in str(refused.value)
        with pytest.raises(NotDelivered, match="TLS"):
            channel(post.port, tls=mode).send(message())  # the system knows no such authority
    for name in ("other", "expired"):
        with (
            post_office(shows(certificates, name), at_once=mode == "tls") as post,
            pytest.raises(NotDelivered, match="TLS"),
        ):
            channel(post.port, tls=mode, ca=ca).send(message())


def test_a_server_without_tls_gets_no_mail() -> None:
    with post_office() as post, pytest.raises(ConnectError, match="does not offer what the channel asks for"):
        channel(post.port, tls="starttls").send(message())
    assert post.mails == []


@pytest.mark.parametrize(("said", "code"), [("550 no such user", 550), ("452 too many", 452)])
def test_what_a_server_refuses_is_told_without_its_words(said: str, code: int) -> None:
    with post_office(refuse=said) as post, pytest.raises(NotDelivered, match=f"no address was accepted .{code}") as no:
        channel(post.port).send(message())
    assert said.partition(" ")[2] not in str(no.value)
    assert no.value.code == code


def test_inner_servers_are_refused_unless_they_are_listed() -> None:
    with post_office() as post, pytest.raises(EgressRefused, match="this machine itself"):
        channel(post.port, EgressGuard()).send(message())
    with pytest.raises(EgressRefused, match="without TLS"):
        channel(25, EgressGuard(resolve=lambda *_: ["93.184.216.34"])).send(message())


def test_a_server_that_says_nothing_is_left_in_time() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(ConnectError, match="does not answer in time"),
    ):
        channel(silent.getsockname()[1], timeout=0.3).send(message())


def test_a_server_that_drips_is_left_in_time() -> None:
    """A byte now and then keeps a socket from timing out: the conversation as a whole has an end."""

    def drip(listening: socket.socket) -> None:
        with suppress(OSError):
            talking, _ = listening.accept()
            with talking:
                talking.sendall(b"220 hello\r\n")
                while True:
                    talking.sendall(b"2")
                    time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip, args=(listening,))
        thread.start()
        with pytest.raises(ConnectError, match="does not answer in time"):
            channel(listening.getsockname()[1], timeout=0.3).send(message())
        thread.join()

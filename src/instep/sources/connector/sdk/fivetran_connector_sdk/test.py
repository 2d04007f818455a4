"""The outcome of a setup test."""

from __future__ import annotations


class Test:
    """`Test.success()` and `Test.failure(message)`, of the class or of an object of it."""

    __test__ = False

    def __init__(self, ok: bool = True, message: str = "") -> None:
        self.ok, self.message = ok, message

    @staticmethod
    def success() -> Test:
        return Test()

    @staticmethod
    def failure(message: str = "") -> Test:
        return Test(False, str(message))

"""Files that are written for a commit: removed where it is certain that it has not landed, and only there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from instep.errors import Conflict, InstepError
from instep.stage.files.place import keep_only


@dataclass
class NewFiles:
    """The files of one commit, or of several that follow one another. A commit that raises anything but Conflict may
    have landed (an answer that is lost, Ctrl-C): its files stay, and `remove_uncommitted_files` of a later run looks
    at what the table lists by then."""

    io: Mapping[str, str] = field(repr=False)
    _landed: list[str] = field(default_factory=list)
    _unknown: bool = False

    @contextmanager
    def removed_unless_landed(self, *folders: str) -> Iterator[None]:
        """Remove after the block what it has written into these folders and no commit in it brings."""
        try:
            yield
        finally:
            if not self._unknown:
                for folder in folders:
                    with suppress(InstepError):
                        keep_only(folder, self.io, self._landed)

    @contextmanager
    def landing(self, paths: Collection[str]) -> Iterator[None]:
        """Record the files as landed once the block commits; after a Conflict they certainly have not."""
        self._unknown = True
        try:
            yield
        except Conflict:
            self._unknown = False
            raise
        self._landed += paths
        self._unknown = False

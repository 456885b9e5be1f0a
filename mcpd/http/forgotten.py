"""Who was forgotten since: for requests that were let in before, and are answered after."""

from __future__ import annotations

from collections.abc import Callable

from mcpd.protocol.principal import Principal


class Forgotten:
    """A moment. Moments hold those after them and none before, so that what nobody asks about any more is gone."""

    __slots__ = ("_is_meant", "following")

    def __init__(self) -> None:
        self._is_meant: Callable[[Principal], bool] | None = None
        self.following: Forgotten | None = None

    def add(self, is_meant: Callable[[Principal], bool]) -> Forgotten:
        """Forget these principals now; gives the moment after that."""
        self._is_meant, self.following = is_meant, Forgotten()
        return self.following

    def has(self, user: Principal) -> bool:
        """Whether this one was forgotten since."""
        moment: Forgotten | None = self
        while moment is not None and moment._is_meant is not None:
            if moment._is_meant(user):
                return True
            moment = moment.following
        return False

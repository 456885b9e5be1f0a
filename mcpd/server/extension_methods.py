"""Adds the methods of extensions to a server: their names to its vocabulary, their handlers to its table."""

from __future__ import annotations

from collections.abc import Callable

from mcpd.dispatcher.connection import Handler, NotificationListener
from mcpd.errors import RegistrationError
from mcpd.extensions.base import Extension
from mcpd.protocol.versions.table import Vocabulary, is_known_method


class ExtensionMethods:
    """`serve` puts what answers a request in its place, `listen` what hears a notification."""

    def __init__(
        self, serve: Callable[[str, Handler], None], listen: Callable[[str, NotificationListener], None]
    ) -> None:
        self.vocabulary = Vocabulary()
        self._serve = serve
        self._listen = listen
        self._owners: dict[str, Extension] = {}

    def become(self, other: ExtensionMethods) -> None:
        """Have the methods that another one has, now and later."""
        self.vocabulary.become(other.vocabulary)
        self._serve, self._listen, self._owners = other._serve, other._listen, other._owners

    def add(self, extension: Extension) -> None:
        """Serve what an extension has declared by now. Raises RegistrationError for a method that is not its own."""
        for name, method in extension.requests.items():
            if self._is_new(name, extension):
                self.vocabulary.add_request(name, method.params, method.versions, method.named)
                self._serve(name, extension.handler(name, method))
        for name, method in extension.notifications.items():
            if self._is_new(name, extension):
                self.vocabulary.add_notification(name, method.params, method.versions)
                self._listen(name, extension.listener(method))
        for name, versions in extension.server_notifications.items():
            self.vocabulary.add_server_notification(name, versions, extension.admits)

    def _is_new(self, name: str, extension: Extension) -> bool:
        owner = self._owners.setdefault(name, extension)
        if is_known_method(name) or owner is not extension:
            raise RegistrationError(f"method {name!r} is the protocol's own, or another extension's")
        return name not in self.vocabulary

"""The methods of the API with their rules: the option ``ckptd.v1.rule`` in the .proto files.

Each method has its own request message, so the message identifies the method. Importing fails if a
method has no rule: the client never guesses about retries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from ckptd.v1 import (
    admin_service_pb2,
    blob_service_pb2,
    checkpoint_service_pb2,
    migration_service_pb2,
    plugin_service_pb2,
    rule_pb2,
    thread_service_pb2,
)

READ = rule_pb2.RETRY_READ
REPEAT = rule_pb2.RETRY_REPEAT
SAME_ID = rule_pb2.RETRY_SAME_ID
NEVER = rule_pb2.RETRY_NEVER


@dataclass(frozen=True, slots=True)
class Method:
    """A method of the API with the parts of its rule that clients need."""

    name: str  # such as CheckpointService/Save
    path: str  # such as /ckptd.v1.CheckpointService/Save
    answer: type[Message]
    uploads: bool  # the request is any number of messages
    streams: bool  # the answer is any number of messages
    retry: int
    id: tuple[str, ...]  # path of the field with the id, for SAME_ID

    def retry_for(self, request: Message) -> int:
        """Return READ, REPEAT or NEVER: SAME_ID depends on the ids in the request."""
        if self.retry != SAME_ID:
            return self.retry
        return REPEAT if _set_everywhere(request, self.id) else NEVER


def _set_everywhere(value: object, path: tuple[str, ...]) -> bool:
    if not path:
        return bool(value)
    if isinstance(value, Message):
        return _set_everywhere(getattr(value, path[0]), path[1:])
    assert isinstance(value, Iterable)
    return all(_set_everywhere(getattr(item, path[0]), path[1:]) for item in value)


def read(files: Iterable[FileDescriptor]) -> dict[type[Message], Method]:
    """Return the methods of all services in the files, by the message of their requests."""
    methods: dict[type[Message], Method] = {}
    for file in files:
        for service in file.services_by_name.values():
            for m in service.methods:
                name = f"{service.name}/{m.name}"
                extensions: Any = m.GetOptions().Extensions
                rule: rule_pb2.Rule = extensions[rule_pb2.rule]
                if rule.retry == rule_pb2.RETRY_UNSPECIFIED:
                    raise TypeError(
                        f"{name} has no rule, so the client cannot know when to repeat it"
                    )
                asked = GetMessageClass(m.input_type)
                if asked in methods:
                    raise TypeError(f"{name} shares its request with {methods[asked].name}")
                methods[asked] = Method(
                    name=name,
                    path=f"/{service.full_name}/{m.name}",
                    answer=GetMessageClass(m.output_type),
                    uploads=m.client_streaming,
                    streams=m.server_streaming,
                    retry=rule.retry,
                    id=tuple(rule.id.split(".")) if rule.id else (),
                )
    return methods


METHODS = read(
    module.DESCRIPTOR
    for module in (
        admin_service_pb2,
        blob_service_pb2,
        checkpoint_service_pb2,
        migration_service_pb2,
        plugin_service_pb2,
        thread_service_pb2,
    )
)

"""What a session sends and what it remembers. Pure logic, without I/O."""

from __future__ import annotations

from dataclasses import replace

from ckptd._cache import Remembered
from ckptd._splices import edits
from ckptd._types import Checkpoint, Content, Draft, Edit, Put

Channels = dict[str, Remembered]


def shorten(draft: Draft, have: Channels) -> Draft:
    """Return the draft with edits in place of the contents that changed little."""
    changes: dict[str, Content] = {}
    for name, content in draft.channels.items():
        changes[name] = content
        had = have.get(name)
        if had is None or isinstance(content, Edit) or (put := _put(content)) is None:
            continue
        found = edits(had.data, put.data)
        # Where most of it is new, whole content spares the daemon's look at the base.
        if 4 * sum(len(r.data) for r in found) <= 3 * len(put.data):
            # The type goes along: an edit without one keeps the type that the channel has.
            changes[name] = Edit(had.version, found, put.type)
    return replace(draft, channels=changes)


def after_save(draft: Draft, saved: Checkpoint, have: Channels) -> Channels:
    """Return what to remember after a save of the draft with whole contents."""
    have = dict(have)
    for name, content in draft.channels.items():
        put = _put(content)
        if put is None:
            have.pop(name, None)
        else:
            _remember(have, saved, name, put.data)
    return _current(have, saved)


def after_load(loaded: Checkpoint, have: Channels) -> Channels:
    """Return what to remember after a load of all channels."""
    have = dict(have)
    for name, channel in loaded.channels.items():
        _remember(have, loaded, name, channel.data)
    return _current(have, loaded)


def _put(content: Content) -> Put | None:
    if isinstance(content, Put):
        return (
            content if isinstance(content.data, bytes) else Put(bytes(content.data), content.type)
        )
    if isinstance(content, bytes | bytearray | memoryview):
        return Put(bytes(content))
    return None


def _remember(have: Channels, cp: Checkpoint, name: str, data: bytes) -> None:
    channel = cp.channels.get(name)
    if channel is None or channel.rewritten or channel.size != len(data):
        have.pop(name, None)  # these are not the bytes that its version is of
    else:
        have[name] = Remembered(channel.type, channel.version, data)


def _current(have: Channels, cp: Checkpoint) -> Channels:
    """Drop the channels that are another's by now."""
    return {
        name: had
        for name, had in have.items()
        if (channel := cp.channels.get(name)) is not None and channel.version == had.version
    }

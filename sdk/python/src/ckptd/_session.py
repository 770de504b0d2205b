"""Turns whole contents into edits, and keeps track of the base. Pure logic, without I/O."""

from __future__ import annotations

from dataclasses import replace

from ckptd._cache import Remembered
from ckptd._splices import edits
from ckptd._types import Checkpoint, Content, Draft, Edit, Put

Channels = dict[str, Remembered]


def shorten(draft: Draft, have: Channels) -> Draft:
    """Replace contents that changed little by edits."""
    changes: dict[str, Content] = {}
    for name, content in draft.channels.items():
        changes[name] = content
        had = have.get(name)
        if had is None or isinstance(content, Edit) or (put := _put(content)) is None:
            continue
        found = edits(had.data, put.data)
        # If most of the content is new, an edit saves little and can meet NEED_FULL.
        if 4 * sum(len(r.data) for r in found) <= 3 * len(put.data):
            # Without a type, an edit would keep the channel's type.
            changes[name] = Edit(had.version, found, put.type)
    return replace(draft, channels=changes)


def after_save(draft: Draft, saved: Checkpoint, have: Channels) -> Channels:
    """Return the contents to remember after a save of the whole draft."""
    have = dict(have)
    for name, content in draft.channels.items():
        put = _put(content)
        if put is None:
            have.pop(name, None)
        else:
            _remember(have, saved, name, put.data)
    return _current(have, saved)


def after_load(loaded: Checkpoint, have: Channels) -> Channels:
    """Return the contents to remember after a load of all channels."""
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
        have.pop(name, None)  # the version is of other bytes
    else:
        have[name] = Remembered(channel.type, channel.version, data)


def _current(have: Channels, cp: Checkpoint) -> Channels:
    """Drop contents that are not those of the checkpoint."""
    return {
        name: had
        for name, had in have.items()
        if (channel := cp.channels.get(name)) is not None and channel.version == had.version
    }

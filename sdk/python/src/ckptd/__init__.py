"""Client of ckptd, an encrypted, versioned checkpoint store for agents.

Client and AsyncClient have the same methods. The messages of the API are in ckptd.v1, the errors in
ckptd.errors.
"""

from ckptd import errors, v1
from ckptd._async.client import AsyncClient
from ckptd._async.thread import AsyncSession, AsyncThread
from ckptd._async.user import AsyncUser
from ckptd._config import VERSION as __version__
from ckptd._sync.client import Client
from ckptd._sync.thread import Session, Thread
from ckptd._sync.user import User
from ckptd._types import (
    Blob,
    Channel,
    Checkpoint,
    Content,
    Draft,
    Edit,
    Event,
    PendingWrite,
    Place,
    Put,
    Ref,
    Remove,
    Replace,
    ThreadInfo,
    Write,
    as_json,
)
from ckptd.errors import (
    AmbiguousError,
    CkptdError,
    ConflictError,
    GenerationError,
    NotFoundError,
    UnreachableError,
)
from ckptd.v1 import Filter, Which

__all__ = [
    "AmbiguousError",
    "AsyncClient",
    "AsyncSession",
    "AsyncThread",
    "AsyncUser",
    "Blob",
    "Channel",
    "Checkpoint",
    "CkptdError",
    "Client",
    "ConflictError",
    "Content",
    "Draft",
    "Edit",
    "Event",
    "Filter",
    "GenerationError",
    "NotFoundError",
    "PendingWrite",
    "Place",
    "Put",
    "Ref",
    "Remove",
    "Replace",
    "Session",
    "Thread",
    "ThreadInfo",
    "UnreachableError",
    "User",
    "Which",
    "Write",
    "__version__",
    "as_json",
    "errors",
    "v1",
]

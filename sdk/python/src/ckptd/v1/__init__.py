"""The messages of the API, as protobuf generates them from api/ckptd/v1."""

from ckptd.v1.admin_service_pb2 import *
from ckptd.v1.blob_service_pb2 import *
from ckptd.v1.checkpoint_service_pb2 import *
from ckptd.v1.migration_service_pb2 import *
from ckptd.v1.plugin_service_pb2 import *
from ckptd.v1.thread_service_pb2 import *
from ckptd.v1.types_pb2 import *

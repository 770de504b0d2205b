// The messages and services of the API.

export * from "./gen/ckptd/v1/admin_service_pb.js";
export * from "./gen/ckptd/v1/blob_service_pb.js";
export * from "./gen/ckptd/v1/checkpoint_service_pb.js";
export * from "./gen/ckptd/v1/migration_service_pb.js";
export * from "./gen/ckptd/v1/plugin_service_pb.js";
export * from "./gen/ckptd/v1/rule_pb.js";
export * from "./gen/ckptd/v1/thread_service_pb.js";
export * from "./gen/ckptd/v1/types_pb.js";

"""The gRPC services: LogService and AdminService of gateway/proto/trioka/v1."""

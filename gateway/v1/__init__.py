"""Generated from gateway/proto/trioka/v1 by `make proto`: messages, and the stubs of clients and servers."""

"""Sockets of clients: the epoll loop, connections and their request order, dispatch, listeners, connection quotas."""

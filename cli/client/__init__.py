"""The command line's connections to a cluster: sockets, logins, settings, and what brokers and groups report."""

"""Where the brokers of a test run: in a thread or in a process."""

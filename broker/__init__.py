"""The broker: listens, connects the packages, and performs all I/O."""

"""Java and jars: found on the machine, or downloaded once and verified by checksum."""

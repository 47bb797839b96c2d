"""Java and jars: found, or downloaded once and checked by checksum."""

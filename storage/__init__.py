"""The storage room: what is kept."""

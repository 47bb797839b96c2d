"""The protocol room: what is said."""

"""A pipeline as data: TOML in, a checked declaration and its plan out."""

"""The objects of a tiered segment in the object store: their keys, indexes and manifest, as bytes and back."""

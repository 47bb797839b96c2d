"""The object store and the objects of a segment."""

"""Topic metadata in responses: descriptions, cached encodings, and leader hints (KIP-951)."""

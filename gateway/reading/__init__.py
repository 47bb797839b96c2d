"""Reading records: by Fetch and ListOffsets of gateway/kafka, without a group."""

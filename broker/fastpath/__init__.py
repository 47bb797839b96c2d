"""Fast paths: Produce and Fetch requests that repeat an earlier one are served without decoding."""

"""Topics, groups and offsets: requests of AdminService as requests of Kafka's protocol."""

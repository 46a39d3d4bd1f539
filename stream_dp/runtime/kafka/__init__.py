"""The Kafka client: connections, requests, transactions, topics, rights and ownership."""

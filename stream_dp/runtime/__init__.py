"""The runtime: the Faust adapter, the Kafka client, the worker, its sources, and a local Kafka."""

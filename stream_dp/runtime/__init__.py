"""The Faust adapter: application factory, transports, tables, topics, clients and the local Kafka."""
